"""Advice on each operation that an interrupted update left open. Reads AWS; changes neither AWS nor the state.

The engine knows that a creation began and not how it ended. ``pulumi refresh`` settles all other operations by itself;
a resource under creation has to be imported where AWS has it, and cleared where it has not (pulumi/pulumi#10394).
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from trainium_eks.aws.account import Account, NotChecked, RequestError
from trainium_eks.operate.cleanup import network
from trainium_eks.operate.cleanup.state import PendingOperation, StackState, StateResource
from trainium_eks.operate.preflight.tags import tags_of

Action = Literal["import", "clear", "refresh", "look"]
"""``import`` by the id that was found, ``clear`` an operation for a resource that AWS does not have, ``refresh`` for
one that a refresh settles alone, ``look`` for one that the user must decide."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """A resource that AWS has."""

    id: str
    """As Pulumi knows it."""
    status: str = ""
    """Status of AWS, where the service gives one."""


@dataclass(frozen=True)
class Advice:
    """Advice on one open operation."""

    operation: PendingOperation
    action: Action
    reason: str
    id: str = ""
    """Id to import."""

    @property
    def urn(self) -> str:
        """Return the URN of the operation's resource."""
        return self.operation.resource.urn

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {
            "urn": self.urn,
            "type": self.operation.resource.type,
            "operation": self.operation.kind,
            "action": self.action,
            "id": self.id or None,
            "reason": self.reason,
        }


def advise(account: Account, state: StackState) -> list[Advice]:
    """Return advice on each open operation, in the state's order."""
    return [_advise(account, state, each) for each in state.pending]


def commands(stack: str, advice: Iterable[Advice]) -> list[str]:
    """Return the commands that carry out the advice, in order; none for no advice.

    Not ``pulumi refresh --import-pending-creates``: the engine 3.272 took that for a creation that is done with, and
    dropped it without an import.
    """
    listed = list(advice)
    if not listed:
        return []
    found = [_import(stack, each) for each in listed if each.action == "import"]
    # An import leaves the open creation behind, which only clearing removes: of all, so not while one is undecided.
    undecided = any(each.action == "look" for each in listed)
    creating = any(each.operation.kind == "creating" for each in listed)
    how = ["--skip-pending-creates" if undecided else "--clear-pending-creates"] if creating else []
    return [*found, shlex.join(["pulumi", "refresh", "--stack", stack, *how])]


def _import(stack: str, advice: Advice) -> str:
    """Return the command that imports under the program's name, parent and provider, so that the next update finds
    it."""
    resource = advice.operation.resource
    parts = ["pulumi", "import", resource.type, resource.name, advice.id, "--stack", stack]
    if resource.parent and "::pulumi:pulumi:Stack::" not in resource.parent:
        parts += ["--parent", f"parent={resource.parent}"]
    if resource.provider:
        parts += ["--provider", f"provider={resource.provider}"]
    return shlex.join([*parts, "--protect=false", "--generate-code=false"])


def _advise(account: Account, state: StackState, operation: PendingOperation) -> Advice:
    resource = operation.resource
    if operation.kind != "creating":
        return Advice(operation, "refresh", _SETTLED.get(operation.kind, "the refresh reads how it ended"))
    if resource.type.startswith("kubernetes:"):
        return Advice(operation, "look", _in_cluster(resource))
    find = FINDERS.get(resource.type)
    if find is None:
        return Advice(operation, "look", "nothing is known of where this type is found: look for it in AWS")
    try:
        found = [each for each in find(account, resource) if each.id and each.id not in state.names]
    except NotChecked as error:
        return Advice(operation, "look", f"not looked at: {error}")
    except RequestError as error:
        if not _says_missing(error):
            return Advice(operation, "look", f"not looked at: {error}")
        found = []
    return _of_found(operation, found)


_SETTLED = {
    "updating": "the refresh reads what it is now; the next update changes what is still different",
    "deleting": "the refresh drops it if it is gone; the next update deletes it otherwise",
}


KEPT = ("aws:kms/key:Key",)
"""Types that outlive a stack and carry the same name in the next."""


