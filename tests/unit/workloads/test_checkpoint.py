"""Checkpoints: whole or not there, whenever the process is killed."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from trainium_workloads.checkpoint import Checkpoints, sealed

WORKLOADS = Path(__file__).parents[3] / "workloads"


def _complete(directory):
    return sorted(path for path in directory.iterdir() if path.name != "latest")


def _save(checkpoints, step, *parts):
    directory = checkpoints.begin(step)
    for number, part in enumerate(parts):
        (directory / f"part-{number}").write_text(part)
    return checkpoints.complete(step, {path.name: sealed(path) for path in directory.iterdir()})


def test_newest_checkpoint_is_found_and_older_ones_are_deleted(tmp_path):
    checkpoints = Checkpoints(tmp_path / "new", keep=2)
    assert checkpoints.latest() is None
    for step in (5, 10, 15):
        saved = _save(checkpoints, step, "a", f"{step}")
    assert checkpoints.latest() == saved
    assert [path.name[:13] for path in _complete(tmp_path / "new")] == ["step-00000010", "step-00000015"]
    assert (tmp_path / "new" / "latest").resolve() == saved.path
    assert (saved.path / "part-1").read_text() == "15"
    with pytest.raises(ValueError, match="keep must be 1 or more, not 0"):
        Checkpoints(Path("x"), keep=0)


def test_saving_a_step_twice_keeps_one(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    _save(checkpoints, 5, "one")
    two = _save(checkpoints, 5, "two")
    assert _save(checkpoints, 5, "two") == two
    assert _complete(tmp_path) == [two.path]


@pytest.mark.parametrize("damage", ["changed", "missing", "list"])
def test_damaged_checkpoint_is_skipped_and_named(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path)
    good = _save(checkpoints, 5, "a", "b")
    bad = _save(checkpoints, 10, "a", "c")
    if damage == "missing":
        (bad.path / "part-1").unlink()
    else:
        (bad.path / ("part-1" if damage == "changed" else "SHA256SUMS")).write_text("")
    told = []
    assert checkpoints.latest(told.append) == good
    assert len(told) == 1
    assert str(bad.path) in told[0]


def test_interrupted_save_is_no_checkpoint_and_is_removed_by_the_next(tmp_path):
    program = f"""
        import os, signal, sys
        sys.path.insert(0, {str(WORKLOADS)!r})
        from pathlib import Path
        from trainium_workloads.checkpoint import Checkpoints
        part = Checkpoints(Path({str(tmp_path)!r})).begin(10)
        (part / "state").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000010.part"]
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None
    _save(checkpoints, 15, "whole")
    assert [path.suffix for path in _complete(tmp_path)] == [".ckpt"]


def test_failed_save_keeps_the_previous_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    good = _save(checkpoints, 5, "a")
    (checkpoints.begin(10) / "SHA256SUMS").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        checkpoints.complete(10, {"part-0": "0" * 64})
    assert checkpoints.latest() == good
    assert _complete(tmp_path) == [good.path]
