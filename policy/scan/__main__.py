"""``python -m policy.scan [STACK ...]``: checkov over environments' plans and objects (docs/policy.md)."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from policy.scan import checkov, waivers
from policy.scan.manifests import CannotRender, find_helm, manifests
from policy.scan.terraform import Unmapped, plan
from trainium_eks.plan.recording.process import InvalidConfig, ProgramFailed, ProgramTimedOut, ProjectError, record

ENVIRONMENTS = ("dev", "prod", "gpu")
"""Environments of this repository, which the waivers name."""

WAIVERS = Path("policy") / "checkov-waivers.yaml"

_NO_CHECKOV = f"""\
checkov {checkov.VERSION} is not here. `make security` installs it into .venv/security (290 MB, once) and needs PyPI or
a mirror of it (PIP_INDEX_URL); or name a program of your own in {checkov.VARIABLE}."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings without a waiver and the stale waivers; exit 1 with either, 2 when no scan was possible."""
    parser = argparse.ArgumentParser(prog="python -m policy.scan", description=main.__doc__)
    parser.add_argument("stacks", nargs="*", default=list(ENVIRONMENTS), help="default: %(default)s")
    stacks = parser.parse_args(arguments).stacks
    program = checkov.find()
    if program is None:
        sys.stderr.write(f"{_NO_CHECKOV}\n")
        return 2
    project = Path.cwd()
    try:
        accepted = waivers.read(project / WAIVERS)
        environments = scanned(project, stacks)
        report = checkov.scan(program, environments)
    except (ProjectError, InvalidConfig, ProgramFailed, ProgramTimedOut) as error:
        sys.stderr.write(f"{error}\n`trn plan` says more.\n")
        return 2
    except (checkov.CheckovFailed, waivers.BadWaivers, Unmapped, CannotRender) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    complete = all_seen(environments)
    judgement = waivers.judge(report.findings, accepted, everything_seen=complete)
    lines = [*_scanned_lines(environments), *_lines(report, judgement)]
    if not complete:
        lines.append("Stale waivers were not looked for: not everything was scanned.")
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(judgement.standing or judgement.stale))


def scanned(project: Path, stacks: Sequence[str]) -> list[checkov.Environment]:
    """Record the stacks and return them as checkov reads them."""
    helm = find_helm()
    graphs = [(stack, record(project, stack)) for stack in stacks]
    return [checkov.Environment(stack, plan(graph), manifests(graph, project, helm)) for stack, graph in graphs]


def all_seen(environments: Sequence[checkov.Environment]) -> bool:
    """Return whether every resource that a waiver may name was scanned: each environment, and the project's charts."""
    return {each.name for each in environments} == set(ENVIRONMENTS) and not any(
        "helm" in why for each in environments for why in each.manifests.left_out.values()
    )


def _scanned_lines(environments: Sequence[checkov.Environment]) -> list[str]:
    lines = []
    for each in environments:
        found = each.manifests
        charts = f", {len(found.charts)} of them charts of ours: {', '.join(found.charts)}" if found.charts else ""
        lines.append(f"{each.name}: {len(each.plan.resources)} AWS resources, {len(found.objects)} objects{charts}")
        lines += [f"  without {release}: {why}" for release, why in found.left_out.items()]
    return lines


def _lines(report: checkov.Report, judgement: waivers.Judgement) -> list[str]:
    passed = ", ".join(f"{count} of {name}" for name, count in sorted(report.passed.items()))
    lines = [f"checkov {checkov.VERSION}: passed {passed}; {len(judgement.waived)} waived in {WAIVERS}"]
    lines += [f"FAIL {each.resource}: {each.check} {each.title}" for each in judgement.standing]
    lines += [f"STALE {each}" for each in judgement.stale]
    if judgement.standing:
        lines.append(f"Mend what fails, or add it to {WAIVERS} with the reason.")
    return lines


if __name__ == "__main__":
    sys.exit(main())
