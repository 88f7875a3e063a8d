"""R38-R45 and R68: the Lustre file system, the safety of its data, its volumes, and teams' access to it."""

from collections.abc import Iterator

from trainium_eks.model.catalogue import lustre
from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import RETAIN_ON_DELETE, Graph, Resource
from trainium_eks.plan.reading import Json, at, differs, items, known, missing, number, show, text
from trainium_eks.plan.rules._autoscaled import nodes_of
from trainium_eks.plan.rules._objects import namespace
from trainium_eks.plan.rules._rule import judged, rule, unseen
from trainium_eks.plan.subjects import ASSOCIATION, BUCKETS, FILE_SYSTEM, SecurityRule

EVENTS = ("NEW", "CHANGED", "DELETED")
VOLUME = "kubernetes:core/v1:PersistentVolume"


@rule("R38", "Encrypt the file system with a customer key", "high", "CKV_AWS_190")
def file_system_key(graph: Graph) -> Iterator[Finding]:
    """Persistent file systems take a customer key; SCRATCH ones cannot, and FSx encrypts them with its own."""
    for file_system in graph.of_type(FILE_SYSTEM):
        if not text(file_system.inputs.get("deploymentType")).startswith("SCRATCH"):
            yield from judged(file_system, missing(file_system.inputs, "kmsKeyId", "a KMS key"), "has a KMS key")


@rule(
    "R39",
    "Keep the file system's data",
    "high",
    "own (skipFinalBackup is true by default)",
    beyond_pack="whether the bucket of a link to S3 outlives the stack, because the engine does not tell a pack of"
    " retainOnDelete; a protected bucket is seen",
)
def durability(graph: Graph) -> Iterator[Finding]:
    """One of two ways, because FSx takes no backups of a file system linked to S3. Backups: a retention above zero and
    a last backup on deletion. S3: automatic import and export of every event, to a bucket that outlives the stack. In
    production the type is PERSISTENT_2 and Pulumi's protect is on. Elsewhere, SCRATCH keeps nothing by choice and is
    not judged. Independent of `model/config/storage.py`, which validates the config."""
    for file_system in graph.of_type(FILE_SYSTEM):
        scratch = text(file_system.inputs.get("deploymentType")).startswith("SCRATCH")
        if scratch and not graph.production:
            continue
        faults = list(differs(file_system.inputs, "deploymentType", "PERSISTENT_2"))
        links = graph.referring(file_system, "fileSystemId", ASSOCIATION)
        faults += _linked_faults(file_system, links) if links else _backup_faults(file_system)
        if graph.production and not file_system.options.protect:
            faults.append("options.protect is false, wanted true in production")
        buckets = [bucket for link in links for bucket in _linked_buckets(graph, link) if not bucket.options.protect]
        untold = buckets if RETAIN_ON_DELETE in graph.untold else []
        faults += [
            f"bucket {bucket.name} is neither retained on delete nor protected, wanted retainOnDelete"
            for bucket in buckets
            if not untold and not bucket.options.retain_on_delete
        ]
        for bucket in untold:
            yield unseen(bucket, "whether the bucket outlives the stack is not told: retainOnDelete")
        if faults or not untold:
            yield from judged(file_system, faults, "linked to S3" if links else "backed up")


@rule("R41", "Put the file system in the accelerators' zone", "medium", "EKS best practices storage", follows_ids=True)
def same_zone(graph: Graph) -> Iterator[Finding]:
    """Another zone is slower and costs for every gigabyte. With groups, or Karpenter's pools, in several zones, use one
    of these. Independent of `model/config/cross.py`, which validates the config."""
    subnets = {str(each) for nodes in nodes_of(graph) if nodes.accelerated for each in nodes.subnets}
    if not subnets:
        return
    zones = {graph.zone_of(each) for each in subnets}
    for file_system in graph.of_type(FILE_SYSTEM):
        own = at(file_system.inputs, "subnetIds")
        first = at(own, "[0]") if items(own) else own
        if not all(map(known, (first, *subnets))):
            yield unseen(file_system, "subnets are known only during the update, so zones are not compared")
            continue
        here = graph.zone_of(first)
        good = (text(first) and text(first) in subnets) or (here and here in zones)
        wanted = ", ".join(sorted(each or "an unseen zone" for each in zones))
        faults = [] if good else [f"subnetIds[0] {show(first)} is in {here or 'an unseen zone'}, wanted {wanted}"]
        yield from judged(file_system, faults, f"in the accelerators' zone {here}")


