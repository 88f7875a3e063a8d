"""Pull requests on the three environments, and the comments that they get.

Each case is a real edit of a stack's config, recorded before and after. ``make golden`` rewrites
``tests/unit/operate/review/golden`` and names the comments that changed. Read the difference as its reviewers would,
then commit it.
"""

import copy
import json
import os
import runpy
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import dotted
import yaml

from trainium_eks.model.finding import Finding, Status, failed, passed
from trainium_eks.operate.review import comment, review
from trainium_eks.operate.review.comment import PLATFORMS
from trainium_eks.operate.review.review import Outcome, Review
from trainium_eks.operate.review.scrubbing import scrubber
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.program import record_program

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "unit" / "operate" / "review" / "golden"
TODAY = "1795219200"  # as tests/conftest.py: rules ask whether a version is in support

Edit = Mapping[str, Any]
"""``key: value``, ``key+: entry`` of a list, ``key: unset``."""

SAFE, REVIEW, BLOCKED = Outcome.SAFE, Outcome.REVIEW, Outcome.BLOCKED


@dataclass(frozen=True)
class Case:
    name: str
    stack: str
    edit: Edit
    outcome: Outcome
    base: Edit | None = None
    """What the base branch has, where it is not the repository's."""
    new: bool = False
    """Whether the base branch does not have the stack at all."""
    checks: tuple[Finding, ...] | None = None
    platform: str = "github"


def edited(config, edit):
    config = copy.deepcopy(config)
    for path, value in copy.deepcopy(edit).items():
        if path.endswith("+"):
            dotted.put(config, path[:-1], lambda old, value=value: [*(old or ()), value])
        else:
            dotted.put(config, path, dotted.DROP if value == "unset" else value)
    return config


_ADMINISTRATORS = [f"arn:aws:iam::111122223333:role/{name}" for name in ("ml-platform-oncall", "contractor")]
_SIZE, _TYPE = "fileSystem.storageCapacityGib", "nodeGroups.0.instanceType"
_CHECKS = (
    failed("quotas/vcpus", "vCPUs of Trn instances", "256 granted, 512 wanted", "ask for 512 of L-2C3B7624"),
    passed("offers/zone", "trn1.32xlarge in usw2-az4", "offered"),
    Finding(Status.NOT_CHECKED, "Capacity Block", "not checked: AccessDenied", "allow ec2:Describe*", "capacity/block"),
)

CASES = (
    Case("nothing", "dev", {}, SAFE),
    Case("queue-removed", "dev", {}, REVIEW, base={"queues+": {"name": "batch"}}),
    Case("size-none", "dev", {"nodeGroups.0.desiredSize": 0}, BLOCKED),
    Case("instance-type", "dev", {_TYPE: "trn1n.32xlarge"}, BLOCKED),
    Case("instance-type-without-price", "dev", {_TYPE: "trn2.48xlarge"}, BLOCKED),
    Case("group-renamed", "dev", {"nodeGroups.0.name": "trainium"}, BLOCKED),
    Case("capacity-other-reservation", "gpu", {"nodeGroups.0.capacity.id": "cr-0aaaaaaaaaaaaaaa1"}, REVIEW),
    Case("file-system-shrinks", "dev", {}, BLOCKED, base={_SIZE: 2400}),
    Case("environment-new", "dev", {}, REVIEW, new=True),
    Case("endpoint-opened", "dev", {}, REVIEW, base={"cluster.endpoint.publicAccessCidrs": ["203.0.113.0/24"]}),
    Case("kubernetes-minor", "dev", {"cluster.kubernetesVersion": "1.36"}, REVIEW),
    Case("team-removed", "prod", {"namespaces.2": "unset", "queues.2": "unset"}, BLOCKED),
    Case("administrator-added", "prod", {"cluster.adminPrincipals": _ADMINISTRATORS}, REVIEW),
    Case("waiver-stale", "dev", {"waivers.R46": {"reason": "No bucket.", "expires": "2027-06-30"}}, BLOCKED),
    Case("preflight", "dev", {"queues+": {"name": "batch"}}, BLOCKED, checks=_CHECKS),
    Case("instance-type-on-bitbucket", "dev", {_TYPE: "trn1n.32xlarge"}, BLOCKED, platform="bitbucket"),
)


def config_of(stack):
    content = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())
    return {key.removeprefix("trainium-eks:"): value for key, value in content["config"].items()}


def planned(stack, config):
    """The program with a config, in this process and without a project's files."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    program = partial(runpy.run_path, str(ROOT / "__main__.py"), run_name="__main__")
    # Pulumi's SDK notes the whole stack for each resource: a thread begins a new one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(record_program, program, project="trainium-eks", stack=stack, config=texts).result()


@cache
def _unedited(stack):
    return planned(stack, config_of(stack))


def reviewed(case):
    def side(edit):
        return planned(case.stack, edited(config_of(case.stack), edit)) if edit else _unedited(case.stack)

    before, after = side(case.base), side(case.edit)
    if case.new:
        before = Graph(after.project, after.stack, (), {})
    commit = "89abcdef0123456789abcdef0123456789abcdef"
    told = {"checks": case.checks, "commit": commit, "versions": {"trn": "0.1.0"}}
    compared = review.of_plans(before, after)
    judged = Review("trainium-eks", case.stack, "offline", "main (0123abcd)", comparison=compared, **told)
    run = "https://example.com/runs/1"
    return judged, comment.render(judged, PLATFORMS[case.platform], scrubber([before, after]), run)


def main():
    """Rewrites the golden comments and says which changed."""
    os.environ["SOURCE_DATE_EPOCH"] = TODAY
    for file in FOLDER.glob("*.md"):
        if file.stem not in {case.name for case in CASES}:
            file.unlink()
    for case in CASES:
        (judged, written), file = reviewed(case), FOLDER / f"{case.name}.md"
        state = "same" if file.exists() and file.read_text() == written else "CHANGED"
        file.write_text(written)
        right = "" if judged.outcome is case.outcome else f"  not {case.outcome}!"
        sys.stdout.write(f"{case.name}: {judged.outcome}{right} {state}\n")


if __name__ == "__main__":
    main()
