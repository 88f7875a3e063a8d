"""Volcano queues, measured in accelerator devices."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

from trainium_eks.model.catalogue.instances import NEURON_CORE_RESOURCE, NEURON_RESOURCE, Catalogue
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool, StrictInt
from trainium_eks.model.validation.limits import Bounds
from trainium_eks.model.validation.problems import Problem, join, join_key, nearest, under

QUEUE_API = "scheduling.volcano.sh/v1beta1"
"""API version of queues."""

VOLCANOS_OWN = ("default", "root")
"""Queues that Volcano makes itself; managing one would delete it with the stack, which its webhook denies."""

DEEPEST = 5
"""Levels of queues below root that Volcano's admission takes (its ``--max-queue-depth``)."""

_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NODE_RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage")
_AMOUNTS = ("guarantee", "deserved", "capability")


class QueueConfig(ConfigModel):
    """One Volcano queue. Amounts are Kubernetes resources: ``{aws.amazon.com/neuron: 32}``."""

    name: str
    """Name of the queue; ``default`` and ``root`` belong to Volcano."""
    weight: Annotated[StrictInt, Bounds(1, 65_535)] = 1
    """Share against the other queues when the pool is full."""
    capability: dict[str, StrictInt] | None = None
    """The most the queue may use. Unset: the whole pool (devices and EFA of every group at its maximum)."""
    deserved: dict[str, StrictInt] | None = None
    """Amounts that it may take back from others (switches Volcano to the ``capacity`` plugin). Unset: not limited."""
    guarantee: dict[str, StrictInt] | None = None
    """Amounts that are kept free for it (switches Volcano to the ``capacity`` plugin). Unset: nothing."""
    reclaimable: StrictBool = True
    """Whether others may take back what it borrowed, when reclaim is on."""
    parent: str | None = None
    """Name of the parent queue; only leaf queues take jobs."""


class VolcanoConfig(ConfigModel):
    """The gang scheduler and its queues."""

    replicas: StrictInt = 2
    """Copies of scheduler, controller and admission; more than one switches leader election on."""
    scale_from_zero: StrictBool | None = None
    """Gives a job its pods while its pool has no node. Otherwise Volcano holds it back until there are nodes for it,
    and no pod makes one come (volcano#3910). Unset: on when some group may rest at zero nodes."""
    reclaim: StrictBool = False
    """Lets queues take back what others borrowed. Not gang-aware: it kills single pods of several gangs."""
    rendezvous: Literal["c10d", "etcd"] = "c10d"
    """How workers find each other. ``c10d`` needs nothing; ``etcd`` adds a single etcd 3.5 in the cluster."""
    image_registry: str = "docker.io"
    """Registry of Volcano's images (``volcanosh/…``), with or without its own prefix. Docker Hub bounds the pulls of
    all nodes behind one NAT together; a mirror, or a pull-through cache of ECR, does not
    (``111122223333.dkr.ecr.us-west-2.amazonaws.com/docker-hub``)."""


def pool(groups: Iterable[NodeGroupConfig], catalogue: Catalogue) -> dict[str, int]:
    """Return the devices and EFA interfaces of all groups at their largest; groups of unknown types count nothing."""
    return _devices(((group, group.max_size) for group in groups), catalogue)


def present(groups: Iterable[NodeGroupConfig], catalogue: Catalogue) -> dict[str, int]:
    """Return the devices and EFA interfaces that exist without demand: at the desired size, or at the smallest if an
    autoscaler decides."""
    sizes = ((group, group.min_size if group.ignore_desired_size else group.desired_size) for group in groups)
    return _devices(sizes, catalogue)


def _devices(sizes: Iterable[tuple[NodeGroupConfig, int]], catalogue: Catalogue) -> dict[str, int]:
    total: dict[str, int] = {}
    for group, nodes in sizes:
        if group.instance_type in catalogue:
            for resource, count in catalogue.device_resources(group.instance_type).items():
                total[resource] = total.get(resource, 0) + count * max(nodes, 0)
    return total


