"""docs/deploy-role-policy.json: the role that deploys can do what the environments need, and no more services."""

import json
from collections.abc import Callable
from pathlib import Path

from trainium_eks.graph.graph import Graph

POLICY = json.loads((Path(__file__).resolve().parents[3] / "docs" / "deploy-role-policy.json").read_text())
SERVICE_OF_MODULE = {"vpc": "ec2", "cloudwatch": "logs"}


def _services() -> set[str]:
    return {action.split(":")[0] for statement in POLICY["Statement"] for action in statement["Action"]}


def test_every_service_of_a_plan_is_in_the_policy_and_no_other(environment: Callable[..., Graph]) -> None:
    used = set()
    for stack in ("dev", "prod", "gpu"):
        for resource in environment(stack).resources:
            if resource.type.startswith("aws:"):
                module = resource.type.split(":")[1].split("/")[0]
                used.add(SERVICE_OF_MODULE.get(module, module))
    assert used | {"sts"} == _services()


def test_roles_can_be_passed_and_changed_only_under_the_stack_prefix() -> None:
    for statement in POLICY["Statement"]:
        if "iam:PassRole" in statement["Action"]:
            assert all("/trn-" in resource for resource in statement["Resource"])


def test_names_of_roles_and_buckets_carry_the_prefix_of_the_policy(environment: Callable[..., Graph]) -> None:
    for stack in ("dev", "prod", "gpu"):
        for resource in environment(stack).of_type("aws:iam/role:Role", "aws:s3/bucket:Bucket"):
            assert resource.name.startswith("trn-"), resource.urn
