"""`trn plan` on real small programs: what it records, what it says when that fails, and its exit codes."""

import importlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hand_built import environment, without
from outcome import ends
from small_project import PROGRAM, Project

from trainium_eks.cli.shared import plan_page, plan_report
from trainium_eks.model.validation.problems import Problem
from trainium_eks.plan import rules
from trainium_eks.plan.graph import SCHEMA_VERSION, UNKNOWN, Graph, Resource
from trainium_eks.plan.recording import process
from trainium_eks.plan.recording.project import InvalidConfigError
from trainium_eks.plan.resource_types import registry, sdk_inputs

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def plan(trn, project):
    return lambda *arguments: trn("plan", "--directory", project.path, *arguments)


def _items(shown):
    return [(item["kind"], item["name"]) for item in json.loads(shown.stdout)["against"]["items"]]


def test_json_plan_equals_the_saved_plan(plan, tmp_path):
    saved = tmp_path / "plan.json"
    shown = plan("--json", "--save", saved)
    data = json.loads(shown.stdout)
    assert data["schemaVersion"] == SCHEMA_VERSION
    [key] = [each for each in data["resources"] if each["type"] == "aws:kms/key:Key"]
    assert {"urn", "name", "parent", "inputs", "dependencies", "options"} <= key.keys()
    assert data["cost"]["hourlyUsd"] == pytest.approx(1 / 730, abs=0.0001)
    assert {"seconds", "lowerBoundSeconds", "criticalPath"} <= data["timeToReady"].keys()
    assert shown.exit_code == int(any(rule["status"] == "fail" for rule in data["rules"]))
    assert saved.read_text() == shown.stdout
    assert Graph.from_json(data).stack == "dev"
    assert _items(plan("--json", "--against", saved)) == []


@pytest.mark.parametrize(
    ("component", "where", "path", "fix"),
    [
        ("", "Pulumi.dev.yaml", "nodeGroups[0].maxSize", "pulumi config set --path 'x' 1"),
        ("Network net", "Network net", "node_groups[0].max_size", "set max_size to 1"),
    ],
)
def test_refused_component_prints_problems_in_the_spelling_of_their_source(
    plan, monkeypatch, component, where, path, fix
):
    def refuse(*_, **__):
        raise InvalidConfigError((Problem("node_groups[0].max_size", "0 is too small", fix),), component=component)

    monkeypatch.setattr(process, "record", refuse)
    shown = plan()
    assert (shown.exit_code, shown.stdout) == (1, "")
    expected = [f"{where}: 1 problem, nothing was planned", f"- {path}: 0 is too small", f"    fix: {fix}"]
    assert shown.stderr.splitlines()[1:] == expected
    shown = plan("--json")
    [problem] = json.loads(shown.stdout)["problems"]
    assert (shown.exit_code, problem["path"], problem["reason"]) == (1, path, "0 is too small")


def test_a_failing_program_shows_its_own_traceback(plan, project):
    project.write("Pulumi.dev.yaml", "environment: [shared/base]\nconfig: {}\n")
    project.write("__main__.py", "def build():\n    return {}['nothing']\n\n\nprint('so far')\nbuild()\n")
    shown = plan()
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "KeyError: 'nothing'" in shown.stderr
    assert "in build" in shown.stderr
    assert "The program printed:\nso far\n" in shown.stderr
    assert "trainium_eks/cli" not in shown.stderr
    assert "warning: Pulumi.dev.yaml: 'environment'" in shown.stderr, "values that are not seen here"


def test_missing_stack_or_project_is_a_usage_error(trn, plan, project, tmp_path, monkeypatch):
    ends(2, plan("--stack", "dve"), "'dve'", "did you mean 'dev'")
    for place, said in ((tmp_path, "no Pulumi.yaml"), (tmp_path / "nowhere", "is not a directory")):
        ends(2, trn("plan", "--directory", place), said)
    (project.path / "docs").mkdir()
    monkeypatch.chdir(project.path / "docs")
    # Found from a directory inside it.
    project.write("__main__.py", "import pulumi_aws as aws\n\naws.kms.Key('key', enable_key_rotation=False)\n")
    ends(1, trn("plan"), "✗ dev is not sound", "pulumi config set --path waivers.R")