@rule(
    "R42",
    "Open Lustre's ports both ways, before the file system",
    "high",
    "aws-fsx-csi-driver troubleshooting, FSx guide",
    follows_ids=True,
)
def lustre_ports(graph: Graph) -> Iterator[Finding]:
    """TCP 988 and 1018-1023, from the file system's group to itself in both directions, and for every client group in
    both directions. FSx refuses to create a file system when its group does not allow the traffic yet, so the rules
    within the group come first."""
    for file_system in graph.of_type(FILE_SYSTEM):
        yield from judged(file_system, _port_faults(graph, file_system), "ports 988 and 1018-1023 are open both ways")


@rule("R44", "Log the warnings and errors of a link to S3", "low", "own")
def lustre_logs(graph: Graph) -> Iterator[Finding]:
    """A failing S3 export is seen nowhere else. A file system without a link has nothing to log."""
    for file_system in graph.of_type(FILE_SYSTEM):
        if graph.referring(file_system, "fileSystemId", ASSOCIATION):
            faults = differs(file_system.inputs, "logConfiguration.level", "WARN_ERROR")
            yield from judged(file_system, faults, "WARN_ERROR")


@rule("R45", "Retain static volumes", "high", "Kubernetes persistent volumes")
def retained_volumes(graph: Graph) -> Iterator[Finding]:
    """A deleted claim must not delete the file system that other claims share."""
    for volume in graph.of_type(VOLUME):
        faults = differs(volume.inputs, "spec.persistentVolumeReclaimPolicy", "Retain")
        yield from judged(volume, faults, "reclaim policy Retain")


@rule(
    "R68",
    "Show each team its own part of the file system",
    "high",
    "FSx guide, mounting from a specific fileset",
    follows_ids=True,
)
def own_directories(graph: Graph) -> Iterator[Finding]:
    """Pods may run as any user, including root, whom file modes do not stop. So the volume of a namespace in which
    people work mounts that team's own directory, not the root, and no other team's. Where teams share the file system,
    each also has a separate user. Independent of `model/config/namespaces.py`, which validates the config."""
    volumes = [each for each in graph.of_type(VOLUME) if at(each.inputs, "spec.csi.driver") == lustre.DRIVER]
    peopled = {namespace(each) for each in graph.of_type("kubernetes:rbac.authorization.k8s.io/v1:RoleBinding")}
    mounts = {each.urn: _mount(each) for each in volumes}
    users = _users(graph)
    for volume in volumes:
        here = text(at(volume.inputs, "spec.claimRef.namespace"))
        if here not in peopled:
            continue
        host, directory = mounts[volume.urn]
        faults = []
        if "/" not in directory:
            faults.append(
                f"spec.csi.volumeAttributes.mountname {directory} is the whole file system, wanted a directory"
            )
        for urn, (other_host, other) in mounts.items():
            parts = "/" in other and f"{directory}/".startswith(f"{other}/")
            if urn != volume.urn and host == other_host and parts:
                faults.append(f"{directory} is within what {graph.by_urn[urn].name} mounts too")
        others = [name for name, user in users.items() if name != here and user == users.get(here)]
        if others:
            faults.append(f"user {users[here]} is also that of {', '.join(others)}, wanted one for each team")
        yield from judged(volume, faults, f"{here} mounts {directory}")


def _mount(volume: Resource) -> tuple[str, str]:
    """Return host and path that a volume mounts."""
    attributes = at(volume.inputs, "spec.csi.volumeAttributes")
    return text(at(attributes, "dnsname")), text(at(attributes, "mountname")).strip("/")


