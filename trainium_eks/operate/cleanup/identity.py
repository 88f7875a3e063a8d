"""Roles, keys, buckets and image repositories."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainium_eks.model.catalogue import prices
from trainium_eks.operate.cleanup.left_over import FREE, LeftOver, Where, monthly
from trainium_eks.operate.cleanup.marks import Marks
from trainium_eks.operate.preflight.tags import tags_of

Json = Mapping[str, Any]


def roles(where: Where) -> Iterator[LeftOver]:
    """Yield IAM roles, each with the commands that detach its policies and profiles first."""
    for each in where.account.pages("iam", "list_roles", "Roles"):
        name = each["RoleName"]
        if not name.startswith(where.marks.prefix):
            continue
        tags = tags_of(where.account.pages("iam", "list_role_tags", "Tags", RoleName=name))
        if why := where.marks.why(name, tags):
            yield LeftOver("role", name, why, FREE, tuple(_role_commands(where, name)), frozenset({name, each["Arn"]}))


def _role_commands(where: Where, role: str) -> Iterator[str]:
    """Yield the commands that delete a role: IAM deletes a role only without policies and instance profiles."""
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
    """Yield aliases of KMS keys."""
    for each in where.account.pages("kms", "list_aliases", "Aliases"):
        name = each["AliasName"]
        if why := where.marks.why(name, {}):
            command = where.command("kms", "delete-alias", "--alias-name", name)
            yield LeftOver("key alias", name, why, FREE, (command,), frozenset({name}))


def instance_profiles(where: Where) -> Iterator[LeftOver]:
    """Yield instance profiles, found by their names: IAM lists them without tags."""
    for each in where.account.pages("iam", "list_instance_profiles", "InstanceProfiles"):
        name = each["InstanceProfileName"]
        if why := where.marks.why(name, {}):
            roles = [role["RoleName"] for role in each.get("Roles", ())]
            its = ("--instance-profile-name", name)
            taken = (where.command("iam", "remove-role-from-instance-profile", *its, "--role-name", e) for e in roles)
            commands = (*taken, where.command("iam", "delete-instance-profile", *its))
            # The commands of a role remove its profiles, too.
            goes_with = frozenset(roles)
            yield LeftOver("instance profile", name, why, FREE, commands, frozenset({name}), goes_with=goes_with)


def budgets(where: Where) -> Iterator[LeftOver]:
    """Yield budgets, found by their names: they belong to the account and to no region."""
    account = where.account.caller().account
    for each in where.account.pages("budgets", "describe_budgets", "Budgets", AccountId=account):
        name = each["BudgetName"]
        if why := where.marks.why(name, {}):
            command = where.command("budgets", "delete-budget", "--account-id", account, "--budget-name", name)
            yield LeftOver("budget", name, why, FREE, (command,), frozenset({name, f"{account}:{name}"}))


LISTED_ELSEWHERE = ("autoscaling", "budgets", "ec2", "eks", "elasticloadbalancing", "fsx", "iam", "logs")
"""Services searched through their own lists: for hours the tagging API names resources that these services have
deleted."""


def tagged(where: Where) -> Iterator[LeftOver]:
    """Yield all other resources with the stack's tags, of any service: keys, buckets, image repositories, queues, event
    rules, workspaces, and resources of services that have no search here."""
    stack = where.marks.stack
    if not stack:
        return
    filters = [{"Key": "Environment", "Values": [stack]}, {"Key": "ManagedBy", "Values": ["pulumi"]}]
    for each in where.account.pages(
        "resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", TagFilters=filters
    ):
        arn, tags = each["ResourceARN"], tags_of(each.get("Tags", ()))
        _, _, service, _, _, rest = arn.split(":", 5)
        name = rest.rpartition("/")[2]
        if service in LISTED_ELSEWHERE:
            continue
        if service == "ecr":
            # Other programs of the account may have the same tags, so the name decides.
            repository = rest.partition("/")[2]
            if _is_repository(where.marks, repository):
                yield _repository(where, arn, repository)
        elif not where.marks.why(name, tags):
            continue
        elif service == "kms":
            yield from _key(where, arn, name)
        elif service == "s3":
            yield _bucket(where, arn, rest)
        else:
            yield _any(where, service, arn, rest, tags)


def _any(where: Where, service: str, arn: str, rest: str, tags: Mapping[str, str]) -> LeftOver:
    """Return a leftover of a service that has no search here."""
    name, kind, note, price = rest.rpartition("/")[2], f"{service} {rest.partition('/')[0]}", "", None
    commands: tuple[str, ...] = ()
    if service == "sqs":
        kind, price = "queue", FREE
        url = where.account.call("sqs", "get_queue_url", QueueName=name)["QueueUrl"]
        commands = (where.command("sqs", "delete-queue", "--queue-url", url),)
    elif service == "events":
        kind, price = "event rule", FREE
        targets = where.account.pages("events", "list_targets_by_rule", "Targets", Rule=name)
        ids = [each["Id"] for each in targets]
        removed = (where.command("events", "remove-targets", "--rule", name, "--ids", *ids),) if ids else ()
        commands = (*removed, where.command("events", "delete-rule", "--name", name))
    elif service in WORKSPACES:
        kind, command, note = WORKSPACES[service]
        commands = (where.command(command, "delete-workspace", "--workspace-id", name),)
    else:
        note = f"no command is known here: {arn}"
    shown = f"{name} ({tags['Name']})" if tags.get("Name", name) != name else name
    why = where.marks.why(name, tags)
    return LeftOver(kind, shown, why, price, commands, frozenset({name, arn, rest}), note=note)


WORKSPACES: Mapping[str, tuple[str, str, str]] = {
    "aps": ("metrics workspace", "amp", "billed by sample; its metrics are lost with it"),
    "grafana": ("Grafana workspace", "grafana", "billed by user; dashboards that people made there are lost with it"),
}
"""Workspace service to its kind, its command of the AWS CLI, and a note about deleting the workspace."""


def _is_repository(marks: Marks, name: str) -> bool:
    """Return whether a repository has the name that a stack gives: other programs of the account may use the same
    tags."""
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
