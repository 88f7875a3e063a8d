"""Every example program plans without failures in a separate project; every component has an example and a page."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.plan.recording.assumptions import Assumptions, of_stack
from trainium_eks.plan.recording.process import record

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PROJECTS = sorted(path.parent for path in ROOT.glob("examples/**/__main__.py"))
PROGRAMS = {path.stem: path.read_text() for path in EXAMPLES}
PROGRAMS |= {
    f"{path.name} {number}": program
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
    if program.startswith("import pulumi\n")
}
"""Name to a program that is shown; the pages of components show the examples."""


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def planned(project, *options):
    """Return the plan of a project's stack, which must be sound."""
    shown = CliRunner().invoke(app, ["plan", "--json", *options, "--directory", str(project)], catch_exceptions=False)
    plan = json.loads(shown.stdout)
    assert {each["id"]: each["findings"] for each in plan["rules"] if each["status"] == "fail"} == {}
    assert shown.exit_code == 0
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_plans_without_failures_in_a_bare_project(program, tmp_path):
    (tmp_path / "Pulumi.yaml").write_text("name: bare\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text('config: {"bare:kubeconfig": "{}"}\n')
    (tmp_path / "__main__.py").write_text(program)
    resources = planned(tmp_path)["resources"]
    ours = [each for each in resources if each["type"].startswith("trainium-eks:index:")]
    [stack] = [each["urn"] for each in resources if each["type"] == "pulumi:pulumi:Stack"]
    assert [each["name"] for each in ours if each["parent"] == stack], "the component stands under the stack"


@pytest.mark.slow
@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_project_plans_without_failures(project):
    [stack] = [file.suffixes[0].removeprefix(".") for file in project.glob("Pulumi.*.yaml")]
    plan = planned(project, "--stack", stack)
    if project.name == "smallest":
        assert 1.4 < plan["cost"]["hourlyUsd"] < 2  # the node alone is 1.34


@pytest.mark.slow
def test_production_uses_the_network_exported_by_its_first_stack():
    """The committed answers are the network's exports on the simulated AWS, with ids of AWS' form."""
    production = ROOT / "examples" / "production"
    network = record(production / "network", "prod", assumptions=Assumptions())
    answers = json.loads((production / "cluster" / "network.json").read_text())
    assert json.loads(json.dumps(network.outputs).replace("-sim-", "-")) == answers
    kept = {each.type.rpartition(":")[2] for each in network.resources if each.options.protect}
    assert {"Vpc", "Subnet", "NatGateway", "Route", "Key"} <= kept
    assert "Instance" not in kept, "a new image replaces the runner"

    cluster = record(production / "cluster", "prod", assumptions=of_stack(production / "cluster", "prod"))
    private = [each["id"] for each in answers["existingNetwork"]["privateSubnets"]]
    [control_plane] = cluster.of_type("aws:eks/cluster:Cluster")
    assert control_plane.inputs["vpcConfig"]["subnetIds"] == private
    assert not control_plane.inputs["vpcConfig"]["endpointPublicAccess"]
    [group] = [each for each in cluster.of_type("aws:eks/nodeGroup:NodeGroup") if "trn1" in each.name]
    assert group.inputs["subnetIds"] == private[:1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("up",), 1, "pulumi is not on PATH: install it, https://www.pulumi.com/docs/install/\n"),
        (("up", "--stack", "nope"), 2, "there is no Pulumi.nope.yaml in"),
        (("create",), 2, "invalid choice: 'create'"),
    ],
    ids=["no CLI", "no stack", "no command"],
)
def test_automation_example_names_missing_tools_and_arguments(tmp_path, arguments, code, said):
    command = [sys.executable, ROOT / "examples" / "automation" / "deploy.py", *arguments]
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said in done.stderr


def test_every_component_has_an_example():
    import components

    shown = "\n".join(path.read_text() for path in EXAMPLES)
    classes = [name for name in components.__all__ if f"{name}Args" in components.__all__ or name == "TrainingStack"]
    assert [name for name in classes if f"{name}(" not in shown] == []
