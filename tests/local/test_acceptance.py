"""A whole acceptance run on the local cloud, killed three times, with a fault made by hand each time."""

import json
import re
import shutil

import pytest
import yaml
from local_project import ROOT, LocalProject

from trainium_eks.local.images import images

pytestmark = pytest.mark.slow


@pytest.fixture
def project(binaries, volcano_programs, tmp_path):
    if images.find("torch") is None:
        pytest.skip("no image local/torch on this machine: `trn local images make torch` makes it")
    project = LocalProject.of_the_repository(tmp_path / "project", TRN_VOLCANO="")
    (project.path / "workloads").symlink_to(ROOT / "workloads")
    shutil.copy(ROOT / "Pulumi.acceptance.yaml", project.path)
    yield project
    project.trn("local", "down", "--stack", "acceptance")


def test_acceptance_run_resumes_after_each_kill_and_reports_three_faults(project):
    command = ("acceptance", "--stack", "acceptance", "--local")
    cloud, file = project.path / ".local" / "acceptance", project.path / "Pulumi.acceptance.yaml"

    project.kill_when("✓ up", *command)
    project.kubectl("acceptance", "create", "deployment", "sick", "--image=local/none", "--namespace=volcano-system")
    project.kill_when("✓ node", *command)
    shutil.rmtree(cloud / "kept")
    project.kill_when("✓ scale", *command)
    stack = yaml.safe_load(file.read_text())
    stack["config"]["trainium-eks:queues"].append({"name": "another"})
    file.write_text(yaml.safe_dump(stack))
    ended = project.trn(*command)

    assert ended.returncode == 1, ended.stderr
    assert not cloud.exists()
    [folder] = (project.path / ".acceptance" / "acceptance").iterdir()
    found = json.loads((folder / "acceptance.json").read_text())
    outcomes = {each["name"]: each["outcome"] for each in found["steps"]}
    expected = dict.fromkeys(outcomes, "passed")
    expected |= dict.fromkeys(("verification", "logs", "again"), "failed")
    expected |= dict.fromkeys(("preflight", "alert"), "not reached")
    assert outcomes == expected, found["steps"]
    step = {each["name"]: each for each in found["steps"]}
    assert any("sick" in each["text"] + each["subject"] for each in step["verification"]["findings"])
    assert "without both starts" in step["logs"]["text"]
    assert "another" in step["again"]["text"]
    assert re.search("resumed from step [1-9]", step["training"]["text"] + step["node"]["text"])
    assert all(each["seconds"] > 0 for each in found["steps"] if each["outcome"] == "passed")
    page = (folder / "acceptance.md").read_text()
    assert "NOT passed" in page
    assert str(project.path) not in page + json.dumps(found)
