"""Runs of pytest in forks of one process, which has imported the packages of others once: a run starts in a second."""

import contextlib
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass, field

TIMEOUT_SECONDS = 60
"""Tests that hang have failed, too."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["pytest", "coverage", "hypothesis", "boto3", "moto", "typer", "jsonschema", "grpc", "pulumi_eks"]
    + [f"pulumi_aws.{each}" for each in ("cloudwatch", "ec2", "ecr", "eks", "fsx", "iam", "kms", "s3", "sagemaker")]
    + [f"pulumi_kubernetes.{each}.v1" for each in ("apps", "batch", "core", "networking", "rbac")]
)


@dataclass(frozen=True)
class Run:
    """The result of one run."""

    code: int = -1
    """Exit code of pytest; -1 when it ran out of time or broke off."""
    failed: frozenset[str] = frozenset()
    """Names of failed test functions (``tests/unit/x.py::test_y``), without parameters."""
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    """File to line to the test functions that run it, where it was asked for."""


def run(tree, arguments, *, covered=(), timeout=TIMEOUT_SECONDS):
    """Run pytest in a tree; with directories of sources, note which test runs which of their lines."""
    reader, writer = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_pytest, args=(tree, arguments, covered, writer))
    process.start()
    writer.close()
    found = Run()
    with contextlib.suppress(EOFError):
        found = reader.recv() if reader.poll(timeout) else found
    process.kill()
    with contextlib.suppress(ProcessLookupError):  # before it has its session
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return found


class _Notes:
    """A plugin that notes failures, and tells coverage which test runs."""

    def __init__(self, coverage):
        self.failed = set()
        self._coverage = coverage

    def pytest_runtest_logstart(self, nodeid):
        if self._coverage:
            self._coverage.switch_context(nodeid.partition("[")[0])

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid.partition("[")[0])


def _pytest(tree, arguments, covered, answers):
    """Run pytest in this process, a fork, and send its result."""
    os.setsid()
    os.chdir(tree)
    sys.path[:0] = [str(tree), f"{tree}/tests"]
    sys.dont_write_bytecode = False
    with open(os.devnull, "r+b") as nowhere:
        for stream in range(3):
            os.dup2(nowhere.fileno(), stream)
    import pytest

    coverage = None
    if covered:
        from coverage import Coverage

        coverage = Coverage(data_file=None, source=covered)
        coverage.start()
    notes = _Notes(coverage)
    code = pytest.main(["-q", "-p", "no:xdist", "-o", "addopts=--import-mode=importlib", *arguments], [notes])
    lines = {}
    if coverage:
        coverage.stop()
        data = coverage.get_data()
        for file in data.measured_files():
            found = data.contexts_by_lineno(file)
            lines[os.path.relpath(file)] = {line: sorted(filter(None, tests)) for line, tests in found.items()}
    answers.send(Run(int(code), frozenset(notes.failed), lines))
