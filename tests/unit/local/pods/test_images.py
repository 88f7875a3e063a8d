"""Local images, made without a network: from nothing, and from a wheel that the test writes."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.local.changes import LocalError
from trainium_eks.local.pods import images
from trainium_eks.local.pods.images import Recipe


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "cache" / "images"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A distribution `torch` of one line."""
    file = tmp_path / "torch-1.0-py3-none-any.whl"
    info = "torch-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("torch/__init__.py", "answer = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"torch/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return file


def python_of(image: images.LocalImage, code: str) -> str:
    done = subprocess.run([image.programs / "python", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_python_is_always_there_with_the_standard_library_alone(home: Path) -> None:
    image = images.find("local/python")
    assert image is not None
    assert image == images.find("python") == images.find(image.reference)
    assert not home.exists(), "looking makes nothing"
    images.ensure(image)
    assert python_of(image, "import sys; print(sys.version_info[:3])") == str(sys.version_info[:3])
    assert (
        python_of(image, "import importlib.util as u; print(u.find_spec('pip'), u.find_spec('psutil'))") == "None None"
    )


def test_an_image_is_made_from_requirements_and_found_by_name_and_by_tag(wheel: Path) -> None:
    assert images.find("local/mine") is None
    image = images.make(Recipe("mine", str(wheel)))
    assert image == images.find("local/mine") == images.find(image.reference)
    assert image.has_torch
    assert image.size_bytes > 0
    assert python_of(image, "import torch; print(torch.answer)") == "42"
    assert images.find("local/mine:000000000000") is None


def test_the_newest_of_a_name_is_found_and_the_older_by_its_tag(wheel: Path) -> None:
    older = images.make(Recipe("mine", str(wheel)))
    newer = images.make(Recipe("mine", ""))
    assert older.tag != newer.tag
    assert images.find("local/mine") == newer
    assert images.find(older.reference) == older
    assert [each.name for each in images.all_images()] == ["mine", "mine", "python"]
    again = images.make(Recipe("mine", str(wheel)))
    assert images.find("local/mine") == again


def test_what_fails_leaves_no_image(home: Path) -> None:
    with pytest.raises(LocalError, match=r"local/mine could not be made: pip ended with 1:\n(.*\n)*.*no-such-package"):
        images.make(Recipe("mine", "no-such-package"))
    assert images.find("local/mine") is None
    assert [each.name for each in home.iterdir() if each.is_dir()] == []


def test_an_environment_without_its_record_is_no_image(wheel: Path) -> None:
    """As a process leaves it that was killed while pip worked."""
    image = images.make(Recipe("mine", str(wheel)))
    image.path.with_suffix(".json").unlink()
    assert images.find("local/mine") is None
    assert images.make(Recipe("mine", str(wheel))).has_torch


def test_an_image_whose_interpreter_is_gone_is_not_found(wheel: Path) -> None:
    image = images.make(Recipe("mine", str(wheel)))
    (image.programs / "python").unlink()
    assert images.find("local/mine") is None


@pytest.mark.parametrize("name", ["", "UPPER", "a b", "../x", "a/b", "python", "a.b"])
def test_names_that_are_no_names_are_refused(name: str) -> None:
    with pytest.raises(LocalError, match="an image cannot be called"):
        images.make(Recipe(name, ""))


def test_the_command_that_makes_a_missing_image_is_named() -> None:
    assert images.how_to_make("local/torch") == "make it with `trn local images make torch`"
    assert images.how_to_make("local/x:1") == "make it with `trn local images make x --requirements FILE`"
    images.make(Recipe("x", ""))
    assert "use local/x" in images.how_to_make("local/x:1")


def test_the_recipe_of_torch_comes_with_the_library() -> None:
    assert "torch==" in images.known_recipe("torch").requirements
    with pytest.raises(LocalError, match="--requirements FILE"):
        images.known_recipe("jax")


def test_workloads_can_be_imported_from_where_images_look() -> None:
    assert (images.workloads() / "trainium_workloads" / "__init__.py").is_file()


def test_an_image_is_removed_unless_a_process_runs_in_it(wheel: Path) -> None:
    image = images.make(Recipe("mine", str(wheel)))
    with subprocess.Popen([image.programs / "python", "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(LocalError, match=f"in use by process {process.pid}"):
            images.remove("local/mine")
        process.communicate(b"\n")
    assert images.remove("mine") == (image,)
    assert not image.path.exists()
    with pytest.raises(LocalError, match="there is no image local/mine"):
        images.remove("mine")
    with pytest.raises(LocalError, match="always there"):
        images.remove("python")


def test_the_commands(wheel: Path, tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(str(wheel))
    trn = CliRunner().invoke
    made = trn(app, ["local", "images", "make", "mine", "--requirements", str(requirements)])
    assert made.exit_code == 0, made.output
    listed = json.loads(trn(app, ["local", "images", "--json"]).stdout)
    assert [(each["name"], each["hasTorch"]) for each in listed["images"]] == [
        ("local/mine", True),
        ("local/python", False),
    ]
    assert "local/mine" in trn(app, ["local", "images", "list"]).stdout
    missing = trn(app, ["local", "images", "make", "mine", "--requirements", str(tmp_path / "none")])
    assert (missing.exit_code, "cannot be read" in missing.output) == (2, True)
    assert trn(app, ["local", "images", "remove", "mine"]).exit_code == 0
    assert trn(app, ["local", "images", "remove", "mine"]).exit_code == 1
