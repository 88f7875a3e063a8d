"""Runs of pytest in forks of one process, which has imported the packages of others once: a run starts in a second."""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile

import isolated_run

TIMEOUT_SECONDS = 60
"""Tests that hang have failed, too."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["pytest", "hypothesis", "boto3", "moto", "typer", "jsonschema", "grpc", "pulumi_eks"]
    + [f"pulumi_aws.{each}" for each in ("cloudwatch", "ec2", "ecr", "eks", "fsx", "iam", "kms", "s3", "sagemaker")]
    + [f"pulumi_kubernetes.{each}.v1" for each in ("apps", "batch", "core", "networking", "rbac")]
)


def run(tree, arguments):
    """Run pytest in a tree; return its exit code, or -1 when it ran out of time or broke off."""
    reader, writer = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_pytest, args=(tree, arguments, writer))
    process.start()
    writer.close()
    code = -1
    with contextlib.suppress(EOFError):
        code = reader.recv() if reader.poll(TIMEOUT_SECONDS) else code
    process.kill()
    with contextlib.suppress(ProcessLookupError):  # before it has its session
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return code


def _pytest(tree, arguments, answers):
    """Run pytest in this process, a fork, and send its exit code."""
    os.setsid()
    os.chdir(tree)
    # Its own: recordings are kept there (conftest.py), and those of the tree without a fault must not be read.
    os.environ[isolated_run.RUN] = tempfile.mkdtemp(dir=os.environ[isolated_run.RUN])
    sys.path[:0] = [str(tree), f"{tree}/tests"]
    sys.dont_write_bytecode = False
    with open(os.devnull, "r+b") as nowhere:
        for stream in range(3):
            os.dup2(nowhere.fileno(), stream)
    import pytest

    code = pytest.main(["-q", "-p", "no:xdist", "-o", "addopts=--import-mode=importlib", *arguments])
    answers.send(int(code))
