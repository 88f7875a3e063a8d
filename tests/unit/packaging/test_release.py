"""A release: one version, extras that a component's user does without, and constraints within the requirements."""

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_lines import commands, words
from packaging.requirements import Requirement

import trainium_eks
from trainium_eks.client.failure import LOCAL_PACKAGES

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CLI, LOCAL = ({Requirement(each).name for each in PROJECT["optional-dependencies"][name]} for name in ("cli", "local"))
LOCAL = LOCAL - {"trainium-eks", "ruamel-yaml"} | {"botocore", "ruamel", "urllib3"}

_SPEC = importlib.util.spec_from_file_location("release_notes", ROOT / ".ci" / "release_notes.py")
release_notes = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(release_notes)

WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
"""
"""Start of a program on a machine without some packages."""

COMPONENTS = """
import components
from trainium_eks.testing import record

for name in components.__all__:
    getattr(components, name)
zones = {"region": "us-west-2", "zone_ids": ["usw2-az4", "usw2-az1"]}
assert record(lambda: components.Network("net", zones)).of_type("aws:ec2/flowLog:FlowLog")
"""

COMMANDS = """
from typer.testing import CliRunner
from trainium_eks.cli.app import app

for line in {lines!r}:
    print(repr(" ".join(CliRunner().invoke(app, line).output.split())))
"""


def _run(program, missing, cwd, *arguments):
    environment = {"PYTHONPATH": str(ROOT), "PATH": str(cwd), "HOME": str(cwd), "TRN_STACK": "dev"}
    command = [sys.executable, "-c", WITHOUT.format(missing=missing) + program, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_version_is_declared_once_and_heads_the_changelog():
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "trainium_eks/__init__.py"
    assert release_notes.version() == trainium_eks.__version__
    first, *older = release_notes.sections()
    released = older[:1] if first == "Unreleased" else [first]
    assert released in ([], [trainium_eks.__version__])


def test_tag_is_refused_until_the_tree_is_ready(monkeypatch):
    sections = {"Unreleased": "More."}
    monkeypatch.setattr(release_notes, "sections", lambda: sections)
    for tag, reason in (("v9.9.9", "set __version__"), (f"v{trainium_eks.__version__}", "rename Unreleased")):
        with pytest.raises(SystemExit, match=reason):
            release_notes.notes(tag)
    sections = {trainium_eks.__version__: "More."}
    assert release_notes.notes(f"v{trainium_eks.__version__}") == "More."


@pytest.mark.slow
def test_components_and_their_tests_need_no_extra(tmp_path):
    done = _run(COMPONENTS, (CLI | LOCAL | {"click"}) - {"urllib3"}, tmp_path)  # pulumi asks by requests
    assert done.returncode == 0, done.stderr


def test_trn_without_its_extra_names_the_extra(tmp_path):
    done = _run("from trainium_eks.cli import main; main()", CLI, tmp_path, "plan")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "the Python package typer is missing: pip install 'trainium-eks[cli]' brings trn\n"


@pytest.mark.slow
def test_command_without_the_local_extra_names_the_extra(tmp_path):
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (tmp_path / "__main__.py").write_text("")
    lines = [words(command.epilog.removeprefix("Example: "))[1:] for _, command in commands()]
    done = _run(COMMANDS.format(lines=lines), LOCAL, tmp_path)
    shown = done.stdout.splitlines()
    assert len(shown) == len(lines), done.stderr
    assert [text for text in shown if "has a fault" in text] == []
    named = [text for text in shown if "is missing: pip install" in text and "'trainium-eks[local]'" in text]
    assert len(named) > len(lines) / 2
    assert LOCAL_PACKAGES == LOCAL


def test_constraints_and_wheel_dependencies_equal_the_requirements():
    pinned = {each.name: str(each.specifier).removeprefix("==") for each in _required("constraints.txt")}
    for name in ("requirements.txt", "requirements/local.txt", "requirements/dev.txt"):
        for wanted in _required(name):
            held = pinned.get(wanted.name.lower(), "")
            assert held, f"{wanted} has no constraint: run make constraints"
            assert wanted.specifier.contains(held), f"{wanted} is held at {held}: run make constraints"
    extras = {name: set(map(Requirement, PROJECT["optional-dependencies"][name])) for name in ("cli", "local")}
    needed = set(map(Requirement, PROJECT["dependencies"]))
    assert needed | extras["cli"] == set(_required("requirements.txt"))
    assert extras["local"] == {Requirement("trainium-eks[cli]"), *_required("requirements/local.txt")}
    every = needed.union(*extras.values()) - {Requirement("trainium-eks[cli]")}
    assert all("<" in str(each.specifier) for each in every), "every dependency has an upper bound"


def _required(name):
    lines = (line.strip() for line in (ROOT / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-r"))]
