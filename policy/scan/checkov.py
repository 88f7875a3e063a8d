"""Runs of checkov over environments, without a network, and their reports."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from policy.scan.manifests import Manifests
from policy.scan.terraform import TerraformPlan
from policy.scan.waivers import Finding

VARIABLE = "TRN_CHECKOV"
"""Environment variable with the path of checkov; it wins over ``security/bin`` beside this Python and over PATH."""

VERSION = "3.3.30"
"""Version of checkov in requirements-security.txt: every version has other checks."""

PLAN_FRAMEWORK, MANIFEST_FRAMEWORK = "terraform_plan", "kubernetes"
_SECONDS = 600


class CheckovFailed(Exception):  # noqa: N818 (an event)
    """Failure of checkov to start, to finish, to be the pinned version, or to read every resource."""


@dataclass(frozen=True)
class Environment:
    """The scanned documents of one environment."""

    name: str
    plan: TerraformPlan
    manifests: Manifests


@dataclass(frozen=True)
class Report:
    """Findings and counts of a run of checkov."""

    findings: tuple[Finding, ...]
    passed: Mapping[str, int]
    """Framework to the number of checks that passed."""


def find(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of checkov from :data:`VARIABLE`, beside this Python or on PATH, or None."""
    beside = Path(sys.prefix) / "security" / "bin" / "checkov"
    named = environment.get(VARIABLE) or (str(beside) if beside.is_file() else shutil.which("checkov"))
    return Path(named) if named else None


def scan(program: Path, environments: Sequence[Environment]) -> Report:
    """Run checkov over the environments and return its report.

    Raises:
        CheckovFailed: when checkov cannot be run, or its report is incomplete.
    """
    with tempfile.TemporaryDirectory(prefix="trn-checkov-") as scratch:
        where = Path(scratch) / "scanned"
        for each in environments:
            _write(where / each.name, each)
        reports = {report.get("check_type", ""): report for report in _run(program, where)}
    _hold_complete(reports, environments)
    failed = [check for report in reports.values() for check in report["results"]["failed_checks"]]
    return Report(
        tuple(sorted((_finding(check) for check in failed), key=lambda each: (each.resource, each.check))),
        {name: report["summary"]["passed"] for name, report in reports.items()},
    )


def _write(directory: Path, environment: Environment) -> None:
    directory.mkdir(parents=True)
    (directory / "plan.json").write_text(json.dumps(environment.plan.document, indent=1))
    (directory / "manifests.yaml").write_text(yaml.safe_dump_all(environment.manifests.objects))


def _run(program: Path, where: Path) -> Iterable[Mapping[str, Any]]:
    # HOME is scratch: checkov reads .checkov.yaml from there, and credentials with which it would upload results.
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(where.parent), "LOG_LEVEL": "ERROR"}
    frameworks = ["--framework", PLAN_FRAMEWORK, MANIFEST_FRAMEWORK]
    offline = ["--skip-download", "--skip-results-upload"]
    try:
        done = subprocess.run(
            [program, "--directory", ".", *frameworks, *offline, "--soft-fail", "--quiet", "--compact", "-o", "json"],
            cwd=where,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        # checkov only logs that a check of its own raised, and the resource counts as neither passed nor failed.
        if broken := [line for line in done.stderr.splitlines() if "Failed to run check" in line]:
            raise CheckovFailed("\n".join(broken))
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise CheckovFailed(f"{program}: {error}") from error
    # One framework alone is not in a list.
    return found if isinstance(found, list) else [found]


def _hold_complete(reports: Mapping[str, Mapping[str, Any]], environments: Sequence[Environment]) -> None:
    """Raise when checkov did not read every resource, because a scanner passes a resource that it does not read."""
    for framework in (PLAN_FRAMEWORK, MANIFEST_FRAMEWORK):
        summary = reports.get(framework, {}).get("summary")
        if summary is None or summary["parsing_errors"]:
            raise CheckovFailed(f"checkov could not read what is for {framework}: {summary}")
        if summary["checkov_version"] != VERSION:
            raise CheckovFailed(f"this is checkov {summary['checkov_version']}; the waivers are for {VERSION}")
    given = sum(len(each.plan.resources) for each in environments)
    read = reports[PLAN_FRAMEWORK]["summary"]["resource_count"]
    if read != given:
        raise CheckovFailed(f"checkov read {read} of {given} resources of the plans")


def _finding(check: Mapping[str, Any]) -> Finding:
    environment = Path(check["file_path"]).parts[1]
    called = check.get("resource_address") or check["resource"]
    return Finding(check["check_id"], check["check_name"], f"{environment}/{called}")
