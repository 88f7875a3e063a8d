"""Roles, keys, buckets and image repositories."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainium_eks.cleanup.left_over import FREE, LeftOver, Where, monthly
from trainium_eks.cleanup.marks import Marks, tags_of
from trainium_eks.model import prices

Json = Mapping[str, Any]


def roles(where: Where) -> Iterator[LeftOver]:
    """IAM roles, each with what has to be taken from it first."""
    for each in where.account.pages("iam", "list_roles", "Roles"):
        name = each["RoleName"]
        if not name.startswith(where.marks.prefix):
            continue
        tags = tags_of(where.account.pages("iam", "list_role_tags", "Tags", RoleName=name))
        if why := where.marks.why(name, tags):
            yield LeftOver("role", name, why, FREE, tuple(_role_commands(where, name)), frozenset({name, each["Arn"]}))


def _role_commands(where: Where, role: str) -> Iterator[str]:
    """IAM deletes a role only without policies and instance profiles."""
    ask, named = where.account.pages, ("--role-name", role)
    for policy in ask("iam", "list_attached_role_policies", "AttachedPolicies", RoleName=role):
        yield where.command("iam", "detach-role-policy", *named, "--policy-arn", policy["PolicyArn"])
    for inline in ask("iam", "list_role_policies", "PolicyNames", RoleName=role):
        yield where.command("iam", "delete-role-policy", *named, "--policy-name", inline)
    for profile in ask("iam", "list_instance_profiles_for_role", "InstanceProfiles", RoleName=role):
        its = ("--instance-profile-name", profile["InstanceProfileName"])
        yield where.command("iam", "remove-role-from-instance-profile", *its, *named)
        yield where.command("iam", "delete-instance-profile", *its)
    yield where.command("iam", "delete-role", *named)


def aliases(where: Where) -> Iterator[LeftOver]:
    """Other names of keys."""
    for each in where.account.pages("kms", "list_aliases", "Aliases"):
        name = each["AliasName"]
        if why := where.marks.why(name, {}):
            command = where.command("kms", "delete-alias", "--alias-name", name)
            yield LeftOver("key alias", name, why, FREE, (command,), frozenset({name}))


def tagged(where: Where) -> Iterator[LeftOver]:
    """Keys, buckets and image repositories, by the stack's tags alone: their names do not show whose they are."""
    stack = where.marks.stack
    if not stack:
        return
    filters = [{"Key": "Environment", "Values": [stack]}, {"Key": "ManagedBy", "Values": ["pulumi"]}]
    for each in where.account.pages(
        "resourcegroupstaggingapi",
        "get_resources",
        "ResourceTagMappingList",
        TagFilters=filters,
        ResourceTypeFilters=["kms:key", "s3", "ecr:repository"],
    ):
        arn, tags = each["ResourceARN"], tags_of(each.get("Tags", ()))
        _, _, service, _, _, rest = arn.split(":", 5)
        if service == "kms" and where.marks.why("", tags):
            yield from _key(where, arn, rest.partition("/")[2])
        elif service == "s3" and where.marks.why(rest, tags):
            yield _bucket(where, arn, rest)
        elif service == "ecr" and _is_repository(where.marks, rest.partition("/")[2]):
            yield _repository(where, arn, rest.partition("/")[2])


def _is_repository(marks: Marks, name: str) -> bool:
    """Other programs of the account may tag alike, so the name has to be the one that stacks give."""
    return f"-{marks.stack.lower()}/" in name


def _key(where: Where, arn: str, identity: str) -> Iterator[LeftOver]:
    key = where.account.call("kms", "describe_key", KeyId=identity)["KeyMetadata"]
    if key.get("KeyState") == "PendingDeletion":
        return
    schedule = ("kms", "schedule-key-deletion", "--key-id", identity, "--pending-window-in-days", "30")
    yield LeftOver(
        "KMS key",
        identity,
        f"tagged Environment={where.marks.stack}",
        monthly(prices.KMS_KEY_MONTH),
        (where.command(*schedule),),
        frozenset({identity, arn}),
        note="kept on purpose: backups and objects that it encrypts can never be read without it",
    )


def _bucket(where: Where, arn: str, name: str) -> LeftOver:
    return LeftOver(
        "bucket",
        name,
        f"tagged Environment={where.marks.stack}",
        None,
        (where.command("s3", "rb", f"s3://{name}", "--force"),),
        frozenset({name, arn}),
        note="kept on purpose: it holds the exported files and checkpoints; "
        f"${prices.S3_STANDARD_GIB_MONTH:.3f} a month for each GiB, with old versions, which `rb` leaves: "
        "empty it in the console",
    )


def _repository(where: Where, arn: str, name: str) -> LeftOver:
    return LeftOver(
        "image repository",
        name,
        f"tagged Environment={where.marks.stack}",
        None,
        (where.command("ecr", "delete-repository", "--repository-name", name, "--force"),),
        frozenset({name, arn}),
        note=f"with its images; ${prices.ECR_GIB_MONTH:.2f} a month for each GiB",
    )