def resolve(queues: Sequence[QueueConfig], pool: Mapping[str, int]) -> tuple[QueueConfig, ...]:
    """Return the queues with every amount that Volcano needs written out, in the same order.

    A queue without ``capability`` may use its parent's, a top queue the whole ``pool``. A ``guarantee`` counts as
    ``deserved`` where that is unset, because Volcano's admission requires ``guarantee <= deserved``.
    """
    by_name = {queue.name: queue for queue in queues}
    return tuple(
        queue.model_copy(
            update={
                "capability": _capability(queue, by_name, pool),
                "deserved": queue.deserved if queue.deserved is not None else queue.guarantee,
            }
        )
        for queue in queues
    )


def leaves(queues: Sequence[QueueConfig]) -> tuple[str, ...]:
    """Return the names of the queues that take jobs: the queues without children."""
    parents = {queue.parent for queue in queues}
    return tuple(queue.name for queue in queues if queue.name not in parents)


def validate(queues: Sequence[QueueConfig], *, pool: Mapping[str, int]) -> list[Problem]:
    """Return the problems of the queues, by themselves, together, and against the devices of all groups.

    Paths are relative to the list (``[0].capability``).
    """
    found = formats.duplicates("", [queue.name for queue in queues], "name")
    for index, queue in enumerate(queues):
        found += under(join("", index), _queue_problems(queue, pool))
    found += _tree_problems(queues)
    if not any(problem.path.endswith((".name", ".parent")) for problem in found):
        found += _amounts_in_parents(queues, pool)
        told = {problem.path for problem in found}
        found += [problem for problem in _sums(queues, pool) if problem.path not in told]
    return found


def guarantee_problems(queues: Sequence[QueueConfig], *, present: Mapping[str, int]) -> list[Problem]:
    """Return the problems of guarantees that the ``present`` devices of nodes, which exist without demand, do not
    cover. Volcano keeps a queue's guarantee from all others, even without demand and even if less than the guarantee
    exists: the other queues then get nothing. A queue below another shares its guarantee and is not counted."""
    found = []
    tops = [(index, queue) for index, queue in enumerate(queues) if queue.parent in (None, "root")]
    for resource in dict.fromkeys(resource for _, queue in tops for resource in queue.guarantee or {}):
        takers = [(index, queue) for index, queue in tops if (queue.guarantee or {}).get(resource)]
        total = sum((queue.guarantee or {})[resource] for _, queue in takers)
        if total > present.get(resource, 0):
            names = formats.listed(queue.name for _, queue in takers)
            reason = (
                f"{total} {resource} are kept for {names}, and the nodes at `desired_size` (`min_size` where it is "
                f"managed elsewhere) have {present.get(resource, 0)}: other queues get none until there are more nodes"
            )
            path = join_key(f"[{takers[-1][0]}].guarantee", resource)
            found.append(formats.warn(path, reason, "guarantee less, or let more nodes stay"))
    return found


