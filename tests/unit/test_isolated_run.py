"""Isolation of the tests: what they see of the machine, and what is left of a run that was ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from isolated_run import RUN

ROOT = Path(__file__).parents[2]

_LONG = """\
import time, pytest
@pytest.mark.parametrize("number", range(300))
def test_it(number):
    time.sleep(1)
"""

_DAEMON = """\
import os, time
import isolated_run
isolated_run.isolate()
os.posix_spawn("/bin/sleep", ["sleep", "600"], {"TMPDIR": os.environ["TMPDIR"]}, setsid=True)
print(os.environ["TRN_TEST_RUN"], flush=True)
time.sleep(600)
"""

_USERS = {
    "HOME": "/dev/null",
    "XDG_CACHE_HOME": "/dev/null",
    "KUBECONFIG": "/of/the/user",
    "TRN_STACK": "prod",
    "AWS_PROFILE": "admin",
    "PULUMI_ACCESS_TOKEN": "x",
    "HELM_NAMESPACE": "x",
    "GIT_DIR": "/x",
    "FORCE_COLOR": "1",
    "GOOGLE_APPLICATION_CREDENTIALS": "/x",
    "HF_TOKEN": "x",
    "RANK": "7",
    "PYTHONPATH": f"{ROOT}/tests",
}
"""What a user's shell may hold, on a machine where the home cannot be written."""


def processes_of(directory):
    found = []
    for process in psutil.process_iter():
        try:
            found += [process] if process.environ().get("TMPDIR") == directory else []
        except psutil.Error:
            continue
    return found


def there_are(count, directory, within_seconds=60):
    """Wait for a number of processes: the kernel shows the variables of a new one a moment after its start."""
    end = time.monotonic() + within_seconds
    while len(processes_of(directory)) != count and time.monotonic() < end:
        time.sleep(0.1)
    return len(processes_of(directory)) == count


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_a_run_however_it_ends(number, tmp_path):
    users = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), **_USERS}
    run = subprocess.Popen([sys.executable, "-c", _DAEMON], env=users, stdout=subprocess.PIPE, text=True)
    directory = run.stdout.readline().strip()
    assert Path(directory).parent == tmp_path
    assert there_are(1, directory)
    run.send_signal(number)
    run.wait(60)
    assert there_are(0, directory)
    # The next run removes what is left, also of a run whose companion was killed, too.
    daemon = subprocess.Popen(["/bin/sleep", "600"], env={"TMPDIR": directory})
    with subprocess.Popen([sys.executable, "-c", _DAEMON], env=users, stdout=subprocess.PIPE, text=True) as following:
        following.stdout.readline()
        assert daemon.wait(60) == -signal.SIGKILL
        following.kill()


def test_users_variables_are_hidden():
    program = (
        "import isolated_run, os; isolated_run.isolate(); print(sorted(os.environ)); print(os.environ['TRN_CACHE'])"
    )
    users = {"PATH": os.environ["PATH"], "TMPDIR": os.environ["TMPDIR"], **_USERS}
    names, cache = subprocess.check_output([sys.executable, "-c", program], env=users, text=True).splitlines()
    kept = {"AWS_EC2_METADATA_DISABLED", "GIT_CONFIG_NOSYSTEM", "GOCACHE", "GOPATH", "HOME", "LANG", "PATH"}
    assert set(eval(names)) - {"LC_CTYPE"} == kept | {"SOURCE_DATE_EPOCH", "TMPDIR", "TRN_CACHE", RUN}
    assert cache == "/dev/null/trainium-eks"
    assert {*os.environ} & _USERS.keys() == {"HOME", "PYTHONPATH"}
    assert os.environ["HOME"].startswith(os.environ[RUN])
    assert os.listdir() == []


def test_exec_cannot_replace_the_test_process():
    with pytest.raises(pytest.fail.Exception, match="true would replace the process"):
        os.execlp("/bin/true", "true")


def test_lost_worker_ends_the_run_with_the_name_of_its_test(tmp_path):
    (tmp_path / "conftest.py").write_text("from isolated_run import pytest_handlecrashitem\n")
    (tmp_path / "test_hanging.py").write_text("import time\n\n\ndef test_it():\n    time.sleep(600)\n")
    (tmp_path / "test_long.py").write_text(_LONG)
    options = ["-c", f"{ROOT}/pyproject.toml", f"--rootdir={tmp_path}", "-n2", "-o", "faulthandler_timeout=5"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    surroundings = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "PYTHONPATH": f"{ROOT}/tests"}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "a worker was lost in test_hanging.py::test_it" in done.stdout
