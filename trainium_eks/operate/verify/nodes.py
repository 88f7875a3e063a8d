"""Checks of nodes: their versions beside the server's, the number Ready in each group, and their devices."""

from collections.abc import Iterator, Mapping, Sequence

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.kube.cluster import GROUP_LABEL, Object, condition, is_ready, labels_of, minor, name_of
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import EFA_RESOURCE, NEURON_RESOURCE, NVIDIA_RESOURCE
from trainium_eks.model.finding import Finding, failed, not_applicable, passed
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.sizing.quantities import quantity
from trainium_eks.model.validation.problems import plural
from trainium_eks.observe.faults.catalogue import BY_NAME


def server(cluster: ClusterState) -> Iterator[Finding]:
    """Check that the API server answers with a version that this release knows, and that nodes are not too far from
    it. The config names the builds of add-ons that are not pinned."""
    known = versions.KUBERNETES_STANDARD_SUPPORT
    version = cluster.version
    major, own = minor(version)
    if f"{major}.{own}" in known:
        yield passed("server/version", "API server", f"answers, {version}")
    else:
        detail = f"answers, {version}; this release has no pins for it, only for {', '.join(known)}"
        remedy = "set cluster.kubernetesVersion to one of these, or update trainium-eks"
        yield failed("server/version", "API server", detail, remedy)
    yield _kubelets(cluster, major, own)


