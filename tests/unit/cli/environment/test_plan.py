"""`trn plan` on real small programs: what it records, what it says when that fails, and its exit codes."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_project import Project, Run

from trainium_eks.plan import rules
from trainium_eks.plan.graph import SCHEMA_VERSION, Graph

ROOT = Path(__file__).resolve().parents[4]

REFUSING = """\
from trainium_eks.model.validation.problems import Problem


class Refused(Exception):
    problems = (Problem("node_groups[0].max_size", "0 is too small", "pulumi config set --path 'x' 1"),)


raise Refused
"""


def _plan(trn: Run, project: Project, *arguments: object) -> tuple[int, str, str]:
    result = trn("plan", "--directory", project.path, *arguments)
    return result.exit_code, result.stdout, re.sub(r"\AStack .*\n", "", result.stderr)


def test_json_is_the_whole_plan_and_nothing_else(trn: Run, project: Project) -> None:
    code, out, _ = _plan(trn, project, "--json")
    data = json.loads(out)
    assert {"schemaVersion", "stack", "resources", "outputs", "simulated", "cost", "timeToReady", "rules"} <= set(data)
    assert data["schemaVersion"] == SCHEMA_VERSION
    assert [resource["name"] for resource in data["resources"] if resource["type"] == "aws:kms/key:Key"] == [
        "store-key"
    ]
    assert set(data["resources"][0]) >= {"urn", "type", "name", "parent", "inputs", "dependencies", "options"}
    assert data["cost"]["hourlyUsd"] == pytest.approx(1 / 730, abs=0.0001)
    assert set(data["timeToReady"]) >= {"seconds", "lowerBoundSeconds", "criticalPath"}
    assert all({"id", "status"} <= set(rule) for rule in data["rules"])
    assert code == int(any(rule["status"] == "fail" for rule in data["rules"]))


def test_two_plans_are_byte_identical(trn: Run, project: Project) -> None:
    assert _plan(trn, project, "--json") == _plan(trn, project, "--json")


def test_invalid_config_is_the_list_alone_as_the_config_file_spells_it(trn: Run, project: Project) -> None:
    project.write("__main__.py", REFUSING)
    code, out, err = _plan(trn, project)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "Pulumi.dev.yaml: 1 problem, nothing was planned",
        "- nodeGroups[0].maxSize: 0 is too small",
        "    fix: pulumi config set --path 'x' 1",
    ]
    code, out, _ = _plan(trn, project, "--json")
    [problem] = json.loads(out)["problems"]
    assert (code, problem["path"], problem["reason"]) == (1, "nodeGroups[0].maxSize", "0 is too small")


def test_a_failing_program_shows_its_own_traceback(trn: Run, project: Project) -> None:
    project.write("__main__.py", "def build():\n    return {}['nothing']\n\n\nbuild()\n")
    code, out, err = _plan(trn, project)
    assert (code, out) == (1, "")
    assert "KeyError: 'nothing'" in err
    assert "in build" in err
    assert "trainium_eks/cli" not in err
    code, out, _ = _plan(trn, project, "--json")
    assert code == 1
    assert "KeyError" in json.loads(out)["problems"][0]["reason"]


def test_a_stack_or_a_project_that_is_not_there_is_wrong_usage(
    trn: Run, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = _plan(trn, project, "--stack", "dve")
    assert (code, "'dve'" in err, "did you mean 'dev'" in err) == (2, True, True)
    code, out, _ = _plan(trn, project, "--stack", "dve", "--json")
    assert (code, "did you mean 'dev'" in json.loads(out)["problems"][0]["reason"]) == (2, True)
    for place, said in ((tmp_path, "no Pulumi.yaml"), (tmp_path / "nowhere", "is not a directory")):
        result = trn("plan", "--directory", place)
        assert (result.exit_code, said in result.stderr) == (2, True)
    (project.path / "docs").mkdir()
    monkeypatch.chdir(project.path / "docs")
    assert json.loads(trn("plan", "--json").stdout)["stack"] == "dev", "found from a directory inside it"


def test_a_saved_plan_is_what_json_prints_and_compares_equal(trn: Run, project: Project, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    _, out, _ = _plan(trn, project, "--json", "--save", saved)
    assert saved.read_text() == out
    assert Graph.from_json(json.loads(out)).stack == "dev"
    _, out, _ = _plan(trn, project, "--json", "--against", saved)
    assert json.loads(out)["against"]["items"] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "has no resources"),
        ('{"schemaVersion": 99, "resources": []}', "schema version 99"),
        ('{"schemaVersion": 1, "resources": [{}]}', "not a whole plan"),
        ('{"schemaVersion": 1, "project": "small", "stack": "prod", "resources": [], "outputs": {}}', "not of dev"),
    ],
)
def test_a_file_that_is_no_plan_is_wrong_usage(
    trn: Run, project: Project, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "plan.json").write_text(text)
    code, _, err = _plan(trn, project, "--against", tmp_path / "plan.json")
    assert code == 2
    assert said in err


@pytest.mark.parametrize("text", ["nowhere", "--output=x"])
def test_neither_file_nor_commit_is_wrong_usage(trn: Run, project: Project, text: str) -> None:
    for repository in (False, True):
        if repository:
            project.git("init", "-q")
            project.commit()
        code, _, err = _plan(trn, project, f"--against={text}")
        assert (code, err.startswith(f"--against {text}: neither a file nor a commit")) == (2, True)


def test_a_commit_is_recorded_with_its_own_code(trn: Run, project: Project) -> None:
    project.write("naming.py", "NAME = 'old'\n")
    project.write("__main__.py", PROGRAM_WITH_MODULE)
    project.git("init", "-q")
    project.commit()
    project.write("naming.py", "NAME = 'new'\n")
    _, out, _ = _plan(trn, project, "--json", "--against", "HEAD")
    against = json.loads(out)["against"]
    assert against["since"].startswith("HEAD (")
    assert {(item["kind"], item["name"]) for item in against["items"]} == {("delete", "old"), ("create", "new")}


def test_a_project_in_a_folder_of_its_repository_is_recorded(trn: Run, project: Project) -> None:
    top = Project(project.path.parent)
    top.git("init", "-q")
    top.commit()
    project.write("Pulumi.dev.yaml", "config:\n  small:purpose: other\n")
    _, out, _ = _plan(trn, project, "--json", "--against", "HEAD")
    [item] = json.loads(out)["against"]["items"]
    [path] = item["paths"]
    assert (path["path"], path["before"], path["after"]) == ("description", "tests", "other")


def test_a_stack_that_is_new_since_the_commit_is_created_whole(trn: Run, project: Project) -> None:
    project.git("init", "-q")
    project.commit()
    project.write("Pulumi.next.yaml", "config: {}\n")
    code, out, _ = _plan(trn, project, "--json", "--stack", "next", "--against", "HEAD")
    plan = json.loads(out)
    assert [(item["kind"], item["name"]) for item in plan["against"]["items"]] == [("create", "store-key")]
    assert plan["against"]["hourlyUsd"] == plan["cost"]["hourlyUsd"]
    assert _plan(trn, project, "--stack", "next", "--against", "HEAD")[0] == code


def test_a_project_that_is_new_since_the_commit_is_created_whole(trn: Run, project: Project) -> None:
    top = Project(project.path.parent)
    top.write("README.md", "Nothing here yet.\n")
    top.git("init", "-q")
    top.git("add", "README.md")
    top.git("commit", "-qm", "x")
    _, out, _ = _plan(trn, project, "--json", "--against", "HEAD")
    assert [item["kind"] for item in json.loads(out)["against"]["items"]] == ["create"]


def test_a_commit_whose_project_cannot_be_read_is_not_taken_for_an_empty_one(trn: Run, project: Project) -> None:
    whole = (project.path / "Pulumi.yaml").read_text()
    project.write("Pulumi.yaml", "name: [\n")
    project.git("init", "-q")
    project.commit()
    project.write("Pulumi.yaml", whole)
    code, _, err = _plan(trn, project, "--against", "HEAD")
    assert code == 2
    assert "as of HEAD (" in err
    assert "not valid YAML" in err
    assert "trn-plan-" not in err


ARGUMENTS_REFUSED = """\
from components import Network

