"""Checkpoints: whole or not there, whenever the process is killed."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import BinaryIO

import pytest
from trainium_workloads.checkpoint import Checkpoint, Checkpoints, sha256

WORKLOADS = Path(__file__).parents[3] / "workloads"


def _writing(text: str):
    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    return write


def _complete(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.name != "latest")


def test_the_newest_is_found_and_older_ones_go(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "new", keep=2)
    assert checkpoints.latest() is None
    for step in (5, 10, 15, 20):
        checkpoints.save(step, _writing(f"state {step}"))
    found = checkpoints.latest()
    assert found is not None
    assert (found.step, found.path.read_text()) == (20, "state 20")
    assert [path.name[:13] for path in _complete(tmp_path / "new")] == ["step-00000015", "step-00000020"]
    assert (tmp_path / "new" / "latest").resolve() == found.path


def test_saving_a_step_again_leaves_one_of_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(5, _writing("one"))
    checkpoints.save(5, _writing("two"))
    assert [path.read_text() for path in _complete(tmp_path)] == ["two"]


def test_a_damaged_one_is_passed_over_and_named(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, _writing("good"))
    bad = checkpoints.save(10, _writing("bad")).path
    bad.write_text("cut o")
    told: list[str] = []
    found = checkpoints.latest(told.append)
    assert found is not None
    assert found.step == 5
    assert len(told) == 1
    assert str(bad) in told[0]
    assert "damaged" in told[0]


def test_a_full_disk_is_named_whatever_the_writer_makes_of_it(tmp_path: Path) -> None:
    """As PyTorch's: its file ends where its own count does not."""

    def write(_: BinaryIO) -> None:
        try:
            raise OSError(28, os.strerror(28))
        finally:
            raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 704 vs 598")

    with pytest.raises(OSError, match=rf"^\[Errno 28\] No space left on device: '{tmp_path}'$"):
        Checkpoints(tmp_path).save(10, write)


def test_a_save_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, _writing("good"))

    def full(file: BinaryIO) -> None:
        file.write(b"half of it")
        raise OSError(28, os.strerror(28))

    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(10, full)
    found = checkpoints.latest()
    assert found is not None
    assert found.step == 5
    assert len(_complete(tmp_path)) == 1


def test_what_a_kill_left_is_no_checkpoint_and_the_next_save_removes_it(tmp_path: Path) -> None:
    program = f"""
        import os, signal, sys
        sys.path.insert(0, {str(WORKLOADS)!r})
        from pathlib import Path
        from trainium_workloads.checkpoint import Checkpoints
        def write(file):
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        Checkpoints(Path({str(tmp_path)!r})).save(10, write)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000010.part"]
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None
    checkpoints.save(15, _writing("whole"))
    assert [path.suffix for path in _complete(tmp_path)] == [".ckpt"]


def _save_parts(checkpoints: Checkpoints, step: int, *parts: str) -> Checkpoint:
    directory = checkpoints.begin_directory(step)
    for number, part in enumerate(parts):
        (directory / f"part-{number}").write_text(part)
    return checkpoints.complete_directory(step, {path.name: sha256(path) for path in directory.iterdir()})


def test_a_checkpoint_of_parts_is_found_whole(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (5, 10, 15):
        saved = _save_parts(checkpoints, step, "a", f"{step}")
    assert checkpoints.latest() == saved
    assert [path.name[:13] for path in _complete(tmp_path)] == ["step-00000010", "step-00000015"]
    assert (tmp_path / "latest" / "part-1").read_text() == "15"


@pytest.mark.parametrize("damage", ["changed", "missing", "list"])
def test_a_checkpoint_with_a_damaged_part_is_passed_over(tmp_path: Path, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    good = _save_parts(checkpoints, 5, "a", "b")
    bad = _save_parts(checkpoints, 10, "a", "c")
    if damage == "missing":
        (bad.path / "part-1").unlink()
    else:
        (bad.path / ("part-1" if damage == "changed" else "SHA256SUMS")).write_text("x")
    told: list[str] = []
    assert checkpoints.latest(told.append) == good
    assert len(told) == 1
    assert str(bad.path) in told[0]


def test_parts_that_were_not_completed_are_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    good = _save_parts(checkpoints, 5, "a")
    (checkpoints.begin_directory(10) / "part-0").write_text("half")
    assert checkpoints.latest() == good
    assert _save_parts(checkpoints, 10, "whole") == checkpoints.latest()
    assert len(_complete(tmp_path)) == 2


def test_the_same_parts_saved_again_are_one_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert _save_parts(checkpoints, 5, "a") == _save_parts(checkpoints, 5, "a")
    assert len(_complete(tmp_path)) == 1


def test_parts_that_cannot_be_completed_leave_what_was_there(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    good = _save_parts(checkpoints, 5, "a")
    (checkpoints.begin_directory(10) / "SHA256SUMS").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        checkpoints.complete_directory(10, {"part-0": "0" * 64})
    assert checkpoints.latest() == good
    assert _complete(tmp_path) == [good.path]


def test_at_least_one_is_kept() -> None:
    with pytest.raises(ValueError, match="keep must be 1 or more, not 0"):
        Checkpoints(Path("x"), keep=0)
