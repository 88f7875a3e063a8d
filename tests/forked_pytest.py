"""Runs of pytest in forks of one process, which has imported the packages of others once: a run starts in a second.

``ForkedPytest`` is what a caller uses; ``python forked_pytest.py`` is the process that it talks to, by lines of JSON.
"""

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 60
"""Tests that hang have failed, too."""


@dataclass(frozen=True)
class Run:
    """The result of one run."""

    code: int
    """Exit code of pytest; -1 when it ran out of time or broke off."""
    failed: frozenset[str] = frozenset()
    """Names of failed test functions (``tests/unit/x.py::test_y``), without parameters."""
    seconds: dict[str, float] | None = None
    """Duration of each test function, with its parameters and fixtures."""
    lines: dict[str, dict[str, list[str]]] | None = None
    """File to line to the test functions that run it, where it was asked for."""


class ForkedPytest:
    """A process in a tree of sources, whose forks run pytest."""

    def __init__(self, tree):
        """Start the process in a tree."""
        self._tree = tree
        self._process = self._started()

    def _started(self):
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            cwd=self._tree,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, arguments, *, covered=(), timeout=TIMEOUT_SECONDS):
        """Run pytest with these arguments; with directories of sources, note which test runs which of their lines."""
        assert self._process.stdin
        assert self._process.stdout
        asked = {"arguments": arguments, "covered": covered, "timeout": timeout}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:  # a module of others has ended the process as it was imported
            self._process = self._started()
            return self.run(arguments, covered=covered, timeout=timeout)
        answer: dict[str, Any] = json.loads(line)
        return Run(answer["code"], frozenset(answer["failed"]), answer["seconds"], answer["lines"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()


class _Notes:
    """A plugin that notes failures and durations, and tells coverage which test runs."""

    def __init__(self, coverage):
        self.failed: set[str] = set()
        self.seconds: dict[str, float] = {}
        self._coverage = coverage

    def pytest_runtest_logstart(self, nodeid):
        if self._coverage:
            self._coverage.switch_context(_function(nodeid))

    def pytest_runtest_logreport(self, report):
        name = _function(report.nodeid)
        self.seconds[name] = self.seconds.get(name, 0) + report.duration
        if report.failed:
            self.failed.add(name)


def _function(nodeid):
    return nodeid.partition("[")[0]


def _pytest(asked):
    """Run pytest in this process, a fork; return its result and the modules that it imported."""
    import pytest

    coverage = None
    if asked["covered"]:
        from coverage import Coverage

        coverage = Coverage(data_file=None, source=asked["covered"])
        coverage.start()
    notes = _Notes(coverage)
    code = pytest.main(["-q", "-p", "no:xdist", "-o", "addopts=--import-mode=importlib", *asked["arguments"]], [notes])
    lines: dict[str, dict[str, list[str]]] = {}
    if coverage:
        coverage.stop()
        data = coverage.get_data()
        for file in data.measured_files():
            found = data.contexts_by_lineno(file)
            lines[os.path.relpath(file)] = {str(line): sorted(filter(None, tests)) for line, tests in found.items()}
    of_others = [
        name for name, module in sys.modules.items() if "site-packages" in str(getattr(module, "__file__", ""))
    ]
    return {
        "code": int(code),
        "failed": sorted(notes.failed),
        "seconds": notes.seconds,
        "lines": lines or None,
        "modules": of_others,
    }


def _forked(asked):
    """Run pytest in a fork and return its result, or the code -1."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        seconds = int(asked["timeout"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # should this process end before it
        with open(os.devnull, "r+b") as nowhere:
            for stream in range(3):
                os.dup2(nowhere.fileno(), stream)
        with os.fdopen(writer, "w") as answers:
            json.dump(_pytest(asked), answers)
        os._exit(0)
    os.close(writer)
    read = b""
    while select.select([reader], [], [], asked["timeout"])[0]:
        part = os.read(reader, 1 << 20)
        if not part:
            break
        read += part
    with contextlib.suppress(ProcessLookupError):  # before it has its session
        os.killpg(child, signal.SIGKILL)
    os.close(reader)
    os.waitpid(child, 0)
    try:
        found: dict[str, Any] = json.loads(read)
    except ValueError:
        return {"code": -1, "failed": [], "seconds": {}, "lines": None, "modules": []}
    return found


def main():
    """Answer a line of JSON for each that is read."""
    sys.path[:0] = [os.getcwd(), f"{os.getcwd()}/tests"]
    for line in sys.stdin:
        answer = _forked(json.loads(line))
        for name in sorted(answer.pop("modules")):
            if name not in sys.modules and not name.startswith(("_pytest.assertion", "xdist")):
                try:
                    importlib.import_module(name)
                except (Exception, SystemExit):  # noqa: BLE001
                    continue  # it is imported by the fork that needs it
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