# --- Since a commit ---------------------------------------------------------------------------------------------------


def test_against_refuses_a_file_that_is_no_plan_and_an_unknown_commit(planned, project, tmp_path):
    for repository in (False, True):
        if repository:
            project.git("init", "-q")
            project.commit()
        for text in ("nowhere", "--output=x"):
            ends(2, planned(f"--against={text}"), f"--against {text}: neither a file nor a commit")
    for text, said in (
        ("{", "is not JSON"),
        ("[]", "has no resources"),
        ('{"schemaVersion": 99, "resources": []}', "schema version 99"),
        ('{"schemaVersion": 1, "resources": [{}]}', "not a whole plan"),
        ('{"schemaVersion": 1, "project": "small", "stack": "prod", "resources": [], "outputs": {}}', "not of dev"),
    ):
        (tmp_path / "plan.json").write_text(text)
        ends(2, planned("--against", tmp_path / "plan.json"), said)


def test_commit_is_recorded_with_its_own_code(plan, project):
    program = PROGRAM.replace("import pulumi\n", "import pulumi\nfrom naming import NAME\n")
    project.write("__main__.py", program.replace('f"{name}-key"', "NAME"))
    project.write("naming.py", "NAME = 'old'\n")
    top = Project(project.path.parent)
    top.git("init", "-q")
    top.commit()
    project.write("naming.py", "NAME = 'new'\n")
    shown = plan("--json", "--against", "HEAD")
    assert json.loads(shown.stdout)["against"]["since"].startswith("HEAD (")
    assert {*_items(shown)} == {("delete", "old"), ("create", "new")}


def test_project_and_stack_newer_than_the_commit_are_created_whole(plan, project):
    top = Project(project.path.parent)
    top.git("init", "-q")
    top.git("commit", "-qm", "x", "--allow-empty")
    assert _items(plan("--json", "--against", "HEAD")) == [("create", "store-key")]
    top.commit()
    project.write("Pulumi.next.yaml", "config: {}\n")
    shown = plan("--json", "--stack", "next", "--against", "HEAD")
    made = json.loads(shown.stdout)
    assert _items(shown) == [("create", "store-key")]
    assert made["against"]["hourlyUsd"] == made["cost"]["hourlyUsd"]


@pytest.mark.parametrize(
    ("file", "text", "code", "said"),
    [("Pulumi.yaml", "name: [\n", 2, "not valid YAML"), ("__main__.py", "1 / 0\n", 1, "ZeroDivisionError")],
)
def test_unplannable_commit_is_an_error_and_not_an_empty_plan(plan, project, file, text, code, said):
    whole = (project.path / file).read_text()
    project.write(file, text)
    project.git("init", "-q")
    project.commit()
    project.write(file, whole)
    told = ends(code, plan("--against", "HEAD"), "as of HEAD (", said)
    assert file == "__main__.py" or "trn-plan-" not in told, "the folder of the commit is nobody's"


def test_fail_on_selects_the_failing_changes(planned, tmp_path, monkeypatch):
    monkeypatch.setattr(rules, "judge", lambda _graph: ())
    plan_report.save(plan_report.make(environment()), tmp_path / "plan.json")
    fewer, since = without(environment(), "sts"), ("--against", tmp_path / "plan.json")
    assert planned(*since, "--fail-on", "replace", graph=fewer).exit_code == 0
    ends(1, planned(*since, "--fail-on", "replace,delete", graph=fewer), "--fail-on: 1 delete\n")
    ends(2, planned("--fail-on", "delete"), "--fail-on needs --against")
    ends(2, planned(*since, "--fail-on", "vanish"), "'vanish' is not one of create, delete, replace, update")


# --- A program that knows nothing of this library ---------------------------------------------------------------------

FOREIGN = """\
import pulumi
import pulumi_aws as aws

account = aws.get_caller_identity().account_id
network = pulumi.StackReference("acme/network/prod")
queue = aws.sns.Topic("jobs", tags={"account": account})
aws.ec2.Subnet("s", vpc_id=network.get_output("vpcId"), cidr_block="10.0.0.0/18")
pulumi.export("queue", queue.arn)
"""


