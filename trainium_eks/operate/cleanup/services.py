"""Searches of kinds that need more than a list: load balancers, file systems, log groups, IAM, budgets, and all other
resources by their tags.

By tags alone (``GetResources``) are found resources of services without an own search: keys, buckets, image
repositories, queues, rules of events, workspaces. That API names no IAM role, no Auto Scaling group and nothing without
a tag (Resource Groups Tagging API, supported services), and names deleted resources for hours; so services of which a
stack has these are asked for their own lists.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainium_eks.aws.account import RequestError
from trainium_eks.aws.tags import cluster_of, tags_of
from trainium_eks.model.catalogue import prices
from trainium_eks.model.sizing import bill
from trainium_eks.operate.cleanup.kinds import GIB
from trainium_eks.operate.cleanup.left_over import FREE, LeftOver, Where, monthly

Json = Mapping[str, Any]

TAGS_AT_ONCE = 20
"""Load balancers in one call that describes tags."""


def load_balancers(where: Where) -> Iterator[LeftOver]:
    """Yield load balancers that Kubernetes made for Services and Ingresses: they, and their interfaces, hold up a VPC's
    deletion."""
    yield from _balancers(
        where, "elbv2", "LoadBalancers", "LoadBalancerArn", ("ResourceArns", "ResourceArn"), "--load-balancer-arn"
    )
    by_name = ("LoadBalancerNames", "LoadBalancerName")
    yield from _balancers(where, "elb", "LoadBalancerDescriptions", "LoadBalancerName", by_name, "--load-balancer-name")


def _balancers(
    where: Where, service: str, key: str, id_: str, asked_by: tuple[str, str], option: str
) -> Iterator[LeftOver]:
    """Yield load balancers of one generation; their tags are asked for apart from their list."""
    hourly = prices.LOAD_BALANCER_HOURLY if service == "elbv2" else prices.CLASSIC_LOAD_BALANCER_HOURLY
    found = where.account.pages(service, "describe_load_balancers", key)
    tags: dict[str, dict[str, str]] = {}
    for start in range(0, len(found), TAGS_AT_ONCE):
        some: dict[str, Any] = {asked_by[0]: [each[id_] for each in found[start : start + TAGS_AT_ONCE]]}
        answer = where.account.call(service, "describe_tags", **some)
        tags |= {each[asked_by[1]]: tags_of(each["Tags"]) for each in answer["TagDescriptions"]}
    for each in found:
        own = tags.get(each[id_], {})
        if why := where.marks.why("", own, each.get("VpcId") or each.get("VPCId", "")):
            made_for = own.get("kubernetes.io/service-name") or own.get("service.k8s.aws/stack", "")
            yield LeftOver(
                "load balancer",
                each["LoadBalancerName"],
                why,
                hourly,
                (where.command(service, "delete-load-balancer", option, each[id_]),),
                (each["LoadBalancerName"], each[id_]),
                owners=(cluster_of(own),),
                note=f"made for {made_for}" if made_for else "",
            )


def file_systems(where: Where) -> Iterator[LeftOver]:
    """Yield FSx file systems, of the stack and of claims."""
    for each in where.account.pages("fsx", "describe_file_systems", "FileSystems"):
        tags, identity = tags_of(each.get("Tags", ())), each["FileSystemId"]
        why = where.marks.why("", tags, each.get("VpcId", ""))
        if not why or each.get("Lifecycle") == "DELETING":
            continue
        lustre = each.get("LustreConfiguration") or {}
        # FSx takes no backup of a file system that is linked to S3 (DeleteFileSystem).
        linked = lustre.get("DataRepositoryConfiguration") or where.account.pages(
            "fsx", "describe_data_repository_associations", "Associations",
            Filters=[{"Name": "file-system-id", "Values": [identity]}],
        )  # fmt: skip
        kept = str(lustre.get("DeploymentType", "")).startswith("PERSISTENT") and not linked
        fate = "the command takes a last backup" if kept else "they are lost with it"
        if linked:
            fate = "what was not exported to its S3 bucket is lost with it"
        last = ("--lustre-configuration", "SkipFinalBackup=false") if kept else ()
        yield LeftOver(
            "file system",
            identity,
            why,
            _lustre_hourly(each, lustre),
            (where.command("fsx", "delete-file-system", "--file-system-id", identity, *last),),
            (identity,),
            owners=(cluster_of(tags),),
            note=f"{each.get('StorageCapacity', '?')} GiB of files; {fate}",
        )


def _lustre_hourly(file_system: Json, lustre: Json) -> float | None:
    if file_system.get("FileSystemType") != "LUSTRE":
        return None
    metadata = lustre.get("MetadataConfiguration") or {}
    lines = bill.file_system(
        int(file_system.get("StorageCapacity", 0)),
        str(lustre.get("DeploymentType", "")),
        int(lustre.get("PerUnitStorageThroughput", 0)),
        int(metadata.get("Iops", 0)) if metadata.get("Mode") == "USER_PROVISIONED" else None,
    )
    return None if any(line.hourly_usd is None for line in lines) else sum(line.hourly_usd or 0.0 for line in lines)


EKS_LOGS = "EKS recreated it for the last lines of its deleted cluster (terraform-aws-eks#2446)"


def log_groups(where: Where) -> Iterator[LeftOver]:
    """Yield CloudWatch log groups. EKS recreates a deleted cluster's group for its last lines, without tags."""
    folders = ("", "/aws/eks/", "/aws/fsx/", "/aws/containerinsights/", "/trainium-eks/")
    for start in folders:
        prefix = f"{start}{where.marks.prefix}"
        for each in where.account.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=prefix):
            name, size = each["logGroupName"], each.get("storedBytes", 0) / GIB
            if not (why := where.marks.why(name, {})):
                continue
            cluster = re.match(r"/(?:aws/eks|aws/containerinsights|trainium-eks)/([^/]+)", name)
            yield LeftOver(
                "log group",
                name,
                why,
                monthly(size * prices.LOGS_GIB_MONTH),
                (where.command("logs", "delete-log-group", "--log-group-name", name),),
                (name,),
                owners=(cluster[1],) if cluster else (),
                note=f"{size:.1f} GiB"
                + ("" if each.get("retentionInDays") else "; it is kept for ever: it has no retention"),
                # The stack's own group has a retention.
                race=EKS_LOGS if name.startswith("/aws/eks/") and not each.get("retentionInDays") else "",
            )