def _of_found(operation: PendingOperation, found: list[Found]) -> Advice:
    if not found:
        return Advice(operation, "clear", "AWS does not have it: the next update creates it")
    if len(found) > 1:
        listed = ", ".join(each.id for each in found)
        return Advice(operation, "look", f"several may be it: {listed}; import one, remove the others")
    [one] = found
    if operation.resource.type in KEPT:
        return Advice(
            operation,
            "look",
            f"{one.id} is it, or one that an earlier stack of this name kept on purpose: import it if it was created "
            "when the update ran, or if it is to be used again",
        )
    reason = "AWS has it: without the import the next update makes a second one"
    if one.status in ("CREATING", "pending", "PENDING"):
        reason = f"AWS has it, and it is {one.status}: wait until it is not before you refresh"
    elif "FAIL" in one.status.upper():
        reason = f"AWS has it, and it is {one.status}: import it, then `pulumi up --replace` its URN, or destroy it"
    return Advice(operation, "import", reason, one.id)


def _in_cluster(resource: StateResource) -> str:
    metadata = resource.inputs.get("metadata") or {}
    name, namespace = metadata.get("name") or resource.inputs.get("name"), metadata.get("namespace")
    where = f" -n {namespace}" if namespace else ""
    if resource.type == "kubernetes:helm.sh/v3:Release":
        space = resource.inputs.get("namespace") or "default"
        return f"helm list --pending --failed -n {space}: uninstall what is there, then clear it"
    kind = resource.type.rpartition(":")[2].lower()
    identity = f"{namespace}/{name}" if namespace else name
    return f"kubectl get {kind} {name}{where}: import it as {identity} if it is there, clear it otherwise"


def _says_missing(error: RequestError) -> bool:
    return any(word in error.code for word in ("NotFound", "NoSuch", "DoesNotExist")) or error.code == "404"


Finder = Callable[[Account, StateResource], Iterable[Found]]


def _text(resource: StateResource, key: str) -> str:
    """Return an input by which the resource is found.

    Raises:
        NotChecked: the state does not hold it, or keeps it secret; then nothing may be concluded.
    """
    if found := _known(resource, key):
        return found
    raise NotChecked(f"the state does not hold its {key}")


def _known(resource: StateResource, key: str) -> str:
    """Return an input; empty where the state does not hold it."""
    value = resource.inputs.get(key)
    return value if isinstance(value, str) else ""


def _node_group(account: Account, resource: StateResource) -> Iterator[Found]:
    cluster, name = _text(resource, "clusterName"), _text(resource, "nodeGroupName")
    answer = account.call("eks", "describe_nodegroup", clusterName=cluster, nodegroupName=name)
    yield Found(f"{cluster}:{name}", answer["nodegroup"]["status"])


def _cluster(account: Account, resource: StateResource) -> Iterator[Found]:
    answer = account.call("eks", "describe_cluster", name=_text(resource, "name"))
    yield Found(answer["cluster"]["name"], answer["cluster"]["status"])


def _addon(account: Account, resource: StateResource) -> Iterator[Found]:
    cluster, name = _text(resource, "clusterName"), _text(resource, "addonName")
    answer = account.call("eks", "describe_addon", clusterName=cluster, addonName=name)
    yield Found(f"{cluster}:{name}", answer["addon"]["status"])


def _access_entry(account: Account, resource: StateResource) -> Iterator[Found]:
    cluster, principal = _text(resource, "clusterName"), _text(resource, "principalArn")
    account.call("eks", "describe_access_entry", clusterName=cluster, principalArn=principal)
    yield Found(f"{cluster}:{principal}")


def _file_system(account: Account, resource: StateResource) -> Iterator[Found]:
    name = _name_tag(resource)
    for each in account.pages("fsx", "describe_file_systems", "FileSystems"):
        if tags_of(each.get("Tags", ())).get("Name") == name and each["Lifecycle"] != "DELETING":
            yield Found(each["FileSystemId"], each["Lifecycle"])


def _association(account: Account, resource: StateResource) -> Iterator[Found]:
    path = _text(resource, "fileSystemPath")
    ours = [{"Name": "file-system-id", "Values": [_text(resource, "fileSystemId")]}]
    for each in account.pages("fsx", "describe_data_repository_associations", "Associations", Filters=ours):
        if each.get("FileSystemPath") == path:
            yield Found(each["AssociationId"], each["Lifecycle"])


