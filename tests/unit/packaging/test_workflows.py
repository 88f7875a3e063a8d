"""The workflows: what they run exists, and a request cannot take what it should not have."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def steps(file: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(file.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actions_are_pinned_by_commit_and_keep_no_credentials(file: Path) -> None:
    used = re.findall(r"uses: (.*)", file.read_text())
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", each)] == []
    checkouts = [step for step in steps(file) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_rights_are_read_only_and_older_runs_end(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]


@pytest.mark.parametrize(("code", "said"), [(0, "all is well"), (1, "1 problem, nothing was planned")])
def test_the_summary_holds_what_the_plan_says_also_when_it_fails(tmp_path: Path, code: int, said: str) -> None:
    [script] = [step["run"] for step in steps(ROOT / ".github/workflows/plan.yaml") if "run" in step]
    (tmp_path / "trn").write_text(f'#!/bin/sh\necho "$@" > called\necho "{said}" >&2\nexit {code}\n')
    (tmp_path / "trn").chmod(0o755)
    summary = tmp_path / "summary"
    environment = {**os.environ, "STACK": "dev", "FAIL_ON": "replace,delete", "GITHUB_STEP_SUMMARY": str(summary)}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=False, capture_output=True)
    assert done.returncode == code
    assert summary.read_text() == f"### dev\n```\n{said}\n```\n"
    wanted = "plan --stack dev --against HEAD^1 --fail-on replace,delete --no-color"
    assert (tmp_path / "called").read_text().strip() == wanted