def roles(where: Where) -> Iterator[LeftOver]:
    """Yield IAM roles, each with the commands that detach its policies and profiles first."""
    for each in where.account.pages("iam", "list_roles", "Roles"):
        name = each["RoleName"]
        if not name.startswith(where.marks.prefix):
            continue
        tags = tags_of(where.account.pages("iam", "list_role_tags", "Tags", RoleName=name))
        if why := where.marks.why(name, tags):
            yield LeftOver("role", name, why, FREE, tuple(_role_commands(where, name)), (name, each["Arn"]))


def _role_commands(where: Where, role: str) -> Iterator[str]:
    """Yield the commands that delete a role: IAM deletes a role only without policies and instance profiles."""
    ask, named = where.account.pages, ("--role-name", role)
    for policy in ask("iam", "list_attached_role_policies", "AttachedPolicies", RoleName=role):
        yield where.command("iam", "detach-role-policy", *named, "--policy-arn", policy["PolicyArn"])
    for inline in ask("iam", "list_role_policies", "PolicyNames", RoleName=role):
        yield where.command("iam", "delete-role-policy", *named, "--policy-name", inline)
    for profile in ask("iam", "list_instance_profiles_for_role", "InstanceProfiles", RoleName=role):
        yield from _profile_commands(where, profile["InstanceProfileName"], [role])
    yield where.command("iam", "delete-role", *named)


def instance_profiles(where: Where) -> Iterator[LeftOver]:
    """Yield instance profiles, found by their names: IAM lists them without tags."""
    for each in where.account.pages("iam", "list_instance_profiles", "InstanceProfiles"):
        name, held = each["InstanceProfileName"], [role["RoleName"] for role in each.get("Roles", ())]
        if why := where.marks.why(name, {}):
            commands = tuple(_profile_commands(where, name, held))
            # The commands of a role remove its profiles, too.
            yield LeftOver("instance profile", name, why, FREE, commands, (name,), goes_with=tuple(held))


def _profile_commands(where: Where, profile: str, held: list[str]) -> Iterator[str]:
    named = ("--instance-profile-name", profile)
    for role in held:
        yield where.command("iam", "remove-role-from-instance-profile", *named, "--role-name", role)
    yield where.command("iam", "delete-instance-profile", *named)


