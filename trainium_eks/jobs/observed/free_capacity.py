"""Room: requests of pods, nodes that they fit, and free resources there and in a queue. Pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from trainium_eks.jobs.observed.job_snapshot import JobSnapshot, wanted_pods
from trainium_eks.jobs.observed.watched import job_of
from trainium_eks.kube.cluster import Object, is_bound, is_over, is_ready, labels_of, name_of, namespace_of
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL
from trainium_eks.model.sizing.quantities import quantity, shown
from trainium_eks.model.validation.formats import listed

Amounts = Mapping[str, Decimal]


@dataclass(frozen=True)
class Ask:
    """Pods of a job with equal requests."""

    spec: Object
    count: int
    each: Amounts

    @property
    def total(self) -> dict[str, Decimal]:
        """Return the requests of all of them."""
        return {resource: amount * self.count for resource, amount in self.each.items()}

    @property
    def instance_type(self) -> str:
        """Return the EC2 type that the node selector names; empty when it names none."""
        return str((self.spec.get("nodeSelector") or {}).get(INSTANCE_TYPE_LABEL, ""))


@dataclass(frozen=True)
class Node:
    """A node that an ask's selector matches."""

    source: Object
    whole: Amounts
    """Allocatable."""
    taken: Mapping[str, Amounts]
    """Job to the resources of its pods there, as far as they may be read."""

    @property
    def name(self) -> str:
        """Return the node's name."""
        return name_of(self.source)

    @property
    def trouble(self) -> str:
        """Return the reason why the node takes no pods; empty when it does."""
        if not is_ready(self.source):
            return "not ready"
        return "cordoned" if self.source.get("spec", {}).get("unschedulable") else ""

    def fits(self, each: Amounts) -> bool:
        """Return whether one more such pod fits, beside the pods known to be there."""
        return all(self.left(resource) >= amount for resource, amount in each.items())

    def left(self, resource: str) -> Decimal:
        """Return the amount of a resource that the pods known to be there leave."""
        taken = sum((each.get(resource, Decimal(0)) for each in self.taken.values()), Decimal(0))
        return self.whole.get(resource, Decimal(0)) - taken

    def could_fit(self, each: Amounts) -> bool:
        """Return whether such a pod fits on the empty node."""
        return all(self.whole.get(resource, Decimal(0)) >= amount for resource, amount in each.items())


def requests(spec: Object) -> dict[str, Decimal]:
    """Return the sum of the requests of a pod's containers; without a request its limit counts, as in the
    API server."""
    total: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        for resource, amount in _of_container(container).items():
            total[resource] = total.get(resource, Decimal(0)) + amount
    for container in spec.get("initContainers") or ():
        for resource, amount in _of_container(container).items():
            total[resource] = max(total.get(resource, Decimal(0)), amount)
    return total


def _of_container(container: Object) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {resource: amount for resource, text in wanted.items() if (amount := quantity(text))}


def asks(snapshot: JobSnapshot) -> list[Ask]:
    """Return the requests of the job's pods without a node: existing pods, and pods still to be created."""
    bound = sum(map(is_bound, snapshot.pods))
    missing = wanted_pods(snapshot.job) - bound
    found: dict[tuple[object, ...], Ask] = {}
    for task in snapshot.job["spec"].get("tasks") or ():
        spec = task["template"]["spec"]
        each = requests(spec)
        key = (tuple(sorted(each.items())), tuple(sorted((spec.get("nodeSelector") or {}).items())))
        before = found[key].count if key in found else 0
        found[key] = Ask(spec, before + int(task.get("replicas", 1)), each)
    if len(found) == 1:
        return [Ask(each.spec, missing, each.each) for each in found.values() if missing > 0]
    return list(found.values()) if missing > 0 else []


def nodes_for(ask: Ask, snapshot: JobSnapshot) -> list[Node]:
    """Return the nodes that the node selector and the tolerations allow, ready or not."""
    taken: dict[str, dict[str, dict[str, Decimal]]] = {}
    for pod in (*snapshot.pods, *snapshot.others):
        if is_bound(pod) and not is_over(pod):
            on_node = taken.setdefault(pod["spec"]["nodeName"], {}).setdefault(_holder(pod, snapshot), {})
            for resource, amount in requests(pod["spec"]).items():
                on_node[resource] = on_node.get(resource, Decimal(0)) + amount
    selector = ask.spec.get("nodeSelector") or {}
    return [
        Node(node, _amounts((node.get("status") or {}).get("allocatable")), taken.get(name_of(node), {}))
        for node in snapshot.nodes or ()
        if all(labels_of(node).get(key) == value for key, value in selector.items())
    ]


def _holder(pod: Object, snapshot: JobSnapshot) -> str:
    """Return the job of a pod; of another team's also its namespace."""
    namespace = namespace_of(pod)
    is_own = namespace in ("", namespace_of(snapshot.job))
    return job_of(pod) if is_own else f"{namespace}/{job_of(pod)}"


def untolerated(node: Object, ask: Ask) -> str:
    """Return a taint that keeps the ask's pods from a node; empty when none does.

    ``ExtendedResourceToleration`` of EKS gives each pod a toleration of taints that are called like a resource it asks
    for. Kubernetes' own taints, of nodes that are not ready or cordoned, are reported as a node's trouble.
    """
    for taint in node.get("spec", {}).get("taints") or ():
        key = str(taint["key"])
        if taint["effect"] == "PreferNoSchedule" or key.startswith("node.kubernetes.io/") or key in ask.each:
            continue
        if not any(_tolerates(each, taint) for each in ask.spec.get("tolerations") or ()):
            return key
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def has_devices(spec: Object) -> bool:
    """Return whether a pod takes devices, or interfaces, of its node."""
    return any("/" in resource for resource in requests(spec))


def holders(nodes: Iterable[Node]) -> dict[str, int]:
    """Return each job with pods on these nodes, and the number of these nodes, the largest first."""
    count: dict[str, int] = {}
    for node in nodes:
        for job in node.taken:
            count[job] = count.get(job, 0) + 1
    return dict(sorted(count.items(), key=lambda item: (-item[1], item[0])))


def amounts_in_queue(queue: Object, field: str) -> dict[str, Decimal]:
    """Return ``capability`` of a queue's spec, or ``allocated`` of its status."""
    part = queue.get("spec") if field == "capability" else queue.get("status")
    return _amounts((part or {}).get(field))


def _amounts(found: Object | None) -> dict[str, Decimal]:
    return {resource: amount for resource, text in (found or {}).items() if (amount := quantity(text)) is not None}


def format_amount(amount: Decimal, resource: str) -> str:
    """Return ``16 aws.amazon.com/neuron``; memory in GiB."""
    if resource == "memory":
        return f"{float(amount / 1024**3):.4g} GiB memory"
    return f"{shown(amount)} {resource}"


def name_some(names: Sequence[str], most: int = 3) -> str:
    """Return ``a``, ``a and b``, ``a, b and 4 more``."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return listed(names)
