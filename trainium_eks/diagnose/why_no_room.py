"""Reasons why no nodes are found for a job: its queue, the nodes, their taints, their places in the network."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from trainium_eks.diagnose.reason import Cause, Reason, fault_reason
from trainium_eks.jobs.observed.free_capacity import (
    Ask,
    Node,
    amounts_in_queue,
    format_amount,
    holders,
    name_some,
    nodes_for,
    requests,
    untolerated,
)
from trainium_eks.jobs.observed.job_snapshot import JobSnapshot
from trainium_eks.jobs.observed.watched import job_of
from trainium_eks.kube.cluster import Object, is_bound, is_over, labels_of, name_of
from trainium_eks.model.catalogue import instances
from trainium_eks.model.node_labels import ULTRASERVER_LABELS
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.sizing.quantities import shown
from trainium_eks.model.validation.problems import plural
from trainium_eks.observe.faults.catalogue import BY_NAME
from trainium_eks.topology import tree

_NOT_SHOWN = {
    instances.NEURON_RESOURCE: "devices-not-shown",
    instances.NVIDIA_RESOURCE: "devices-not-shown",
    instances.EFA_RESOURCE: "efa-not-shown",
    "hugepages": "hugepages-missing",
}
"""Resource, up to the first dash, to the fault of nodes that have none of it."""


Member = tuple[str, str]
"""Type (``Node`` or ``HyperNode``) and name of a member of a HyperNode."""


def reasons(snapshot: JobSnapshot, wanted: Sequence[Ask]) -> Iterator[Reason]:
    """Yield the reasons that keep the job's pods from nodes, the nearest cause first."""
    if snapshot.unscheduled:
        return
    # First the causes that no waiting mends.
    for ask in wanted:
        yield from _never(snapshot, ask)
    yield from _queue(snapshot, wanted, is_empty=True)
    for ask in wanted:
        yield from _more_than_all_groups(snapshot, ask)
    yield from _queue(snapshot, wanted)
    near = [reason for ask in wanted for reason in _topology(snapshot, ask)]
    # Which UltraServers are not whole says more than how many nodes are free.
    parts = [reason for reason in near if reason.fault == "ultraserver-busy"]
    yield from parts
    for ask in wanted:
        yield from _capacity(snapshot, ask)
    yield from (reason for reason in near if reason not in parts)
    for ask in wanted:
        yield from _held_in_part(snapshot, ask)


# --- The queue --------------------------------------------------------------------------------------------------------


def _queue(snapshot: JobSnapshot, wanted: Sequence[Ask], *, is_empty: bool = False) -> Iterator[Reason]:
    """Yield reasons in the job's queue and its parents, with their present load or as if empty."""
    queues = {name_of(each): each for each in snapshot.queues or ()}
    total: dict[str, Decimal] = {}
    for ask in wanted:
        for resource, amount in ask.total.items():
            total[resource] = total.get(resource, Decimal(0)) + amount
    name = snapshot.job["spec"].get("queue") or "default"
    passed: set[str] = set()
    while name in queues and name not in passed:
        passed.add(name)
        queue = queues[name]
        used = amounts_in_queue(queue, "allocated")
        for resource, most in amounts_in_queue(queue, "capability").items():
            needs = total.get(resource, Decimal(0))
            in_use = used.get(resource, Decimal(0))
            if needs > most and is_empty:
                yield _above_capability(name, resource, most, needs, wanted)
            elif needs and needs + in_use > most and not is_empty:
                yield _queue_in_use(snapshot, name, resource, most, needs, in_use)
        name = queue["spec"].get("parent") or ""


