"""docs/deploy-role-policy.json: the role that deploys can do what the environments need, and no more services."""

import json
from collections.abc import Iterator

from golden import ENVIRONMENTS, FOLDER, ROOT

POLICY = json.loads((ROOT / "docs" / "deploy-role-policy.json").read_text())
SERVICE_OF_MODULE = {"vpc": "ec2", "cloudwatch": "logs"}


def _services() -> set[str]:
    return {action.split(":")[0] for statement in POLICY["Statement"] for action in statement["Action"]}


def _planned() -> Iterator[tuple[str, str]]:
    """Type and name of every resource of the accepted plans, which `test_environments` compares with the program."""
    for stack in ENVIRONMENTS:
        for urn in json.loads((FOLDER / f"{stack}.json").read_text()):
            _, _, types, name = urn.split("::", 3)
            yield types.rpartition("$")[2], name


def test_every_service_of_a_plan_is_in_the_policy_and_no_other() -> None:
    modules = {type_.split(":")[1].split("/")[0] for type_, _ in _planned() if type_.startswith("aws:")}
    assert {SERVICE_OF_MODULE.get(module, module) for module in modules} | {"sts"} == _services()


def test_roles_can_be_passed_and_changed_only_under_the_stack_prefix() -> None:
    for statement in POLICY["Statement"]:
        if "iam:PassRole" in statement["Action"]:
            assert all("/trn-" in resource for resource in statement["Resource"])


def test_names_of_roles_and_buckets_carry_the_prefix_of_the_policy() -> None:
    named = [name for type_, name in _planned() if type_ in ("aws:iam/role:Role", "aws:s3/bucket:Bucket")]
    assert named
    assert all(name.startswith("trn-") for name in named)
