"""Local images, made without a network: from nothing, and from a wheel that the test writes."""

import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.images import images
from trainium_eks.local.images.installing import NotOfferedError, Recipe, known_recipe
from trainium_eks.model.catalogue.training_images import BASES
from trainium_eks.model.catalogue.versions import IMAGES

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "cache" / "images"


def _wheel(directory, name, version):
    directory.mkdir(exist_ok=True)
    file = directory / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"answer = 42\nversion = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))
    return file


def python_of(image, code):
    done = subprocess.run([image.programs / "python", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def trn(*arguments):
    return CliRunner().invoke(app, ["local", "images", *arguments])


def test_image_is_found_while_complete_and_removed_unless_in_use(tmp_path):
    requirements = tmp_path / "requirements.txt"
    missing = trn("make", "mine", "--requirements", str(requirements))
    assert (missing.exit_code, "cannot be read" in missing.output) == (2, True)
    requirements.write_text(str(_wheel(tmp_path, "torch", "1.0")))
    made = trn("make", "mine", "--requirements", str(requirements))
    assert made.exit_code == 0, made.output
    image = images.find("local/mine")
    assert (image.has_torch, image.size_bytes > 0) == (True, True)
    assert python_of(image, "import torch; print(torch.answer)") == "42"
    assert images.find(image.reference) == image
    assert images.find("local/mine:000000000000") is None
    assert "use local/mine" in images.how_to_make("local/mine:1")
    listed = [(each["name"], each["hasTorch"]) for each in json.loads(trn("--json").stdout)["images"]]
    assert listed == [("local/mine", True), ("local/python", False)]
    assert "local/mine" in trn().stdout
    assert Path(trn("path", "local/mine").stdout.strip()) == image.path
    assert "trn local images make no" in trn("path", "no").output

    # As a process leaves it that was killed while pip worked.
    for part in (image.path.with_suffix(".json"), image.programs / "python"):
        part.rename(tmp_path / "part")
        assert images.find("local/mine") is None
        (tmp_path / "part").rename(part)
    with subprocess.Popen([image.programs / "python", "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(ClusterError, match=f"in use by process {process.pid}"):
            images.remove("local/mine")
        process.communicate(b"\n")
    assert trn("remove", "mine").exit_code == 0
    assert not image.path.exists()
    removed = trn("remove", "mine")
    assert (removed.exit_code, "there is no image local/mine" in removed.output) == (1, True)


def test_failed_build_leaves_no_image(home):
    with pytest.raises(ClusterError, match=r"mine could not be made: pip ended with 1:\n(.*\n)*.*no-such-package"):
        images.make(Recipe("mine", "no-such-package"))
    assert images.find("local/mine") is None
    assert [each.name for each in home.iterdir() if each.is_dir()] == []


def test_invalid_image_name_is_refused_and_a_missing_one_names_its_command():
    for name in ("", "UPPER", "a b", "../x", "a/b", "python", "a.b"):
        with pytest.raises(ClusterError, match="an image cannot be called"):
            images.make(Recipe(name, ""))
    assert images.how_to_make("local/torch") == "make it with `trn local images make torch`"
    assert images.how_to_make("local/x:1") == "make it with `trn local images make x --requirements FILE`"


@pytest.mark.slow
def test_large_requirement_comes_from_its_own_index_or_pips(tmp_path, monkeypatch):
    """An index for one package does not have the others."""
    torch, rest = _wheel(tmp_path / "w1", "torch", "1.0"), _wheel(tmp_path / "w2", "rest", "2.0")
    only_torch, others = _index(tmp_path / "only-torch", torch), _index(tmp_path / "others", rest)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", others)
    image = images.make(Recipe("mine", "torch==1.0\nrest==2.0\n", "torch==1.0", only_torch))
    assert python_of(image, "import torch, rest; print(torch.version, rest.version)") == "1.0 2.0"

    monkeypatch.setenv("PIP_INDEX_URL", _index(tmp_path / "all", torch, rest))
    said = []
    recipe = Recipe("other", "torch==1.0\nrest==2.0\n", "torch==1.0", (tmp_path / "none").as_uri())
    assert images.make(recipe, said.append).has_torch
    assert any("trying pip's own index" in line for line in said)


@pytest.mark.slow
def test_index_without_the_large_requirement_is_a_distinct_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(_wheel(tmp_path / "w1", "torch", "1.0").parent))
    with pytest.raises(NotOfferedError, match="no-such"):
        images.make(Recipe("mine", "no-such==1\ntorch==1.0\n", "no-such==1"))
    (tmp_path / "w1" / "broken-1.0-py3-none-any.whl").write_bytes(b"cut off")
    for other in ("no-such==1\ntorch==1.0\n", "broken==1.0\ntorch==1.0\n"):
        with pytest.raises(ClusterError, match=other.partition("=")[0]) as caught:
            images.make(Recipe("mine", other, "torch==1.0" if "no-such" in other else "broken==1.0"))
        assert not isinstance(caught.value, NotOfferedError)


def test_library_training_image_and_tests_pin_the_same_versions():
    with pytest.raises(ClusterError, match="--requirements FILE"):
        known_recipe("jax")
    local = _pins(known_recipe("torch").requirements)
    image = _pins((images.workloads() / "image-requirements.txt").read_text())
    image |= _pins("\n".join(BASES["cpu"].packages))
    tests = _pins((ROOT / "requirements" / "workloads.txt").read_text())
    common = {"torch", "numpy", "h5py", "tensorboard", "safetensors", "tokenizers", "pyarrow"}
    assert common <= local.keys() & image.keys()
    for pins in (image, tests):
        assert [name for name in pins.keys() & local.keys() if pins[name] != local[name]] == []


def _index(directory, *wheels):
    for wheel in wheels:
        project = directory / wheel.name.partition("-")[0]
        project.mkdir(parents=True)
        (project / "index.html").write_text(f'<a href="{wheel.as_uri()}">{wheel.name}</a>')
    return directory.as_uri()


def _pins(requirements):
    """Name to version; a line that does not pin one fails."""
    lines = [re.split(r"[;#]", line)[0].strip() for line in requirements.splitlines()]
    return dict(line.split("==") for line in lines if line)


@pytest.mark.parametrize(
    ("image", "runs"),
    [(IMAGES["python"], True), (f"1.dkr.ecr.a.com/p/ecr/{IMAGES['python'].partition('/')[2]}", True), ("a/b:1", False)],
)
def test_programs_run_locally_for_an_image_of_any_registry(image, runs):
    deployment = {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"image": image}]}}}}
    [container] = images.with_local_image(deployment)["spec"]["template"]["spec"]["containers"]
    assert (container["image"] == "local/python") == runs
