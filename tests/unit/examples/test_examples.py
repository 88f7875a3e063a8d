"""Every program that is shown plans green in a project of its own; every component has an example and a page."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainium_eks.cli.app import app

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PROGRAMS = {path.stem: path.read_text() for path in EXAMPLES}
PROGRAMS |= {
    f"{path.name} {number}": program
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
    if program.startswith("import pulumi\n")
}
"""Name to a program that is shown; the pages of components show the examples."""


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_plans_green_in_a_bare_project(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: bare\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text('config: {"bare:kubeconfig": "{}"}\n')
    (tmp_path / "__main__.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    shown = CliRunner().invoke(app, ["plan", "--json", "--directory", str(tmp_path)], catch_exceptions=False)

    plan = json.loads(shown.stdout)
    broken = {each["id"]: each["findings"] for each in plan["rules"] if each["status"] == "fail"}
    assert broken == {}
    assert shown.exit_code == 0
    ours = [each for each in plan["resources"] if each["type"].startswith("trainium-eks:index:")]
    [stack] = [each["urn"] for each in plan["resources"] if each["type"] == "pulumi:pulumi:Stack"]
    assert [each["name"] for each in ours if each["parent"] == stack], "the component stands under the stack"


@pytest.mark.slow
@pytest.mark.parametrize("project", sorted(ROOT.glob("examples/*/__main__.py")), ids=lambda path: path.parent.name)
def test_project_plans_green(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(project.parent)
    shown = CliRunner().invoke(app, ["plan", "--json", "--stack", "dev"], catch_exceptions=False)
    plan = json.loads(shown.stdout)
    assert {each["id"]: each["findings"] for each in plan["rules"] if each["status"] == "fail"} == {}
    assert shown.exit_code == 0
    if project.parent.name == "smallest":
        assert 1.4 < plan["cost"]["hourlyUsd"] < 2  # the node alone is 1.34


def test_every_component_has_an_example() -> None:
    import components

    shown = "\n".join(path.read_text() for path in EXAMPLES)
    classes = [name for name in components.__all__ if f"{name}Args" in components.__all__ or name == "TrainingStack"]
    assert [name for name in classes if f"{name}(" not in shown] == []
