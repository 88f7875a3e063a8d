"""One command at a time."""

import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from waiting import SECONDS

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.lock import locked
from trainium_eks.local.paths import Paths

HOLD = """
import sys, time
from pathlib import Path
from trainium_eks.local.lock import locked
from trainium_eks.local.paths import Paths
with locked(Paths(Path(sys.argv[1])), "trn local up"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def paths(tmp_path):
    return Paths.of(tmp_path, "dev")


@contextmanager
def other_holder(paths):
    with subprocess.Popen([sys.executable, "-c", HOLD, paths.root], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


def test_lock_names_its_holder_and_a_killed_process_releases_it(paths):
    with other_holder(paths) as holder:
        with pytest.raises(ClusterError) as failure, locked(paths, "down", wait_seconds=0.1):
            pass
        message = str(failure.value)
        assert f"`trn local up` (process {holder.pid}) since " in message
        assert re.search(r"\d\d:\d\d:\d\d, \d+ s ago", message)
        assert str(paths.root) in message
        os.kill(holder.pid, signal.SIGKILL)
        with locked(paths, "up", wait_seconds=SECONDS):
            # Its owner's alone.
            assert stat.S_IMODE(paths.root.stat().st_mode) == 0o700
            assert stat.S_IMODE(paths.lock.stat().st_mode) == 0o600


def test_unsigned_lock_holder_is_waited_for(paths):
    paths.root.mkdir(parents=True)
    descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(ClusterError, match="changed by another process"), locked(paths, "up", wait_seconds=0):
        pass
    release = threading.Timer(0.2, os.close, [descriptor])
    release.start()
    with locked(paths, "up", wait_seconds=SECONDS):
        release.join()


def test_lock_on_a_removed_file_does_not_count(paths, monkeypatch):
    """``down`` removes the directory and then lets go: a lock on the removed file would protect nothing."""
    flock, removed = fcntl.flock, []

    def down_ends_first(descriptor, operation):
        if not removed:
            removed.append(paths.root)
            shutil.rmtree(paths.root)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", down_ends_first)
    with (
        locked(paths, "up", wait_seconds=SECONDS),
        pytest.raises(ClusterError, match="`up`"),
        locked(paths, "third", wait_seconds=0),
    ):
        pass
    assert removed