def volcano_problems(volcano: VolcanoConfig, *, rests_at_zero: bool) -> list[Problem]:
    """Return the problems of the scheduler section; ``rests_at_zero``: some group may have no node."""
    found = []
    if volcano.replicas < 1:
        found.append(Problem("replicas", "nothing would schedule jobs", value=volcano.replicas, good=2))
    elif volcano.replicas == 1:
        reason = "while the only scheduler or admission restarts, no job starts and no pod is admitted"
        found.append(Problem("replicas", reason, rule="R58", value=1, good=2))
    elif volcano.replicas > 5:
        found.append(Problem("replicas", "only one is active, the others stand by", value=volcano.replicas, good=3))
    if not re.fullmatch(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*", volcano.image_registry):
        reason = "it is not a registry's name, with or without a prefix"
        found.append(Problem("image_registry", reason, value=volcano.image_registry, good="docker.io"))
    if volcano.scale_from_zero is False and rests_at_zero:
        reason = (
            "a node group rests at zero nodes, and Volcano creates no pod that an autoscaler "
            "could see: its nodes never start"
        )
        fix = "or give every group a `min_size` of 1 or more"
        found.append(Problem("scale_from_zero", reason, fix, rule="R60", value=False, good=True))
    if volcano.reclaim:
        reason = "reclaim takes single pods out of several gangs, and each of those restarts"
        found.append(formats.warn("reclaim", reason, "set `max_retry` of jobs high, or leave reclaim off"))
    return found


def _capability(queue: QueueConfig, by_name: Mapping[str, QueueConfig], pool: Mapping[str, int]) -> dict[str, int]:
    for holder in (queue, *_ancestors(queue, by_name)):
        if holder.capability is not None:
            return dict(holder.capability)
    return dict(pool)


def _ancestors(queue: QueueConfig, by_name: Mapping[str, QueueConfig]) -> Iterator[QueueConfig]:
    """Yield parent, grandparent and so on, up to a name that is unknown or repeated."""
    seen = {queue.name}
    parent = by_name.get(queue.parent or "")
    while parent is not None and parent.name not in seen:
        seen.add(parent.name)
        yield parent
        parent = by_name.get(parent.parent or "")


def _queue_problems(queue: QueueConfig, pool: Mapping[str, int]) -> list[Problem]:
    found = formats.dns_subdomain("name", queue.name, longest=63)  # a label's value, too
    if queue.name in VOLCANOS_OWN:
        reason = "Volcano makes this queue itself"
        found.append(Problem("name", reason, "choose another name", value=queue.name))
    for field in _AMOUNTS:
        amounts: dict[str, int] | None = getattr(queue, field)
        for resource, amount in (amounts or {}).items():
            found += _amount_problems(join_key(field, resource), queue.name, resource, amount, pool)
    found += _order_problems(queue)
    return found


def _amount_problems(path: str, queue: str, resource: str, amount: int, pool: Mapping[str, int]) -> list[Problem]:
    if resource == NEURON_CORE_RESOURCE:
        reason = "jobs ask for whole devices, so a limit in cores would limit nothing"
        return [Problem(path, reason, f"name {NEURON_RESOURCE}, two cores each on Trainium", value=amount)]
    if not _RESOURCE.fullmatch(resource):
        return [Problem(path, "it is not the name of a Kubernetes resource", "remove it", allowed=tuple(pool))]
    if resource in _NODE_RESOURCES:
        if amount < 1:
            return [Problem(path, "it must be 1 or more", "remove it, for no limit", value=amount)]
        reason = f"every job's {resource} counts against it, and a job that asks for more stays pending"
        return [formats.warn(path, reason, "cap a queue by its devices")]
    if resource not in pool:
        guess = nearest(resource, pool)
        hint = f"did you mean {guess}?" if guess else "remove it"
        return [Problem(path, "no node group has this resource", hint, value=amount, allowed=tuple(pool))]
    if amount < 1:
        return [Problem(path, "it must be 1 or more", "remove it, for no limit", value=amount)]
    if amount > pool[resource]:
        reason = f"queue {queue}: {amount} is more than the {pool[resource]} that all groups have at `max_size`"
        return [Problem(path, reason, "or raise a group's `max_size`", value=amount, good=pool[resource])]
    return []


def _order_problems(queue: QueueConfig) -> list[Problem]:
    """Return the violations of guarantee <= deserved <= capability, which Volcano's admission requires for each
    resource."""
    found = []
    for low, high in (("guarantee", "deserved"), ("deserved", "capability"), ("guarantee", "capability")):
        lower, upper = getattr(queue, low) or {}, getattr(queue, high)
        for resource, amount in lower.items():
            path = join_key(low, resource)
            if upper is None or (resource not in upper and high == "capability"):
                continue
            if resource not in upper:
                reason = f"`deserved` must name {resource} too, and at least as much"
                found.append(Problem(path, reason, "name it there", value=amount))
            elif amount > upper[resource]:
                reason = f"{low}[{resource}]={amount} must be <= {high}[{resource}]={upper[resource]}"
                if not any(problem.path == path for problem in found):
                    found.append(Problem(path, reason, value=amount, good=upper[resource]))
    return found


def _tree_problems(queues: Sequence[QueueConfig]) -> list[Problem]:
    names = [queue.name for queue in queues]
    by_name = {queue.name: queue for queue in queues}
    found = []
    for index, queue in enumerate(queues):
        if queue.parent in (None, "root"):
            continue
        path = join(join("", index), "parent")
        chain = list(_ancestors(queue, by_name))
        top = chain[-1] if chain else queue
        if queue.parent == queue.name:
            found.append(Problem(path, "a queue cannot be its own parent", "remove it", value=queue.parent))
        elif queue.parent not in by_name:
            good = nearest(queue.parent or "", [name for name in names if name != queue.name])
            allowed = tuple(name for name in names if name != queue.name)
            fix = "" if good else "add the queue, or leave `parent` out"
            found.append(Problem(path, "no queue has this name", fix, value=queue.parent, allowed=allowed, good=good))
        elif top.parent in by_name:
            found.append(
                Problem(path, "its parents lead back to it", "make one of them a top queue", value=queue.parent)
            )
        elif len(chain) + 1 > DEEPEST:
            reason = f"the queue would be on level {len(chain) + 1}, and Volcano takes {DEEPEST} levels"
            found.append(Problem(path, reason, "name a parent on a higher level", value=queue.parent))
    return found


def _amounts_in_parents(queues: Sequence[QueueConfig], pool: Mapping[str, int]) -> list[Problem]:
    """Return the problems of children with a larger capability than their parent."""
    by_name = {queue.name: queue for queue in queues}
    found = []
    for index, queue in enumerate(queues):
        parent = by_name.get(queue.parent or "")
        limit = _capability(parent, by_name, pool) if parent else {}
        for resource, amount in (queue.capability or {}).items():
            if parent and amount > limit.get(resource, amount):
                path = join_key(f"[{index}].capability", resource)
                reason = f"it is more than its parent {parent.name} may use ({limit[resource]})"
                found.append(Problem(path, reason, value=amount, good=limit[resource]))
    return found


def _sums(queues: Sequence[QueueConfig], pool: Mapping[str, int]) -> list[Problem]:
    """Return the problems of siblings with guaranteed or deserved amounts that exceed their parent's in total."""
    by_name = {queue.name: queue for queue in queues}
    found = []
    for field in ("guarantee", "deserved"):
        for parent in dict.fromkeys(queue.parent or "root" for queue in queues):
            siblings = [(index, queue) for index, queue in enumerate(queues) if (queue.parent or "root") == parent]
            holder = by_name.get(parent)
            have: Mapping[str, int] = (getattr(holder, field) if holder else None) or (
                _capability(holder, by_name, pool) if holder else pool
            )
            found += _sum_problems(field, siblings, have, holder.name if holder else "")
    return found


def _sum_problems(
    field: str, siblings: Sequence[tuple[int, QueueConfig]], have: Mapping[str, int], parent: str
) -> list[Problem]:
    found = []
    for resource, limit in have.items():
        asked = {index: (getattr(queue, field) or {}).get(resource, 0) for index, queue in siblings}
        total = sum(asked.values())
        takers = [index for index, amount in asked.items() if amount]
        if total > limit:
            last = takers[-1]
            left = limit - (total - asked[last])
            names = formats.listed(queue.name for index, queue in siblings if index in takers)
            where = f"its parent {parent} has" if parent else "all groups have at `max_size`"
            together = " together" if len(takers) > 1 else ""
            reason = f"{field} of {names}{together} is {total} {resource}, more than the {limit} that {where}"
            path = join_key(f"[{last}].{field}", resource)
            fix = "" if left > 0 else "give less to each"
            found.append(Problem(path, reason, fix, value=asked[last], good=left if left > 0 else None))
    return found