@pytest.fixture
def foreign(project):
    project.write("__main__.py", FOREIGN)
    project.write("Pulumi.dev.yaml", "config: {}\n")
    return project


def test_answers_reach_the_program_and_the_earlier_version(trn, foreign):
    foreign.git("init", "-q")
    foreign.commit()
    answers = foreign.path / "stub.yaml"
    answers.write_text("stackReferences: {acme/network/prod: {vpcId: vpc-1}}\n")
    shown = trn("plan", "-C", foreign.path, "--json", "--stub", answers, "--against", "HEAD")
    plan = json.loads(shown.stdout)
    assert plan["unjudged"] == ["aws:sns/topic:Topic"]
    assert plan["placeholders"] == ["aws:index/getCallerIdentity:getCallerIdentity"]
    [vpc] = [each["inputs"]["vpcId"] for each in plan["resources"] if each["name"] == "s"]
    assert (vpc, plan["against"]["items"]) == ("vpc-1", [])
    answers.write_text("lookup: {}\n")
    refused = "there is no 'lookup'; it takes lookups and stackReferences"
    ends(2, trn("plan", "-C", foreign.path, "--stub", answers), refused)


@pytest.mark.slow
def test_every_resource_type_can_be_planned_with_unknown_inputs():
    importlib.import_module("pulumi_aws")
    importlib.import_module("pulumi_kubernetes")
    types = {token: sdk_inputs.input_types(token) or () for token in registry.ROWS}
    before, after = (
        Graph("p", "dev", tuple(Resource(f"urn::{t}", t, "r", inputs=dict.fromkeys(types[t], to)) for t in types), {})
        for to in ("", UNKNOWN)
    )
    made = plan_report.make(after)
    for plan in (made, plan_report.compare_with(made, "it", before)):
        assert plan_page.page(plan)
        assert plan_report.text(plan)


def test_plan_never_imports_the_providers_sdk(project):
    """Importing pulumi_aws takes longer than all else; only the recorded program's own process may."""
    check = (
        "import sys; from trainium_eks.cli.app import app;"
        f"app(['plan', '--json', '-C', {str(project.path)!r}], standalone_mode=False);"
        "sys.stderr.write(' '.join(name for name in ('pulumi', 'pulumi_aws', 'rich') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)
    assert done.stderr == ""


def test_save_writes_to_pipes_and_devices(planned, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        shown = planned("--json", "--save", pipe)
        assert read.result(timeout=60) == shown.stdout
    assert pipe.is_fifo()
    assert planned("--save", "/dev/null").exit_code == shown.exit_code
    assert Path("/dev/null").is_char_device()


def test_save_follows_a_link_and_keeps_the_mode(planned, tmp_path):
    kept, link = tmp_path / "kept.json", tmp_path / "link.json"
    kept.write_text("old")
    kept.chmod(0o640)
    link.symlink_to(kept)
    planned("--save", link)
    assert link.is_symlink()
    assert json.loads(kept.read_text())["stack"] == "dev"
    assert kept.stat().st_mode & 0o777 == 0o640


def test_save_refuses_read_only_files_and_missing_folders(planned, tmp_path):
    assert "Traceback" not in ends(2, planned("--save", tmp_path / "nowhere" / "plan.json"), "cannot write")
    guarded = tmp_path / "guarded.json"
    guarded.write_text("old")
    guarded.chmod(0o400)
    ends(2, planned("--save", guarded), "it is read-only (mode 0400); name another file")
    assert guarded.read_text() == "old"


@pytest.mark.slow
@pytest.mark.parametrize("how", [["--json"], []])
def test_full_disk_is_reported_in_one_sentence(project, how):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    command = [sys.executable, "-m", "trainium_eks.cli", "plan", "-C", str(project.path), *how]
    with open("/dev/full", "w") as full:
        shown = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert shown.returncode == 1
    assert shown.stderr.endswith("cannot write to standard output: No space left on device\n")