def _kubelets(cluster: ClusterState, major: int, own: int) -> Finding:
    subject = "kubelet versions"
    nodes = cluster.of("Node")
    if not nodes:
        return not_applicable("server/kubelets", subject, "there is no node")
    faults, found = [], set()
    for node in nodes:
        version = str(node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", ""))
        found.add(version)
        try:
            its_major, its_minor = minor(version)
        except ValueError:
            faults.append(f"{name_of(node)} says {version!r}")
            continue
        if its_major != major or not own - versions.OLDEST_NODES_BEHIND <= its_minor <= own:
            faults.append(f"{name_of(node)} runs {version}")
    shown = ", ".join(sorted(found))
    if not faults:
        return passed("server/kubelets", subject, shown)
    rule = "not newer than the server, at most 3 minor versions older"
    detail = f"{_of(len(faults), len(nodes))} unsupported (supported: {rule})"
    remedy = f"upgrade the node groups to the cluster's version: {cluster.deploy}"
    return failed("server/kubelets", subject, detail, remedy, faults)


def counts(cluster: ClusterState) -> Iterator[Finding]:
    """Check that each accelerator group has as many Ready nodes as the stack says, and that every other node is
    Ready."""
    for group in cluster.outputs.node_groups:
        yield _count(cluster, group)
    yield _others(cluster)


def _count(cluster: ClusterState, group: NodeGroupOutput) -> Finding:
    id_ = f"nodes/{group.name}"
    nodes = cluster.nodes_of(group.eks_name)
    ready = sum(map(_usable, nodes))
    bounds = f"{group.min_size} to {group.max_size}"
    wants = bounds if group.desired_size is None else f"{group.desired_size} ({bounds})"
    detail = f"{ready} of {len(nodes)} Ready, wants {wants}"
    faults = [f"{name_of(node)}: {_trouble(node)}" for node in nodes if not _usable(node)]
    if faults:
        return _unusable(id_, group.name, detail, nodes, faults)
    few = group.min_size if group.desired_size is None else group.desired_size
    many = group.max_size if group.desired_size is None else group.desired_size
    if len(nodes) < few:
        return failed(id_, group.name, detail, _few(cluster, group), fault="nodes-missing")
    if len(nodes) > many:
        remedy = (
            f"it was scaled outside the stack: {cluster.restore} sets it back; a group with an autoscaler "
            "needs ignoreDesiredSize: true"
        )
        return failed(id_, group.name, detail, remedy)
    if not nodes:
        return not_applicable(id_, group.name, f"rests at zero nodes, as the stack says ({bounds})")
    return passed(id_, group.name, detail)


def _few(cluster: ClusterState, group: NodeGroupOutput) -> str:
    if cluster.local is not None:
        return f"{cluster.deploy} makes them"
    outputs = cluster.outputs
    names = {"region": outputs.region, "cluster": outputs.cluster_name, "group": group.eks_name}
    return BY_NAME["nodes-missing"].mend(**names)


def _others(cluster: ClusterState) -> Finding:
    """Check system and CPU nodes, which the outputs give no size for: at least one, and all of them Ready."""
    id_, subject = "nodes/others", "system and other nodes"
    own = {group.eks_name for group in cluster.outputs.node_groups}
    nodes = [node for node in cluster.of("Node") if labels_of(node).get(GROUP_LABEL) not in own]
    if not nodes:
        remedy = f"DNS and controllers run there: {cluster.deploy} makes the system node group"
        return failed(id_, subject, "there is none", remedy)
    wrong = [node for node in nodes if not _usable(node)]
    detail = f"{len(nodes) - len(wrong)} of {len(nodes)} Ready"
    if wrong:
        faults = [f"{name_of(node)}: {_trouble(node)}" for node in wrong]
        return _unusable(id_, subject, detail, wrong, faults)
    return passed(id_, subject, detail)


def _usable(node: Object) -> bool:
    return is_ready(node) and not node.get("spec", {}).get("unschedulable")


def _trouble(node: Object) -> str:
    if is_ready(node):
        return "cordoned"
    ready = condition(node, "Ready")
    words = ready.get("message") or ready.get("reason") or "it has not reported yet"
    return f"not Ready: {words}"


def _unusable(id_: str, subject: str, detail: str, nodes: Sequence[Object], faults: Sequence[str]) -> Finding:
    """Return the failure for nodes that take no pods; one that is not Ready counts before a cordoned one."""
    first = next((node for node in nodes if not is_ready(node)), None)
    fault = "node-cordoned" if first is None else "node-not-ready"
    node = first or next(node for node in nodes if not _usable(node))
    return failed(id_, subject, detail, BY_NAME[fault].mend(node=name_of(node)), faults, fault=fault)


def devices(cluster: ClusterState) -> Iterator[Finding]:
    """Check that every Ready accelerator node offers as many devices and EFA interfaces as its type has."""
    for group in cluster.outputs.node_groups:
        for resource, wants in group.resources.items():
            yield _device(cluster, group, resource, wants)


def _device(cluster: ClusterState, group: NodeGroupOutput, resource: str, wants: int) -> Finding:
    id_, subject = f"devices/{group.name}/{resource}", f"{group.name} {resource}"
    nodes = cluster.nodes_of(group.eks_name)
    ready = [node for node in nodes if is_ready(node)]
    if not ready:
        return not_applicable(id_, subject, "no Ready node" if nodes else "no node")
    wrong = [node for node in ready if _amount(node, "allocatable", resource) != wants]
    if not wrong:
        return passed(id_, subject, f"{wants} on {'each of ' if len(ready) > 1 else ''}{plural(len(ready), 'node')}")
    faults = [f"{name_of(node)}: {resource} has {_shown(node, resource)}, wants {wants}" for node in wrong]
    detail = f"{_of(len(wrong), len(ready))} not as wanted ({wants} each)"
    causes: dict[str, Object] = {}
    for node in wrong:
        causes.setdefault(_cause(node, resource, wants), node)
    remedy = "; ".join(_device_remedy(cause, node, resource) for cause, node in causes.items())
    if cluster.local is not None:
        remedy = f"the nodes are simulated, and were changed: {cluster.deploy} sets them back"
    return failed(id_, subject, detail, remedy, faults, fault=next(iter(causes)))


def _amount(node: Object, field: str, resource: str) -> int | None:
    value = node.get("status", {}).get(field, {}).get(resource)
    amount = quantity(value)
    return None if amount is None else int(amount)


def _shown(node: Object, resource: str) -> str:
    has, whole = _amount(node, "allocatable", resource), _amount(node, "capacity", resource)
    if has is None:
        return "none"
    return f"{has} of {whole}" if whole is not None and whole != has else str(has)


def _cause(node: Object, resource: str, wants: int) -> str:
    """Return the fault behind a wrong count: the device plugin never registered, the node has another number, or
    devices are ill."""
    has, whole = _amount(node, "allocatable", resource), _amount(node, "capacity", resource)
    if not whole:
        return "efa-not-shown" if resource == EFA_RESOURCE else "devices-not-shown"
    if whole != wants:
        return "devices-of-another-type"
    return "devices-withdrawn" if not has else "devices-ill"


def _device_remedy(fault: str, node: Object, resource: str) -> str:
    """Return the remedy of a fault, worded for a node that has it."""
    instance = str(node.get("spec", {}).get("providerID", "")).rsplit("/", 1)[-1] or "<instance id>"
    look = (
        f"the group's launch template has other EFA interfaces: aws ec2 describe-instances --instance-ids {instance} "
        "--query 'Reservations[].Instances[].NetworkInterfaces[].InterfaceType'"
        if resource == EFA_RESOURCE
        else f"{_TOOLS.get(resource, 'its tools')} on {name_of(node)}"
    )
    return BY_NAME[fault].mend(
        node=name_of(node), plugin=_PLUGINS[resource], ami=_MISSING[resource], instance=instance, look=look
    )


_PLUGINS: Mapping[str, str] = {
    NEURON_RESOURCE: "Neuron device plugin",
    NVIDIA_RESOURCE: "NVIDIA device plugin",
    EFA_RESOURCE: "EFA device plugin",
}
_MISSING: Mapping[str, str] = {
    NEURON_RESOURCE: "without /dev/neuron* the AMI lacks the driver (the group's amiType is AL2023_x86_64_NEURON)",
    NVIDIA_RESOURCE: "where nvidia-smi fails the AMI lacks the driver (the group's amiType is AL2023_x86_64_NVIDIA)",
    EFA_RESOURCE: "without /dev/infiniband/uverbs* the launch template has no EFA interface",
}
_TOOLS: Mapping[str, str] = {NEURON_RESOURCE: "neuron-ls", NVIDIA_RESOURCE: "nvidia-smi -L"}


def _of(some: int, count: int) -> str:
    return f"{some} of {plural(count, 'node')}"
