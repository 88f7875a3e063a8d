"""Advice on each operation that an interrupted update left open. Reads AWS; changes neither AWS nor the state.

The engine knows that a creation began and not how it ended. ``pulumi refresh`` settles all other operations by itself;
a resource under creation has to be imported where AWS has it, and cleared where it has not (pulumi/pulumi#10394).
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from trainium_eks.aws.account import Account, NotCheckedError, RequestError
from trainium_eks.aws.tags import tags_of
from trainium_eks.model.finding import Finding, Status
from trainium_eks.operate.cleanup.kinds import KINDS, ResourceKind
from trainium_eks.operate.cleanup.state import PendingOperation, StackState, StateResource

Action = Literal["import", "clear", "refresh", "look"]
"""``import`` by the id that was found, ``clear`` an operation for a resource that AWS does not have, ``refresh`` for
one that a refresh settles alone, ``look`` for one that the user must decide."""

OPERATIONS = "operations"


@dataclass(frozen=True)
class Advice:
    """Advice on one open operation."""

    operation: PendingOperation
    action: Action
    reason: str
    id: str = ""

    def finding(self) -> Finding:
        """Return the advice as a finding, which fails where the decision is the user's."""
        resource, kind = self.operation.resource, self.operation.kind
        data = {
            "urn": resource.urn,
            "type": resource.type,
            "operation": kind,
            "action": self.action,
            "importId": self.id or None,
        }
        status = Status.FAIL if self.action == "look" else Status.WARN
        text = f"{f'{self.action} {self.id}'.strip()}: interrupted while {kind} ({resource.type}); {self.reason}"
        return Finding(status, resource.name, text, id=f"{OPERATIONS}/{resource.urn}", data=data)


def advise(account: Account, state: StackState) -> list[Advice]:
    """Return advice on each open operation, in the state's order."""
    return [_advise(account, state, each) for each in state.pending]


def commands(stack: str, advice: Sequence[Advice]) -> list[str]:
    """Return the commands that carry out the advice, in order; none for no advice.

    Not ``pulumi refresh --import-pending-creates``: the engine 3.272 took that for a creation that is done with, and
    dropped it without an import.
    """
    if not advice:
        return []
    found = [_import(stack, each) for each in advice if each.action == "import"]
    # An import leaves the open creation behind, which only clearing removes: of all, so not while one is undecided.
    undecided = any(each.action == "look" for each in advice)
    creating = any(each.operation.kind == "creating" for each in advice)
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
        found = [each for each in find(account, resource) if each[0] and each[0] not in state.names]
    except (NotCheckedError, RequestError) as error:
        if isinstance(error, NotCheckedError) or not re.search("NotFound|NoSuch|DoesNotExist|^404$", error.code):
            return Advice(operation, "look", f"not looked at: {error}")
        found = []
    return _of_found(operation, found)


_SETTLED = {
    "updating": "the refresh reads what it is now; the next update changes what is still different",
    "deleting": "the refresh drops it if it is gone; the next update deletes it otherwise",
}

KEPT = ("aws:kms/key:Key",)
"""Types that outlive a stack and carry the same name in the next."""


Found = tuple[str, str]
"""Id of a resource that AWS has, as Pulumi knows it, and its status at AWS, empty where the service gives none."""


def _of_found(operation: PendingOperation, found: list[Found]) -> Advice:
    if not found:
        return Advice(operation, "clear", "AWS does not have it: the next update creates it")
    if len(found) > 1:
        listed = ", ".join(identity for identity, _ in found)
        return Advice(operation, "look", f"several may be it: {listed}; import one, remove the others")
    [(identity, status)] = found
    if operation.resource.type in KEPT:
        return Advice(
            operation,
            "look",
            f"{identity} is it, or one that an earlier stack of this name kept on purpose: import it if it was created "
            "when the update ran, or if it is to be used again",
        )
    reason = "AWS has it: without the import the next update makes a second one"
    if status in ("CREATING", "pending", "PENDING"):
        reason = f"AWS has it, and it is {status}: wait until it is not before you refresh"
    elif "FAIL" in status.upper():
        reason = f"AWS has it, and it is {status}: import it, then `pulumi up --replace` its URN, or destroy it"
    return Advice(operation, "import", reason, identity)


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


Finder = Callable[[Account, StateResource], Iterable[Found]]