def budgets(where: Where) -> Iterator[LeftOver]:
    """Yield budgets, found by their names: they belong to the account and to no region."""
    account = where.account.caller().account
    for each in where.account.pages("budgets", "describe_budgets", "Budgets", AccountId=account):
        name = each["BudgetName"]
        if why := where.marks.why(name, {}):
            command = where.command("budgets", "delete-budget", "--account-id", account, "--budget-name", name)
            yield LeftOver("budget", name, why, FREE, (command,), (name, f"{account}:{name}"))


LISTED_ELSEWHERE = ("autoscaling", "budgets", "ec2", "eks", "elasticloadbalancing", "fsx", "iam", "logs")
"""Services with separate lists, which name no deleted resource."""


def tagged(where: Where) -> Iterator[LeftOver]:
    """Yield all other resources with the stack's tags, of any service."""
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
        why = where.marks.why(name, tags)
        if service == "ecr":
            # Other programs of the account may have the same tags, so the name that a stack gives decides.
            name = rest.partition("/")[2]
            why = f"tagged Environment={stack}" if f"-{stack.lower()}/" in name else ""
        if service in LISTED_ELSEWHERE or not why:
            continue
        try:
            if service == "kms":
                key = where.account.call("kms", "describe_key", KeyId=name)["KeyMetadata"]
                if key.get("KeyState") == "PendingDeletion":  # for at least a week
                    continue
            kind, hourly, commands, note = _removal(where, service, name, rest)
        except RequestError as error:
            if not re.search("NotFound|NonExistent|NoSuch|404", error.code):
                raise
            continue  # this API names it for hours after its deletion
        shown = f"{name} ({tags['Name']})" if tags.get("Name", name) != name else name
        yield LeftOver(
            kind, shown, why, hourly, commands, (name, arn, rest),
            note=note if commands else f"no command is known here: {arn}",
        )  # fmt: skip


def _removal(where: Where, service: str, name: str, rest: str) -> tuple[str, float | None, tuple[str, ...], str]:
    """Return kind, price, commands and note of a resource that was found by its tags; RequestError where it is gone."""
    match service:
        case "kms":
            schedule = ("schedule-key-deletion", "--key-id", name, "--pending-window-in-days", "30")
            note = "kept on purpose: backups and objects that it encrypts can never be read without it"
            return "KMS key", monthly(prices.KMS_KEY_MONTH), (where.command("kms", *schedule),), note
        case "s3":
            where.account.call("s3", "head_bucket", Bucket=name)
            note = (
                "kept on purpose: it holds the exported files and checkpoints; "
                f"${prices.S3_STANDARD_GIB_MONTH:.3f} a month for each GiB, with old versions, which `rb` leaves: "
                "empty it in the console"
            )
            return "bucket", None, (where.command("s3", "rb", f"s3://{name}", "--force"),), note
        case "ecr":
            remove = where.command("ecr", "delete-repository", "--repository-name", name, "--force")
            where.account.call("ecr", "describe_repositories", repositoryNames=[name])
            note = f"with its images; ${prices.ECR_GIB_MONTH:.2f} a month for each GiB"
            return "image repository", None, (remove,), note
        case "sqs":
            url = where.account.call("sqs", "get_queue_url", QueueName=name)["QueueUrl"]
            return "queue", FREE, (where.command("sqs", "delete-queue", "--queue-url", url),), ""
        case "events":
            targets = where.account.pages("events", "list_targets_by_rule", "Targets", Rule=name)
            ids = [each["Id"] for each in targets]
            removed = (where.command("events", "remove-targets", "--rule", name, "--ids", *ids),) if ids else ()
            return "event rule", FREE, (*removed, where.command("events", "delete-rule", "--name", name)), ""
        case "aps":
            where.account.call("amp", "describe_workspace", workspaceId=name)
            remove = where.command("amp", "delete-workspace", "--workspace-id", name)
            return "metrics workspace", None, (remove,), "billed by sample; its metrics are lost with it"
        case "grafana":
            where.account.call("grafana", "describe_workspace", workspaceId=name)
            remove = where.command("grafana", "delete-workspace", "--workspace-id", name)
            note = "billed by user; dashboards that people made there are lost with it"
            return "Grafana workspace", None, (remove,), note
    return f"{service} {rest.partition('/')[0]}", None, (), ""