Network("net", {"cidr_block": "10.0.0.0/12", "region": "us-west-2"})
"""


def test_a_components_arguments_are_told_as_the_program_writes_them(trn: Run, project: Project) -> None:
    project.write("__main__.py", ARGUMENTS_REFUSED)
    code, _, err = _plan(trn, project)
    assert code == 1
    assert err.splitlines()[0].startswith("Network net: ")
    assert "set cidr_block to 10.0.0.0/16" in err
    assert "pulumi config set" not in err
    assert "Pulumi.dev.yaml" not in err
    _, out, _ = _plan(trn, project, "--json")
    assert json.loads(out)["problems"][0]["path"] == "cidr_block"


def test_a_broken_rule_is_waived_in_the_projects_own_config(trn: Run, project: Project) -> None:
    project.write("__main__.py", "import pulumi_aws as aws\n\naws.kms.Key('key', enable_key_rotation=False)\n")
    _, out, _ = _plan(trn, project)
    assert "pulumi config set --path waivers.R" in " ".join(out.split())


def test_an_environment_of_values_is_warned_of(trn: Run, project: Project) -> None:
    project.write("Pulumi.dev.yaml", "environment: [shared/base]\nconfig: {}\n")
    _, out, err = _plan(trn, project, "--json")
    assert json.loads(out)["stack"] == "dev"
    assert err.startswith("warning: Pulumi.dev.yaml: 'environment'")


def test_a_commit_whose_program_fails_is_said_so(trn: Run, project: Project) -> None:
    project.write("__main__.py", "1 / 0\n")
    project.git("init", "-q")
    project.commit()
    project.write("__main__.py", "")
    code, _, err = _plan(trn, project, "--against", "HEAD")
    assert code == 1
    assert err.startswith("as of HEAD (")
    assert "ZeroDivisionError" in err


def test_version(trn: Run) -> None:
    from trainium_eks import __version__

    assert trn("--version").stdout == f"trn {__version__}\n"


def test_the_command_never_imports_the_providers_sdk(project: Project) -> None:
    """Importing pulumi_aws takes longer than all else; only the recorded program's own process may."""
    check = (
        "import sys; from trainium_eks.cli.app import app;"
        f"app(['plan', '--json', '-C', {str(project.path)!r}], standalone_mode=False);"
        "sys.stderr.write(' '.join(name for name in ('pulumi', 'pulumi_aws', 'rich') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)
    assert done.stderr == ""


PROGRAM_WITH_MODULE = """\
import pulumi_aws as aws
from naming import NAME

aws.kms.Key(NAME)
"""


def test_fail_on_names_the_kinds_of_change_that_fail(
    trn: Run, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "judge", lambda _graph: ())
    project.git("init", "-q")
    project.commit()
    project.write("__main__.py", (project.path / "__main__.py").read_text().replace("-key", "-other"))
    call = ("plan", "-C", str(project.path), "--against", "HEAD")
    assert trn(*call).exit_code == 1, "the key is lost"
    assert trn(*call, "--accept-losses", "--fail-on", "replace").exit_code == 0
    shown = trn(*call, "--accept-losses", "--fail-on", "replace,delete")
    assert shown.exit_code == 1
    assert "--fail-on: 1 delete\n" in shown.stderr


def test_fail_on_is_refused_where_it_says_nothing(trn: Run, project: Project) -> None:
    alone = trn("plan", "-C", str(project.path), "--fail-on", "delete")
    assert (alone.exit_code, "--fail-on needs --against" in alone.stderr) == (2, True)
    wrong = trn("plan", "-C", str(project.path), "--against", "HEAD", "--fail-on", "vanish")
    assert (wrong.exit_code, "'vanish' is none of create, delete, replace, update" in wrong.stderr) == (2, True)


def test_save_writes_through_what_is_no_regular_file(trn: Run, project: Project, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        shown = trn("plan", "-C", str(project.path), "--json", "--save", str(pipe))
        assert read.result(timeout=60) == shown.stdout
    assert pipe.is_fifo()
    assert trn("plan", "-C", str(project.path), "--save", "/dev/null").exit_code == shown.exit_code
    assert Path("/dev/null").is_char_device()


def test_save_follows_a_link_and_keeps_the_mode(trn: Run, project: Project, tmp_path: Path) -> None:
    kept, link = tmp_path / "kept.json", tmp_path / "link.json"
    kept.write_text("old")
    kept.chmod(0o640)
    link.symlink_to(kept)
    trn("plan", "-C", str(project.path), "--save", str(link))
    assert link.is_symlink()
    assert json.loads(kept.read_text())["stack"] == "dev"
    assert kept.stat().st_mode & 0o777 == 0o640


def test_save_refuses_a_read_only_file_and_a_folder_that_is_not_there(
    trn: Run, project: Project, tmp_path: Path
) -> None:
    code, _, err = _plan(trn, project, "--save", tmp_path / "nowhere" / "plan.json")
    assert (code, "cannot write" in err, "Traceback" in err) == (2, True, False)
    guarded = tmp_path / "guarded.json"
    guarded.write_text("old")
    guarded.chmod(0o400)
    shown = trn("plan", "-C", str(project.path), "--save", str(guarded))
    assert shown.exit_code == 2
    assert "it is read-only (mode 0400); name another file" in shown.stderr
    assert guarded.read_text() == "old"


@pytest.mark.slow
@pytest.mark.parametrize("how", [["--json"], []])
def test_a_full_disk_is_one_sentence(project: Project, how: list[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    command = [sys.executable, "-m", "trainium_eks.cli", "plan", "-C", str(project.path), *how]
    with open("/dev/full", "w") as full:
        shown = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert shown.returncode == 1
    assert shown.stderr.endswith("cannot write to standard output: No space left on device\n")