def _known(resource: StateResource, *path: str) -> str:
    """Return an input; empty where the state does not hold it, or keeps it secret."""
    value: Any = resource.inputs
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def _text(resource: StateResource, *path: str) -> str:
    """Return an input; without it nothing may be concluded, which is a :class:`NotCheckedError`."""
    if found := _known(resource, *path):
        return found
    raise NotCheckedError(f"the state does not hold its {'.'.join(path)}")


def _named(service: str, operation: str, key: str, **inputs: str) -> Finder:
    """Return a finder for a type that AWS answers about by names.

    ``inputs`` has the resource's input for each parameter of the operation; the inputs' values are the id. ``key`` is
    the field of the answer with a status, or empty.
    """

    def find(account: Account, resource: StateResource) -> Iterator[Found]:
        values = {parameter: _text(resource, name) for parameter, name in inputs.items()}
        asked: dict[str, Any] = {name: [value] if name.endswith("Names") else value for name, value in values.items()}
        answer = account.call(service, operation, **asked)
        yield ":".join(values.values()), answer[key]["status"] if key else ""

    return find


def _listed(kind: ResourceKind) -> Finder:
    """Return a finder for a kind with a list, by its name or its ``Name`` tag."""

    def find(account: Account, resource: StateResource) -> Iterator[Found]:
        name = _known(resource, "name") if kind.called else ""
        wanted = name or _text(resource, "tags", "Name")
        for each in account.pages(kind.service, kind.operation, kind.key):
            called = each.get(kind.called) if name else tags_of(each.get("Tags", ())).get("Name")
            if called == wanted and kind.counts(each):
                yield str(each[kind.id]), str(each.get("State") or each.get("Lifecycle", ""))

    return find


def _association(account: Account, resource: StateResource) -> Iterator[Found]:
    path = _text(resource, "fileSystemPath")
    ours = [{"Name": "file-system-id", "Values": [_text(resource, "fileSystemId")]}]
    for each in account.pages("fsx", "describe_data_repository_associations", "Associations", Filters=ours):
        if each.get("FileSystemPath") == path:
            yield each["AssociationId"], each["Lifecycle"]


def _log_group(account: Account, resource: StateResource) -> Iterator[Found]:
    name = _known(resource, "name")
    start = name or _text(resource, "namePrefix")
    for each in account.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=start):
        if not name or each["logGroupName"] == name:
            yield each["logGroupName"], ""


def _key(account: Account, resource: StateResource) -> Iterator[Found]:
    ours: dict[str, Any] = {
        "TagFilters": [{"Key": "Name", "Values": [_text(resource, "tags", "Name")]}],
        "ResourceTypeFilters": ["kms:key"],
    }
    for each in account.pages("resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", **ours):
        yield each["ResourceARN"].rpartition("/")[2], ""


FILE_SYSTEM = ResourceKind(
    "file system", "fsx", "describe_file_systems", "FileSystems", "FileSystemId",
    ("delete-file-system", "--file-system-id"),
    counts=lambda each: each["Lifecycle"] != "DELETING",
)  # fmt: skip

_KINDS = {
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
    "aws:kms/alias:Alias": "key alias",
}

FINDERS: Mapping[str, Finder] = MappingProxyType(
    {
        "aws:eks/cluster:Cluster": _named("eks", "describe_cluster", "cluster", name="name"),
        "aws:eks/nodeGroup:NodeGroup": _named(
            "eks", "describe_nodegroup", "nodegroup", clusterName="clusterName", nodegroupName="nodeGroupName"
        ),
        "aws:eks/addon:Addon": _named(
            "eks", "describe_addon", "addon", clusterName="clusterName", addonName="addonName"
        ),
        "aws:eks/accessEntry:AccessEntry": _named(
            "eks", "describe_access_entry", "", clusterName="clusterName", principalArn="principalArn"
        ),
        "aws:iam/role:Role": _named("iam", "get_role", "", RoleName="name"),
        "aws:s3/bucket:Bucket": _named("s3", "head_bucket", "", Bucket="bucket"),
        "aws:ecr/repository:Repository": _named("ecr", "describe_repositories", "", repositoryNames="name"),
        "aws:fsx/lustreFileSystem:LustreFileSystem": _listed(FILE_SYSTEM),
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": _association,
        "aws:cloudwatch/logGroup:LogGroup": _log_group,
        "aws:kms/key:Key": _key,
        **{type_: _listed(kind) for type_, name in _KINDS.items() for kind in KINDS if kind.name == name},
    }
)
"""Functions that find a resource of unknown id, by type: by the service's own answer, since the tagging API learns late
of what was made a moment ago, and an operation must not be cleared before AWS has been asked."""
