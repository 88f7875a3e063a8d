"""The workflows: what they run exists, and a request cannot take what it should not have."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def read(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


def steps(name):
    return [step for job in read(name)["jobs"].values() for step in job.get("steps", ())]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actions_are_pinned_by_commit_and_keep_no_credentials(file):
    used = [each for each in re.findall(r"uses: (.*)", file.read_text()) if not each.startswith("./.github/workflows/")]
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", each)] == []
    checkouts = [step for step in steps(file.name) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


WRITES = {
    ("comment.yaml", "comment"): {"pull-requests"},
    ("constraints.yaml", "propose"): {"contents", "pull-requests"},
    ("preview.yaml", "preview"): {"id-token"},
    ("release.yaml", "attest"): {"attestations", "id-token"},
    ("release.yaml", "page"): {"contents"},
    ("release.yaml", "publish"): {"id-token"},
}
"""What a job may write, and nothing else."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_rights_are_read_only_except_in_named_jobs(file):
    workflow = read(file.name)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert workflow["concurrency"]["group"]
    for name, job in workflow["jobs"].items():
        writes = {right for right, how in job.get("permissions", {}).items() if how != "read"}
        assert writes == WRITES.get((file.name, name), set())


def test_a_job_of_a_release_that_may_write_runs_no_code_of_the_repository():
    for name in ("release.yaml", "constraints.yaml"):
        for job in (job for key, job in read(name)["jobs"].items() if (name, key) in WRITES):
            ran = " ".join(step.get("run", "") for step in job["steps"])
            assert not re.search(r"\b(make|python3?|pip|\.ci)\b", ran)


def test_calling_workflow_grants_the_called_ones_permissions():
    """GitHub refuses to start a run otherwise, also where the job that asks for more would be skipped."""
    for file in FILES:
        caller = read(file.name)
        for job in caller["jobs"].values():
            if called := job.get("uses", "").removeprefix("./.github/workflows/"):
                granted = job.get("permissions", caller["permissions"])
                assert all(each["permissions"].items() <= granted.items() for each in read(called)["jobs"].values())


def test_workflow_with_write_access_runs_no_code_of_the_request():
    [checkout] = [each for each in steps("comment.yaml") if "checkout" in each.get("uses", "")]
    assert "ref" not in checkout["with"], "the default branch, which workflow_run checks out by itself"
    assert set(read("comment.yaml")[True]) == {"workflow_run"}  # YAML reads `on` as true


def test_no_workflow_runs_a_requests_code_with_write_access():
    assert [file.name for file in FILES if "pull_request_target" in file.read_text()] == []
    assert [step["run"] for file in FILES for step in steps(file.name) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize(
    ("name", "options", "install"),
    [
        ("actionlint", [], "go install github.com/rhysd/actionlint/cmd/actionlint@latest"),
        ("zizmor", ["--offline", "--no-progress"], "pip install zizmor"),
    ],
)
def test_workflow_linter_finds_nothing(name, options, install):
    tool = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip(f"{name} is not on PATH: `{install}` brings it")
    done = subprocess.run([tool, *options, *map(str, FILES)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("failing", "code"), [("", 0), ("local", 1), ("test", 1), ("test-all", 1)])
def test_ci_runs_the_commands_of_the_readme_and_fails_with_any(failing, code, tmp_path):
    ran = tmp_path / "ran"
    make = tmp_path / "make"
    make.write_text(
        f'#!/bin/sh\necho "$1" >> {ran}\necho "=== 3 passed in 1.00s ==="\necho end\n[ "$1" != "{failing}" ]\n'
    )
    make.chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([ROOT / ".ci" / "run"], env=path, check=False, capture_output=True, text=True)
    clouds_end = ["local-down"] * 2
    assert ran.read_text().split() == ["local", "local", "test", *clouds_end, "test-all", *clouds_end]
    assert done.returncode == code
    closing = "=== 3 passed in 1.00s ==="
    assert done.stdout.splitlines()[-4:] == ["make test:", closing, "make test-all:", closing]


def test_ci_runs_the_repositorys_own_script():
    assert [step["run"] for step in steps("ci.yaml") if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
