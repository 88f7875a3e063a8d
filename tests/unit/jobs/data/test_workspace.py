"""The files that travel with a job."""

import base64
import io
import os
import random
import re
import tarfile

import pytest

from trainium_eks.jobs.data.workspace import LARGEST_BYTES, Workspace, pack


def _packed(script, directory):
    """The workspace, and each file's mode and text."""
    packed = pack(script, directory)
    assert isinstance(packed, Workspace)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed.archive))) as tar:
        return packed, {each.name: f"{each.mode:o} {tar.extractfile(each).read().decode()}" for each in tar}


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A researcher's directory."""
    files = "train.py model/layers.py model/__init__.py .git/config .venv/bin/x a/__pycache__/b.pyc run.sh"
    for name in files.split():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}")
    (tmp_path / "run.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_workspace_packs_the_script_alone_or_the_directorys_code(code, monkeypatch):
    packed, files = _packed("model/layers.py", None)
    assert (packed.script, files) == ("layers.py", {"layers.py": "644 # model/layers.py"})
    packed, files = _packed("model/layers.py", code)
    assert (packed.script, packed.files) == ("model/layers.py", 4)
    assert files == {
        "model/__init__.py": "644 # model/__init__.py",
        "model/layers.py": "644 # model/layers.py",
        "run.sh": "755 # run.sh",
        "train.py": "644 # train.py",
    }
    # The same files are the same archive.
    monkeypatch.setattr("time.time", lambda: 1e9)
    os.utime(code / "train.py", (1, 1))
    assert pack("model/layers.py", code) == packed
    for link, to in (("first.py", "train.py"), ("layers", code / "model"), (".#lock", "me@here:1"), ("deps", ".venv")):
        (code / link).symlink_to(to)
    files = _packed("first.py", code)[1]
    found = [files[each].partition("# ")[2] for each in ("first.py", "layers/layers.py", "deps/bin/x")]
    assert found == ["train.py", "model/layers.py", ".venv/bin/x"]


def test_missing_script_names_the_nearest_and_a_large_one_its_files(code):
    problem = pack("trian.py", None)
    assert (problem.path, problem.good) == ("--script", "train.py")
    assert pack("model/layer.py", code).good == "model/layers.py"
    assert pack("no/where.py", code).good is None
    assert pack("train.py", code / "none").path == "--workspace"
    (code / "weights.bin").write_bytes(random.Random(0).randbytes(LARGEST_BYTES + 1))
    problem = pack("train.py", code)
    assert "at most 700 KiB" in problem.reason
    assert "largest: weights.bin" in problem.fix


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda at: at.symlink_to("/etc/passwd"), r"model/x is a link out of .*, to /etc/passwd"),
        (lambda at: at.symlink_to("../.."), r"model/x is a link out of "),
        (lambda at: at.symlink_to("../model"), r"model/x is a link to a directory that it is in"),
        (lambda at: at.symlink_to(".."), r"model/x is a link to a directory that it is in"),
        (os.mkfifo, r"model/x is not a regular file"),
    ],
)
def test_files_outside_the_workspace_are_not_packed(code, make, reason):
    make(code / "model" / "x")
    problem = pack("train.py", code)
    assert problem.path == "--workspace"
    assert re.match(reason, problem.reason)
    assert "remove it" in problem.fix


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("run", "#!/bin/bash\nset -e\ntorchrun -N 32 finetune.py --out o", "of bash.*--script finetune.py -- ARG"),
        ("run.py", "#!/usr/bin/env -S LANG=C zsh -e\nls", "a script of zsh"),
        ("run.SH", "true", "a script of a shell"),
        ("train.ipynb", "{}", "a notebook.*jupyter nbconvert --to script"),
        ("train.py", "\0\1", "Python cannot read it"),
        ("torchrun", "#!/usr/bin/python3\n", "it is a launcher"),
        ("../x.py", "1", "not among the files"),
        ("model", None, "is a directory: name the file in it"),
    ],
)
def test_script_that_python_cannot_run_is_refused(code, name, content, said):
    if content is not None:
        (code / name).write_text(content)
    problem = pack(name, code)
    assert problem.path == "--script"
    assert re.search(said, f"{problem.reason}; {problem.fix}")


@pytest.mark.parametrize("content", ["#!/usr/bin/env -S uv run --script\n", "#!/usr/bin/python3.13\nf'{f'{1}'}'", "1"])
def test_python_programs_are_packed(code, content):
    for name in ("train", "new.py"):
        (code / name).write_text(content)
        assert isinstance(pack(name, code), Workspace)