def _role(account: Account, resource: StateResource) -> Iterator[Found]:
    yield Found(account.call("iam", "get_role", RoleName=_text(resource, "name"))["Role"]["RoleName"])


def _log_group(account: Account, resource: StateResource) -> Iterator[Found]:
    name = _known(resource, "name")
    start = name or _text(resource, "namePrefix")
    for each in account.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=start):
        if not name or each["logGroupName"] == name:
            yield Found(each["logGroupName"])


def _bucket(account: Account, resource: StateResource) -> Iterator[Found]:
    name = _text(resource, "bucket")
    account.call("s3", "head_bucket", Bucket=name)
    yield Found(name)


def _repository(account: Account, resource: StateResource) -> Iterator[Found]:
    name = _text(resource, "name")
    account.call("ecr", "describe_repositories", repositoryNames=[name])
    yield Found(name)


def _alias(account: Account, resource: StateResource) -> Iterator[Found]:
    name = _text(resource, "name")
    for each in account.pages("kms", "list_aliases", "Aliases"):
        if each["AliasName"] == name:
            yield Found(each["AliasName"])


def _key(account: Account, resource: StateResource) -> Iterator[Found]:
    ours = [{"Key": "Name", "Values": [_name_tag(resource)]}]
    for each in account.pages(
        "resourcegroupstaggingapi",
        "get_resources",
        "ResourceTagMappingList",
        TagFilters=ours,
        ResourceTypeFilters=["kms:key"],
    ):
        yield Found(each["ResourceARN"].rpartition("/")[2])


def _of_ec2(kind: network.Kind) -> Finder:
    def find(account: Account, resource: StateResource) -> Iterator[Found]:
        name = _known(resource, "name") if kind.called else ""
        field, wanted = (kind.called, name) if name else ("", _name_tag(resource))
        for each in account.pages("ec2", kind.operation, kind.key):
            called = each.get(field) if field else tags_of(each.get("Tags", ())).get("Name")
            if called == wanted and kind.counts(each):
                yield Found(str(each[kind.id]), str(each.get("State", "")))

    return find


def _name_tag(resource: StateResource) -> str:
    """Return the name that the program gives by a tag.

    Raises:
        NotChecked: it gives none.
    """
    tags = resource.inputs.get("tags")
    if isinstance(tags, Mapping) and isinstance(name := tags.get("Name"), str):
        return name
    raise NotChecked("the state holds no name and no Name tag of it")


_EC2 = {
    "aws:ec2/vpc:Vpc": "VPC",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/eip:Eip": "public address",
    "aws:ec2/natGateway:NatGateway": "NAT gateway",
    "aws:ec2/internetGateway:InternetGateway": "internet gateway",
    "aws:ec2/routeTable:RouteTable": "route table",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "VPC endpoint",
    "aws:ec2/securityGroup:SecurityGroup": "security group",
    "aws:ec2/launchTemplate:LaunchTemplate": "launch template",
    "aws:ec2/placementGroup:PlacementGroup": "placement group",
}

FINDERS: Mapping[str, Finder] = MappingProxyType(
    {
        "aws:eks/nodeGroup:NodeGroup": _node_group,
        "aws:eks/cluster:Cluster": _cluster,
        "aws:eks/addon:Addon": _addon,
        "aws:eks/accessEntry:AccessEntry": _access_entry,
        "aws:fsx/lustreFileSystem:LustreFileSystem": _file_system,
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": _association,
        "aws:iam/role:Role": _role,
        "aws:cloudwatch/logGroup:LogGroup": _log_group,
        "aws:s3/bucket:Bucket": _bucket,
        "aws:ecr/repository:Repository": _repository,
        "aws:kms/alias:Alias": _alias,
        "aws:kms/key:Key": _key,
        **{type_: _of_ec2(kind) for type_, name in _EC2.items() for kind in network.KINDS if kind.name == name},
    }
)
"""Functions that find a resource of unknown id, by type."""