def _above_capability(queue: str, resource: str, most: Decimal, needs: Decimal, wanted: Sequence[Ask]) -> Reason:
    each = max(ask.each.get(resource, Decimal(0)) for ask in wanted)
    fitting = int(most // each)
    ask_for = (
        f"ask for at most {plural(fitting, 'node')}"
        if fitting
        else f"ask for at most {format_amount(most, resource)} a node"
    )
    sentence = f"it needs {format_amount(needs, resource)}, and queue {queue} may use {shown(most)} in all"
    return fault_reason(Cause.QUEUE, "queue-too-small", sentence, ask=ask_for)


def _queue_in_use(
    snapshot: JobSnapshot, queue: str, resource: str, most: Decimal, needs: Decimal, in_use: Decimal
) -> Reason:
    ours = _held(snapshot, queue, resource)
    ending = _held(snapshot, queue, resource, are_ending=True)
    others = in_use - sum((*ours.values(), *ending.values()), Decimal(0))
    names = [f"{job} ({shown(amount)})" for job, amount in ours.items()]
    names += [f"pods of {job} that are being ended ({shown(amount)})" for job, amount in ending.items()]
    if others > 0:
        names.append(f"other teams' jobs ({shown(others)})")
    sentence = (
        f"queue {queue} may use {format_amount(most, resource)}; {shown(in_use)} "
        f"are in use by {name_some(names, most=4)}, and it needs {shown(needs)}"
    )
    if ending and others + sum(ours.values(), Decimal(0)) + needs <= most:
        return Reason(Cause.ENDING, sentence, "", "queue-full")
    if not ours:
        return Reason(Cause.QUEUE, sentence, "wait for other teams' jobs", "queue-full")
    return fault_reason(Cause.QUEUE, "queue-full", sentence, job=next(iter(ours)))


def _held(snapshot: JobSnapshot, queue: str, resource: str, *, are_ending: bool = False) -> dict[str, Decimal]:
    """Return each of the team's jobs in a queue with its amount of a resource, the largest first: of pods that stay, or
    of pods that are being deleted, the job's own among them."""
    found: dict[str, Decimal] = {}
    for pod in (*snapshot.pods, *snapshot.others) if are_ending else snapshot.others:
        annotations = pod["metadata"].get("annotations") or {}
        if bool(pod["metadata"].get("deletionTimestamp")) is not are_ending:
            continue
        if is_bound(pod) and not is_over(pod) and annotations.get("volcano.sh/queue-name", queue) == queue:
            amount = requests(pod["spec"]).get(resource)
            if amount:
                found[job_of(pod)] = found.get(job_of(pod), Decimal(0)) + amount
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


# --- The nodes --------------------------------------------------------------------------------------------------------


def _never(snapshot: JobSnapshot, ask: Ask) -> Iterator[Reason]:
    """Yield a reason if no node of the selected kind could ever take such a pod, even when it is empty."""
    if snapshot.nodes is None:
        return
    nodes = nodes_for(ask, snapshot)
    if not nodes or any(node.could_fit(ask.each) for node in nodes):
        return
    kind = ask.instance_type or "node"
    for resource, amount in ask.each.items():
        has = max(node.whole.get(resource, Decimal(0)) for node in nodes)
        if has < amount:
            holds, asks = format_amount(has, resource), format_amount(amount, resource)
            sentence = f"each of its pods asks for {asks}, and a {kind} has {holds}"
            missing = "" if has else _NOT_SHOWN.get(resource.partition("-")[0], "")
            names = {"node": nodes[0].name, "plugin": "device plugin", "ami": "trn doctor names the reason"}
            yield fault_reason(Cause.CAPACITY, missing or "pod-too-large", sentence, amount=holds, **names)


def _more_than_all_groups(snapshot: JobSnapshot, ask: Ask) -> Iterator[Reason]:
    """Yield a reason if the job needs more nodes than its node groups can have together, so that no waiting helps."""
    groups = _groups(snapshot, ask)
    most = max(sum(group.max_size for group in groups), len(nodes_for(ask, snapshot)))
    if groups and ask.count > most:
        names = name_some([group.name for group in groups])
        sentence = f"it needs {_nodes(ask.count, ask)}, and {names} can have {most} at most: it is never placed"
        yield fault_reason(Cause.CAPACITY, "job-larger-than-pool", sentence, nodes=most, group=groups[0].name)


def _capacity(snapshot: JobSnapshot, ask: Ask) -> Iterator[Reason]:
    """Yield a reason if there are too few nodes, or too few that are free."""
    if snapshot.nodes is None:
        return
    nodes = nodes_for(ask, snapshot)
    taints = {node.name: key for node in nodes if (key := untolerated(node.source, ask))}
    usable = [node for node in nodes if not node.trouble and node.name not in taints and node.could_fit(ask.each)]
    free = [node for node in usable if node.fits(ask.each)]
    if len(free) >= ask.count:
        yield from _held_by_others(snapshot, ask, usable, free)
        return
    lacking = ask.count - len(usable)
    troubled = [node for node in nodes if node.trouble]
    if taints and len(usable) + len(taints) >= ask.count > len(usable):
        key = next(iter(taints.values()))
        fault = "fabric-untested" if key == instances.FABRIC_UNTESTED.key else "taint-not-tolerated"
        sentence = f"{_nodes(len(taints), ask)} of {len(nodes)} keep its pods away by the taint {key}"
        yield fault_reason(Cause.TAINT, fault, sentence, taint=key)
    elif troubled and lacking > 0 and len(usable) + len(troubled) >= ask.count:
        yield _troubled(ask, nodes, troubled)
    elif lacking > 0:
        yield _too_few(snapshot, ask, nodes, usable)
    else:
        yield _busy(snapshot, ask, usable, free)


def _troubled(ask: Ask, nodes: Sequence[Node], troubled: Sequence[Node]) -> Reason:
    first = troubled[0]
    kinds = " or ".join(sorted({node.trouble for node in troubled}))
    sentence = (
        f"it needs {_nodes(ask.count, ask)}, and {len(troubled)} of the {len(nodes)} are {kinds} "
        f"({name_some([node.name for node in troubled], most=2)})"
    )
    fault = "node-cordoned" if first.trouble == "cordoned" else "node-not-ready"
    return fault_reason(Cause.NODE, fault, sentence, node=first.name)


def _too_few(snapshot: JobSnapshot, ask: Ask, nodes: Sequence[Node], usable: Sequence[Node]) -> Reason:
    there = "none is there" if not nodes else f"{len(usable)} {'is' if len(usable) == 1 else 'are'} there"
    group = _group(snapshot, ask)
    # Nodes of the team's other jobs stay theirs, as far as the group can grow.
    busy = [node for node in usable if not node.fits(ask.each)]
    fix = _scale(group, ask.count + len(busy), ask)
    if group is not None and ask.count <= group.max_size < ask.count + len(busy):
        fix = f"trn scale {group.name} {group.max_size}, and wait for {name_some([*holders(busy)])}"
    fault = "type-without-group" if group is None else "nodes-too-few" if nodes else "pool-at-zero"
    return Reason(Cause.CAPACITY, f"it needs {_nodes(ask.count, ask)}, and {there}", fix, fault)


def _busy(snapshot: JobSnapshot, ask: Ask, usable: Sequence[Node], free: Sequence[Node]) -> Reason:
    busy = [node for node in usable if node not in free]
    theirs = holders(busy)
    parts = [node for node in busy if any("/" in each and node.left(each) > 0 for each in ask.each)]
    partly = holders(parts)
    names = [f"{job} has {'a part of ' * (partly.get(job) == count)}{count}" for job, count in theirs.items()]
    are = "is" if len(free) < 2 else "are"
    sentence = (
        f"it needs {_nodes(ask.count, ask)} to itself; of the {len(usable)} there, {len(free) or 'none'} {are} free "
        f"({name_some(names, most=4)})"
    )
    if len(free) + len(parts) >= ask.count:
        return fault_reason(Cause.CAPACITY, "nodes-held-in-part", sentence, job=next(iter(partly)))
    scale = _scale(_group(snapshot, ask), ask.count + len(busy), ask)
    wait = f"wait for {next(iter(theirs))}" if theirs else "wait"
    fix, fault = (f"{wait}, or {scale}", "nodes-busy") if scale.startswith("trn scale") else (wait, "pool-at-max")
    return Reason(Cause.CAPACITY, sentence, fix, fault)


def _held_by_others(snapshot: JobSnapshot, ask: Ask, usable: Sequence[Node], free: Sequence[Node]) -> Iterator[Reason]:
    """Yield a reason if nodes look free only because a researcher does not see other teams' pods, which show in the
    queues' sums alone."""
    for resource, each in ask.each.items():
        unseen = _unseen(snapshot, resource)
        room = sum((node.whole.get(resource, Decimal(0)) for node in free), Decimal(0))
        if unseen > 0 and room - unseen < each * ask.count:
            group = _group(snapshot, ask)
            taken = int(-(-unseen // each))
            scale = _scale(group, ask.count + len(usable) - len(free) + taken, ask)
            yield Reason(
                Cause.CAPACITY,
                f"it needs {_nodes(ask.count, ask)} to itself, and other teams' jobs hold "
                f"{format_amount(unseen, resource)}",
                f"wait for them, or {scale}" if scale.startswith("trn scale") else "wait for them",
                "nodes-busy",
            )
            return


def _held_in_part(snapshot: JobSnapshot, ask: Ask) -> Iterator[Reason]:
    """Yield a reason if the job's pods find no nodes, and other teams' pods, which are not seen, can keep them out only
    by a part of each node."""
    nodes = nodes_for(ask, snapshot)
    free = len(
        [node for node in nodes if not node.trouble and not untolerated(node.source, ask) and node.fits(ask.each)]
    )
    for resource in ask.each:
        unseen = _unseen(snapshot, resource)
        if snapshot.pods and free >= ask.count > free - unseen:
            held_amount = f"other teams' pods hold {format_amount(unseen, resource)}, a part of each node"
            sentence = f"it needs {_nodes(ask.count, ask)} to itself, and {held_amount}"
            yield fault_reason(Cause.CAPACITY, "nodes-held-in-part", sentence, job="them")
            return


def _unseen(snapshot: JobSnapshot, resource: str) -> Decimal:
    """Return the amount of devices, or interfaces, of pods that are not seen: what the queues count, less the pods that
    are seen."""
    if "/" not in resource:
        return Decimal(0)
    queues = {name_of(each): each for each in snapshot.queues or ()}
    parents = {"root", *(each["spec"].get("parent") for each in queues.values())}
    leaves = [each for name, each in queues.items() if name not in parents]
    counted = (amounts_in_queue(queue, "allocated").get(resource, Decimal(0)) for queue in leaves)
    seen = (
        requests(pod["spec"]).get(resource, Decimal(0))
        for pod in (*snapshot.pods, *snapshot.others)
        if is_bound(pod) and not is_over(pod)
    )
    return sum(counted, Decimal(0)) - sum(seen, Decimal(0))


def _nodes(count: int, ask: Ask) -> str:
    kind = f" of {ask.instance_type}" if ask.instance_type else ""
    return f"{plural(count, 'node')}{kind}"


def _group(snapshot: JobSnapshot, ask: Ask) -> NodeGroupOutput | None:
    """Return the largest group with nodes that the ask selects."""
    return next(iter(_groups(snapshot, ask)), None)


def _groups(snapshot: JobSnapshot, ask: Ask) -> list[NodeGroupOutput]:
    """Return the groups with nodes that the ask selects, the largest first."""
    selector = ask.spec.get("nodeSelector") or {}

    def is_selected(group: NodeGroupOutput) -> bool:
        labels = {**group.labels, instances.INSTANCE_TYPE_LABEL: group.instance_type}
        return all(labels.get(key, value) == value for key, value in selector.items())

    devices = [resource for resource in ask.each if "/" in resource]
    fitting = [
        group
        for group in snapshot.groups
        if is_selected(group) and all(group.resources.get(each, 0) >= ask.each[each] for each in devices)
    ]
    return sorted(fitting, key=lambda group: -group.max_size)


def _scale(group: NodeGroupOutput | None, needed: int, ask: Ask) -> str:
    """Return the remedy that brings more nodes, or another remedy where the group is at its largest."""
    if group is None:
        kind = ask.instance_type or "nodes that fit"
        return BY_NAME["type-without-group"].mend(kind=kind)
    if needed <= group.max_size:
        return f"trn scale {group.name} {needed}"
    if ask.count <= group.max_size:
        return BY_NAME["pool-at-max"].mend(group=group.name, most=group.max_size)
    return BY_NAME["job-larger-than-pool"].mend(nodes=group.max_size, group=group.name)


# --- The network ------------------------------------------------------------------------------------------------------


def _topology(snapshot: JobSnapshot, ask: Ask) -> Iterator[Reason]:
    spec = snapshot.job["spec"]
    parts: Object = next(filter(None, (task.get("partitionPolicy") for task in spec.get("tasks") or ())), {})
    asked = spec.get("networkTopology") or parts.get("networkTopology") or {}
    if not asked or snapshot.hypernodes is None or snapshot.nodes is None:
        return
    shared = shared_members(snapshot.hypernodes)
    if shared:
        surplus = dict.fromkeys(name for parents in shared for name in parents[1:])
        twice = name_some([" and ".join(names) for names in shared], most=2)
        sentence = f"Volcano knows a part of the network twice ({twice}) and places no job by it"
        yield fault_reason(Cause.TOPOLOGY, "hypernodes-doubled", sentence, hypernodes=" ".join(surplus))
    if asked.get("mode", "hard") != "hard":
        return
    tier = int(asked.get("highestTierAllowed", 1))
    groups = _groups_within(snapshot.hypernodes, tier)
    if not groups:
        sentence = f"it must be within tier {tier} of the network, and Volcano knows no part of the network"
        yield fault_reason(Cause.TOPOLOGY, "topology-unknown", sentence)
        return
    domains = {each["spec"].get("tierName"): each["spec"]["tier"] for each in snapshot.hypernodes}
    label = next((label for label in ULTRASERVER_LABELS if domains.get(label) == tier), "")
    if label:
        named = {name_of(each): labels_of(each).get(label, "") for each in snapshot.hypernodes}
        whole = {named[name]: members for name, members in groups.items() if named[name]}
        yield from _whole_parts(snapshot, ask, int(parts.get("partitionSize") or ask.count), label, whole)
        return
    below = len(ULTRASERVER_LABELS) if {*ULTRASERVER_LABELS} & domains.keys() else 0
    yield from _close_enough(snapshot, ask, tier - below, groups)


def _whole_parts(
    snapshot: JobSnapshot, ask: Ask, size: int, label: str, parts: dict[str, set[str]]
) -> Iterator[Reason]:
    """Yield the reason if too few UltraServers, or halves, have all their nodes free. ``parts`` map each id to its
    nodes."""
    nodes = {node.name: node for node in nodes_for(ask, snapshot)}
    free = {name for name, node in nodes.items() if not node.trouble and node.fits(ask.each)}
    taken = {part: members - free for part, members in parts.items() if len(members) < size or members - free}
    if (len(parts) - len(taken)) * size >= ask.count or not taken:
        return
    number, kind = ask.count // size, "UltraServer" if label == ULTRASERVER_LABELS[0] else "half UltraServer"
    left = {part: len(parts[part]) - len(taken[part]) for part in sorted(taken)}
    best = sorted(left, key=lambda part: -left[part])
    shown = name_some([f"{left[part]} of {size} nodes of {kind} {part} are free" for part in best])
    sentence = f"it must have {plural(number, kind)} to itself: {shown}"
    theirs = name_some([*holders([nodes[name] for part in best for name in taken[part] & nodes.keys()])])
    yield fault_reason(Cause.TOPOLOGY, "ultraserver-busy", sentence, wait=f"wait for {theirs}" if theirs else "")


def _close_enough(snapshot: JobSnapshot, ask: Ask, tier: int, groups: dict[str, set[str]]) -> Iterator[Reason]:
    nodes = {node.name: node for node in nodes_for(ask, snapshot) if not node.trouble and node.could_fit(ask.each)}
    most = max(len(members & nodes.keys()) for members in groups.values())
    together = f"{_nodes(ask.count, ask)} within tier {tier} of the network"
    loosen = f"--topology hard --tier {tier + 1}, or --topology soft"
    if most < ask.count:
        sentence = f"it must have {together}, and no part of it has more than {most}"
        yield fault_reason(Cause.TOPOLOGY, "topology-too-narrow", sentence, looser=loosen, nodes=most)
        return
    free = {name for name, node in nodes.items() if node.fits(ask.each)}
    best = max(len(members & free) for members in groups.values())
    if best < ask.count:
        largest = [members for members in groups.values() if len(members & nodes.keys()) >= ask.count]
        in_the_way = holders([node for name, node in nodes.items() if any(name in each for each in largest)])
        wait = f"wait for {name_some([*in_the_way], most=3)}, or " if in_the_way else ""
        yield Reason(
            Cause.TOPOLOGY,
            f"it must have {together}: {len(free)} are free, but at most {best} of them together",
            f"{wait}submit it with {loosen}",
            "topology-busy",
        )


def _groups_within(hypernodes: Sequence[Object], tier: int) -> dict[str, set[str]]:
    """Return the HyperNodes of a tier and below, by name, each with all its nodes."""
    by_name = {name_of(each): each for each in hypernodes}

    def nodes(hypernode: Object, above: frozenset[str]) -> set[str]:
        found: set[str] = set()
        for member in hypernode["spec"].get("members") or ():
            name = (member["selector"].get("exactMatch") or {}).get("name", "")
            if member["type"] == "Node":
                found.add(name)
            elif name in by_name and name not in above:
                found |= nodes(by_name[name], above | {name})
        return found

    return {
        name: nodes(each, frozenset({name}))
        for name, each in by_name.items()
        if int(each["spec"].get("tier", 1)) <= tier
    }


def shared_members(found: Sequence[Object]) -> dict[tuple[str, ...], list[str]]:
    """Return each group of HyperNodes with common members, and these members.

    The HyperNode to keep comes first: the controller's own, which it would make again, otherwise the oldest.
    """

    def is_less_wanted(each: Object) -> tuple[bool, str, str]:
        return not tree.OWNED.items() <= labels_of(each).items(), each["metadata"]["creationTimestamp"], name_of(each)

    parents: dict[Member, list[str]] = {}
    for each in sorted(found, key=is_less_wanted):
        for member in _members(each):
            parents.setdefault(member, []).append(name_of(each))
    shared: dict[tuple[str, ...], list[str]] = {}
    for (_, name), names in sorted(parents.items()):
        if len(names) > 1:
            shared.setdefault(tuple(names), []).append(name)
    return shared


def _members(hypernode: Object) -> set[Member]:
    """Return members by name. The controller names all members; only people select nodes by a pattern or by labels."""
    members = hypernode["spec"].get("members") or ()
    return {
        (each["type"], each["selector"]["exactMatch"]["name"]) for each in members if "exactMatch" in each["selector"]
    }
