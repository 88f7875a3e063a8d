"""The files that travel with a job."""

import base64
import io
import os
import random
import tarfile
from pathlib import Path

import pytest

from trainium_eks.jobs.data.workspace import LARGEST_BYTES, Workspace, pack
from trainium_eks.model.validation.problems import Problem


def _files(workspace: Workspace | Problem) -> dict[str, str]:
    assert isinstance(workspace, Workspace)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(workspace.archive))) as tar:
        return {each.name: f"{each.mode:o} {tar.extractfile(each).read().decode()}" for each in tar}  # type: ignore[union-attr]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A researcher's directory."""
    for name in (
        "train.py",
        "model/layers.py",
        "model/__init__.py",
        ".git/config",
        ".venv/bin/x",
        "a/__pycache__/b.pyc",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}")
    (tmp_path / "run.sh").write_text("echo")
    (tmp_path / "run.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_script_travels_alone(code: Path) -> None:
    packed = pack("model/layers.py", None)
    assert _files(packed) == {"layers.py": "644 # model/layers.py"}
    assert isinstance(packed, Workspace)
    assert packed.script == "layers.py"


def test_a_directory_travels_without_what_is_not_code(code: Path) -> None:
    packed = pack("model/layers.py", code)
    assert _files(packed) == {
        "model/__init__.py": "644 # model/__init__.py",
        "model/layers.py": "644 # model/layers.py",
        "run.sh": "755 echo",
        "train.py": "644 # train.py",
    }
    assert isinstance(packed, Workspace)
    assert (packed.script, packed.files) == ("model/layers.py", 4)


def test_the_same_files_are_the_same_archive(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pack("train.py", code)
    monkeypatch.setattr("time.time", lambda: 1e9)
    os.utime(code / "train.py", (1, 1))
    assert pack("train.py", code) == first


def test_a_missing_script_names_the_nearest(code: Path) -> None:
    problem = pack("trian.py", None)
    assert isinstance(problem, Problem)
    assert (problem.path, problem.good) == ("--script", "train.py")
    inside = pack("model/layer.py", code)
    assert isinstance(inside, Problem)
    assert inside.good == "model/layers.py"
    nowhere = pack("no/where.py", code)
    assert isinstance(nowhere, Problem)
    assert nowhere.good is None


def test_a_missing_directory(code: Path) -> None:
    problem = pack("train.py", code / "none")
    assert isinstance(problem, Problem)
    assert problem.path == "--workspace"


def test_what_does_not_fit_names_the_largest(code: Path) -> None:
    (code / "weights.bin").write_bytes(random.Random(0).randbytes(LARGEST_BYTES + 1))
    problem = pack("train.py", code)
    assert isinstance(problem, Problem)
    assert "at most 700 KiB" in problem.reason
    assert "largest: weights.bin" in problem.fix
