"""Isolation of a run of the tests or of a benchmark: variables, a home, and a separate directory for temporary files.

The processes of a run end with it, for any reason: a second process watches the run, and then kills those that are
left. That process also removes the directories of earlier runs, with the processes left of those.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

RUN = "TRN_TEST_RUN"
"""Environment variable with the run's directory."""
_PREFIX = "trn-run-"

_KEPT = (
    *("PATH", "USER", "LOGNAME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "KUBEBUILDER_ASSETS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("GOCACHE", "GOENV", "GOFLAGS", "GOMODCACHE", "GOPATH", "GOPROXY", "GOROOT", "GOSUMDB", "GOTOOLCHAIN"),
    *("TRN_CACHE", "TRN_OFFLINE", "TRN_VOLCANO", "TRN_TRAINING_OPERATOR"),
    *("TRN_FUZZ", "TRN_PIPELINES", "TRN_TORCHX", "PULUMI_AWS_SCHEMA"),
)
_KEPT_PREFIXES = ("PIP_", "UV_", "npm_config_", "PYTEST_", "COVERAGE_", "TRN_TEST_")
"""Variables that a run takes from its caller, and beginnings of their names: programs, package indexes, caches, and the
tests' own settings. No others: credentials, kubeconfigs, settings of tools and of colours would decide what is tested.
"""

_OURS = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "GIT_CONFIG_NOSYSTEM": "1",
    "LANG": "C.UTF-8",
    # Rule R05 asks whether a version is still in standard support: the answer must not change with the date.
    "SOURCE_DATE_EPOCH": "1795219200",  # 2026-11-21
}

_MARKS = ("TMPDIR", "HOME", "TRN_POD_DIRECTORY")
"""Variables of which each process of a run has one that leads into the run's directory."""

_LOOK_SECONDS = 0.3
_KILLED_WITHIN_SECONDS = 30.0


def isolate():
    """Begin a run, without the variables and the home of the caller; a process that a run started stays in that run."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    if RUN in os.environ and Path(os.environ[RUN]).is_dir():
        return
    import platformdirs

    # The caller's caches are used: built programs, and Go's modules.
    caches, settings = platformdirs.user_cache_path(), platformdirs.user_config_path()
    places = {"TRN_CACHE": caches / "trainium-eks", "GOCACHE": caches / "go-build", "GOPATH": Path.home() / "go"}
    files = {"GOENV": settings / "go" / "env", "PIP_CONFIG_FILE": settings / "pip" / "pip.conf"}
    places |= {name: file for name, file in files.items() if file.is_file()}
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")).resolve()
    home = directory / "home"
    home.mkdir()
    kept = {name: text for name, text in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    os.environ.clear()
    os.environ.update({name: str(place) for name, place in places.items()})
    os.environ.update(kept | _OURS | {RUN: str(directory), "HOME": str(home), "TMPDIR": str(directory)})
    tempfile.tempdir = None
    # In a separate session, Ctrl-C does not reach it.
    command = [sys.executable, __file__, str(os.getpid()), str(directory)]
    os.posix_spawn(sys.executable, command, {}, setsid=True)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_handlecrashitem(crashitem):
    """End the run when a worker is lost: the other workers would run on for minutes, or wait for ever."""
    pytest.exit(f"a worker was lost in {crashitem}", returncode=1)


def refuse_exec():
    """Fail a test that would replace its process by another program; a forked child may."""
    tests = os.getpid()

    def guarded(call):
        def execute(program, *arguments):
            if os.getpid() == tests:
                pytest.fail(f"{program} would replace the process of the tests: replace os.exec* in this test")
            call(program, *arguments)

        return execute

    # All of os.exec* call one of these.
    os.execv, os.execve = guarded(os.execv), guarded(os.execve)


def _watch(pid, directory):
    """Remove what is left of runs that have ended; wait for the end of this one, and kill its processes."""
    import psutil

    for other in directory.parent.glob(f"{_PREFIX}*-*"):
        owner = int(other.name.removeprefix(_PREFIX).partition("-")[0])
        is_ours = other.is_dir() and not other.is_symlink() and other.stat().st_uid == os.geteuid()
        if is_ours and other != directory and not psutil.pid_exists(owner):
            _kill(other)
            subprocess.run(["chmod", "-R", "u+rwX", other], check=False)
            shutil.rmtree(other, ignore_errors=True)
    while os.getppid() == pid:
        time.sleep(_LOOK_SECONDS)
    _kill(directory)


def _kill(directory):
    """Kill the processes of a run, and those that they start meanwhile."""
    import psutil

    def is_left(process):
        with contextlib.suppress(psutil.Error, OSError):
            variables = process.environ()
            return any(f"{variables.get(mark, '')}/".startswith(f"{directory}/") for mark in _MARKS)
        return False

    end = time.monotonic() + _KILLED_WITHIN_SECONDS
    while (found := [each for each in psutil.process_iter() if is_left(each)]) and time.monotonic() < end:
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.05)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), Path(sys.argv[2]))