def _users(graph: Graph) -> dict[str, int]:
    """Return namespace of the config to the id of its jobs' user."""
    return {
        text(at(each, "name")): int(number(at(each, "trainingUserId")) or lustre.DEFAULT_USER_ID)
        for each in items(graph.config.get("namespaces"))
    }


def _backup_faults(file_system: Resource) -> Iterator[str]:
    days = file_system.inputs.get("automaticBackupRetentionDays")
    kept = number(days)
    if kept is None or kept < 1:
        yield f"automaticBackupRetentionDays is {show(days)} without a link to S3, wanted 1 or more"
    skipped = file_system.inputs.get("skipFinalBackup")
    if skipped is not False:
        yield f"skipFinalBackup is {show(skipped)}, wanted false (unset means true)"


def _linked_faults(file_system: Resource, links: tuple[Resource, ...]) -> Iterator[str]:
    days = file_system.inputs.get("automaticBackupRetentionDays")
    if number(days) not in (None, 0):
        yield f"automaticBackupRetentionDays is {show(days)} with a link to S3, wanted 0: FSx refuses both"
    for link in links:
        for policy in ("autoImportPolicy", "autoExportPolicy"):
            found = items(at(link.inputs, f"s3.{policy}.events"))
            lacking = [event for event in EVENTS if event not in found]
            if lacking:
                yield f"{link.name}: s3.{policy}.events is {show(list(found))}, wanted also {', '.join(lacking)}"


def _linked_buckets(graph: Graph, link: Resource) -> tuple[Resource, ...]:
    """Return the bucket of a link, when this program makes it; an existing bucket is not checked."""
    name = text(link.inputs.get("dataRepositoryPath")).removeprefix("s3://").partition("/")[0]
    named = graph.named(name, *BUCKETS)
    return (named,) if named is not None else graph.refers(link, "dataRepositoryPath", *BUCKETS)


def _port_faults(graph: Graph, file_system: Resource) -> Iterator[str]:
    groups = file_system.inputs.get("securityGroupIds")
    if not items(groups):
        yield f"securityGroupIds is {show(groups)}, wanted a group with Lustre's ports"
        return
    rules = tuple(each for group in items(groups) for each in graph.rules_of(group))
    before = graph.upstream(file_system)
    for inbound, word in ((True, "inbound"), (False, "outbound")):
        one_way = [each for each in rules if each.inbound is inbound]
        within = [each for each in one_way if each.to_itself or (not inbound and each.from_anywhere)]
        closed = _closed(within)
        if closed:
            yield f"securityGroupIds: {word} from the group to itself lacks tcp {closed}, wanted 988 and 1018-1023"
        late = [each.resource.name for each in within if each.to_itself and each.resource.urn not in before]
        if late and not closed:
            yield f"does not depend on its {word} rules {', '.join(sorted(set(late)))}: FSx asks for them at creation"
        everywhere = [each for each in one_way if each.from_anywhere]
        for client in _clients(rules):
            closed = _closed([*everywhere, *(each for each in one_way if client in each.peers)])
            if closed:
                yield f"securityGroupIds: {word} for client group {show(client)} lacks tcp {closed}"
    if graph.node_groups and not _clients(rules) and _closed([each for each in rules if each.inbound and each.cidrs]):
        yield "securityGroupIds: no rule lets the nodes in, wanted tcp 988 and 1018-1023 from their group"


def _clients(rules: tuple[SecurityRule, ...]) -> tuple[Json, ...]:
    """Return the other groups that the file system's rules name."""
    return tuple(
        dict.fromkeys(peer for each in rules for peer in each.peers if peer != each.group and isinstance(peer, str))
    )


def _closed(rules: list[SecurityRule]) -> str:
    """Return the Lustre ports that none of the rules opens, for a message; empty when all are open."""
    wanted = (port for first, last in lustre.PORTS for port in range(first, last + 1))
    return ", ".join(str(port) for port in wanted if not any(each.covers(port) for each in rules))
