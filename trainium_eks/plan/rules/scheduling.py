"""R58-R63 and R93: Volcano, its queues and HyperNodes, etcd, device plugins, and the repair of nodes."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import yaml

from trainium_eks.model import volcano_config
from trainium_eks.model.catalogue.chart_workloads import HYPERNODES
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL
from trainium_eks.model.sizing.quantities import quantity
from trainium_eks.plan.graph import Resource
from trainium_eks.plan.rules._autoscaled import Supply, supplies
from trainium_eks.plan.rules._facts import DEPLOYMENT, QUEUE
from trainium_eks.plan.rules._objects import namespace, object_name, releases, walk
from trainium_eks.plan.rules._read import Json, at, given, items, known, mapping, number, show, text, true
from trainium_eks.plan.rules._rule import Judgement, judged, rule
from trainium_eks.plan.rules._view import View

HOLDING = ("overcommit", "proportion", "capacity")
"""Plugins of Volcano's scheduler that compare a waiting job with the nodes that exist (1.15, ``JobEnqueueableFn``)."""

COMPONENTS = ("scheduler", "controller", "admission")
MOUNTS_ACCEPTED = re.compile(r"accept-nvidia-visible-devices-as-volume-mounts\s*=\s*true")
"""The setting of NVIDIA's container runtime, as its file or ``nvidia-ctk config`` has it. Bottlerocket has it on."""
PDB = "kubernetes:policy/v1:PodDisruptionBudget"


@dataclass(frozen=True)
class Plugin:
    """Selection of nodes by a chart that serves accelerator nodes."""

    serves: str
    """``neuron``, ``nvidia`` or ``efa``."""
    types: str
    """Path of the list of instance types; empty when the chart selects by affinity."""
    tolerations: str
    tolerated: tuple[str, ...] = ()
    """Taint keys that the chart tolerates when nothing is set."""
    device: bool = False
    """Whether pods get no device without it."""


PLUGINS = {
    "neuron-helm-chart": Plugin(
        "neuron", "neuronInstances", "devicePlugin.tolerations", ("aws.amazon.com/neuron",), True
    ),
    "aws-efa-k8s-device-plugin": Plugin("efa", "supportedInstanceLabels.values", "tolerations", (), True),
    "nvidia-device-plugin": Plugin("nvidia", "", "tolerations", ("nvidia.com/gpu",), True),
    "neuron-monitor": Plugin("neuron", "instanceTypes", "tolerations"),
    "dcgm-exporter": Plugin("nvidia", "", "tolerations"),
}


@rule("R58", "Run Volcano twice, with leader election", "high", "Volcano chart defaults (1 copy, no election)")
def volcano_copies(view: View) -> Iterator[Judgement]:
    """A lost scheduler or webhook stops every new job: two copies of each, one leader, and a disruption budget so that
    a drain takes one at a time. The chart leaves kube-system out of its webhooks by itself. Independent of
    `model/sizing/queues.py`, which validates the config."""
    for release in releases(view, "volcano"):
        values = mapping(release.inputs.get("values"))
        faults = []
        for component in COMPONENTS:
            found = at(values, f"custom.{component}_replicas")
            copies = number(found)
            if copies is None or copies < 2:
                faults.append(f"values.custom.{component}_replicas is {show(found)}, wanted 2 or more")
        leader = at(values, "custom.leader_elect_enable")
        if not true(leader):
            faults.append(f"values.custom.leader_elect_enable is {show(leader)}, wanted true")
        covered = {
            text(at(each.inputs, "spec.selector.matchLabels.app"))
            for each in view.of(PDB)
            if namespace(each) == namespace(release)
        }
        lacking = [f"volcano-{each}" for each in COMPONENTS if f"volcano-{each}" not in covered]
        if lacking:
            faults.append(
                f"no PodDisruptionBudget in {namespace(release)} selects app {', '.join(lacking)}, wanted one each"
            )
        yield from judged(release, faults, "two copies, leader election, disruption budgets")


@rule("R59", "Keep guarantee <= deserved <= capability <= pool", "high", "Volcano queue webhook, own")
def queue_amounts(view: View) -> Iterator[Judgement]:
    """Volcano's webhook checks all but the last; a queue that may use more than the node groups and Karpenter's pools
    have at their maximum leaves a job pending for ever. Guarantees of sibling queues must fit together. Independent of
    `model/sizing/queues.py`, which validates the config."""
    pool = _pool(view)
    queues = view.of(QUEUE)
    by_name = {object_name(each): each for each in queues}
    for queue in queues:
        parent = by_name.get(text(at(queue.inputs, "spec.parent")))
        yield from judged(queue, _queue_faults(queue, parent, pool), "amounts are in order and within the pool")
    for parent_name, total in _guarantees(queues).items():
        above = _amounts(by_name[parent_name], "capability") if parent_name in by_name else pool
        for resource, amount in total.items():
            if resource in above and amount > above[resource]:
                of = f"queue {parent_name}" if parent_name in by_name else "the pool"
                message = (
                    f"spec.guarantee of all queues is {amount:g} {resource}, wanted at most {above[resource]:g} of {of}"
                )
                yield Judgement(view.stack_urn, False, message)


@rule("R60", "Let jobs create pods while a pool has no nodes", "high", "volcano#3910, volcano#2558")
def scale_from_zero(view: View) -> Iterator[Judgement]:
    """With the enqueue action and a plugin that looks at nodes, a job gets no pods until nodes exist; an autoscaler
    then sees no demand. Judged when an accelerator group has minSize 0, or Karpenter has a pool of accelerators; the
    chart's default configuration is such. Independent of `model/sizing/queues.py`, which validates the config."""
    resting = [each.resource.name for each in supplies(view) if each.accelerated and not each.fewest]
    if not resting:
        return
    for release in releases(view, "volcano"):
        path = "values.custom.scheduler_config_override"
        found = at(release.inputs, path)
        configuration = _scheduler_configuration(found)
        actions = configuration.get("actions")
        holding = sorted(_holding(configuration))
        ends = f"{', '.join(resting)} may have no node"
        if not known(actions) or not given(actions):
            faults = [f"{path} is {show(found)}, wanted actions without enqueue: {ends}"]
        elif "enqueue" in re.split(r"[\s,]+", str(actions)) and holding:
            wanted = "wanted no enqueue, or none of its plugins that look at nodes"
            faults = [f"{path}: actions is {show(actions)} with {', '.join(holding)}, {wanted}: {ends}"]
        else:
            faults = []
        yield from judged(release, faults, f"actions are {actions}")


@rule("R61", "Keep etcd inside the cluster", "medium", "torchx resources/etcd.yaml")
def rendezvous(view: View) -> Iterator[Judgement]:
    """The rendezvous etcd is one pod without a password: a ClusterIP service, and a network policy that names the
    allowed peers. Our chart has both; its values must not undo them."""
    for release in (each for each in releases(view) if "etcd" in text(each.inputs.get("chart"))):
        values = mapping(release.inputs.get("values"))
        kind = at(values, "service.type")
        faults = [] if kind in (None, "ClusterIP") else [f'values.service.type is {show(kind)}, wanted "ClusterIP"']
        policy = at(values, "networkPolicy.enabled")
        if policy is not None and not true(policy):
            faults.append(f"values.networkPolicy.enabled is {show(policy)}, wanted true")
        yield from judged(release, faults, "reached inside the cluster only")
    guarded = {namespace(each) for each in view.of("kubernetes:networking.k8s.io/v1:NetworkPolicy")}
    for service in view.of("kubernetes:core/v1:Service"):
        if any(number(at(port, "port")) == 2379 for port in items(at(service.inputs, "spec.ports"))):
            kind = at(service.inputs, "spec.type")
            faults = [] if kind in (None, "ClusterIP") else [f'spec.type is {show(kind)}, wanted "ClusterIP"']
            if namespace(service) not in guarded:
                faults.append(f"no NetworkPolicy in {namespace(service)}, wanted one that says who reaches port 2379")
            yield from judged(service, faults, "reached inside the cluster only")


@rule("R62", "Install device plugins on every type of the pool", "high", "aws-do-eks#56, own")
def plugin_types(view: View) -> Iterator[Judgement]:
    """Plugin charts list instance types; a type that is missing gets no plugin, and a DaemonSet with DESIRED 0 looks
    healthy. The list holds the pool's types and the plugin tolerates their taints; every family in the pool has its
    plugin. Where the NVIDIA plugin hands out devices as mounts, the nodes' runtime accepts them."""
    found = {name: releases(view, name) for name in PLUGINS}
    for name, plugin in PLUGINS.items():
        groups = [each for each in supplies(view) if each.accelerated and _served(each, plugin)]
        for release in found[name] if groups else ():
            yield from judged(release, _plugin_faults(view, release, plugin, groups), "lists the pool's types")
        if groups and plugin.device and not found[name]:
            types = ", ".join(sorted({group.type_name for group in groups}))
            for plane in view.control_planes:
                yield Judgement(plane.resource.urn, False, f"no Release of chart {name} for {types}, wanted one")


@rule("R63", "Let only one controller repair nodes", "medium", "own")
def one_recovery(view: View) -> Iterator[Judgement]:
    """EKS node repair and Neuron's node recovery both replace a broken node; together they fight, and with neither
    a broken device stays in the gang."""
    recovering = [
        release.name
        for release in releases(view, "neuron-helm-chart")
        if true(at(release.inputs, "values.npd.nodeRecovery.enabled"))
        and at(release.inputs, "values.npd.enabled") is not False
    ]
    for group in view.accelerator_groups:
        repair = true(at(group.resource.inputs, "nodeRepairConfig.enabled"))
        neuron = group.instance is None or group.instance.family == "neuron"
        faults = []
        if repair and recovering and neuron:
            faults.append(
                f"nodeRepairConfig.enabled is true beside npd.nodeRecovery of {recovering[0]}, wanted one of them"
            )
        if not repair and not (recovering and neuron):
            faults.append("nodeRepairConfig.enabled is not true and no node recovery is on, wanted one of them")
        yield from judged(group.resource, faults, "repaired by EKS" if repair else "repaired by Neuron's recovery")


@rule("R93", "Let Volcano discover no HyperNodes by label", "high", "volcano#5877, own")
def discovery(view: View) -> Iterator[Judgement]:
    """Volcano 1.15 names a HyperNode at random when its cache shows none for the switch, and the cache lags while nodes
    join together: one switch gets two, and no job with a topology is placed any more. VolcanoStack's own controller
    names them after the switch; where a group's nodes are in UltraServers, it must know the labels of those, too, by
    which `--tier` counts Volcano's tiers."""
    path = "values.custom.controller_config_override"
    for release in releases(view, "volcano"):
        found = at(release.inputs, path)
        if isinstance(found, str):
            by_label = re.search(r"source:\s*[\"']?label\b", found) is not None
        else:
            sources = items(at(found, "networkTopologyDiscovery"))
            by_label = any(at(each, "source") == "label" and true(at(each, "enabled")) for each in sources)
        faults = [f"{path}: networkTopologyDiscovery has the source label, wanted none"] if by_label else []
        yield from judged(release, faults, "discovers no HyperNodes by label")
    due = volcano_config.topology_labels((each.type_name for each in view.node_groups), view.catalogue)
    for controller in view.of(DEPLOYMENT):
        if object_name(controller) == HYPERNODES.name and namespace(controller) == HYPERNODES.namespace:
            arguments = json.dumps(at(controller.inputs, "spec.template.spec.containers"))
            lacking = [each for each in due if each in volcano_config.ULTRASERVER_LABELS and each not in arguments]
            faults = [f"its arguments lack {each}, wanted it, because of UltraServers" for each in lacking]
            yield from judged(controller, faults, "knows the labels of all tiers")


def _amounts(queue: Resource, part: str) -> dict[str, Decimal]:
    path = "spec.guarantee.resource" if part == "guarantee" else f"spec.{part}"
    amounts = {name: quantity(value) for name, value in mapping(at(queue.inputs, path)).items()}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _queue_faults(queue: Resource, parent: Resource | None, pool: dict[str, Decimal]) -> Iterator[str]:
    if object_name(queue) in ("default", "root"):
        yield f"metadata.name is {object_name(queue)}, which is Volcano's own, wanted another"
    for part in ("capability", "deserved", "guarantee.resource"):
        for name, value in mapping(at(queue.inputs, f"spec.{part}")).items():
            if quantity(value) is None:
                yield f"spec.{part}[{name}] is {show(value)}, wanted an amount"
    parts = {part: _amounts(queue, part) for part in ("guarantee", "deserved", "capability")}
    for low, high in (("guarantee", "deserved"), ("deserved", "capability"), ("guarantee", "capability")):
        for name, amount in parts[low].items():
            if name in parts[high] and amount > parts[high][name]:
                yield f"spec.{low}[{name}] is {amount:g}, wanted at most {high} {parts[high][name]:g}"
    above = _amounts(parent, "capability") if parent is not None else {}
    for part, amounts in parts.items():
        for name, amount in amounts.items():
            if name in above and amount > above[name]:
                yield f"spec.{part}[{name}] is {amount:g}, wanted at most {above[name]:g} of the parent queue"
            # Only devices are counted: CPU and memory of a pool are also the system pods'.
            if pool and "/" in name and amount > pool.get(name, 0):
                yield f"spec.{part}[{name}] is {amount:g}, wanted at most {pool.get(name, 0):g} (all nodes)"


def _pool(view: View) -> dict[str, Decimal]:
    """Return the devices and EFA interfaces of all groups and pools of accelerator nodes, at their maximum; empty
    without any.

    A pool of several types has its maximum in one of them at a time.
    """
    most: dict[tuple[str, str], Decimal] = {}
    for supply in supplies(view):
        for name, count in view.catalogue.device_resources(supply.type_name).items() if supply.instance else ():
            key = supply.resource.urn, name
            most[key] = max(most.get(key, Decimal(0)), Decimal(supply.most or 0) * count)
    pool: dict[str, Decimal] = {}
    for (_, name), amount in most.items():
        pool[name] = pool.get(name, Decimal(0)) + amount
    return pool


def _guarantees(queues: tuple[Resource, ...]) -> dict[str, dict[str, Decimal]]:
    """Return the sum of the guarantees of the queues under each parent (empty name: the root)."""
    total: dict[str, dict[str, Decimal]] = {}
    for queue in queues:
        parent = text(at(queue.inputs, "spec.parent"))
        within = total.setdefault("" if parent == "root" else parent, {})
        for name, amount in _amounts(queue, "guarantee").items():
            within[name] = within.get(name, Decimal(0)) + amount
    return total


def _scheduler_configuration(found: Json) -> Mapping[str, Json]:
    """Return the scheduler's configuration, given as YAML or as an object; empty where it is neither."""
    if isinstance(found, str):
        try:
            found = yaml.safe_load(found)
        except yaml.YAMLError:
            return {}
    return mapping(found)


def _holding(configuration: Mapping[str, Json]) -> Iterator[str]:
    """Yield the plugins by which the action enqueue holds a job back until the nodes that exist have room for it."""
    for tier in items(configuration.get("tiers")):
        for plugin in items(mapping(tier).get("plugins")):
            name = text(mapping(plugin).get("name"))
            if name in HOLDING and mapping(plugin).get("enableJobEnqueued") is not False:
                yield name


def _served(supply: Supply, plugin: Plugin) -> bool:
    if supply.instance is None:
        return False
    return supply.instance.has_efa if plugin.serves == "efa" else supply.instance.family == plugin.serves


def _plugin_faults(view: View, release: Resource, plugin: Plugin, groups: list[Supply]) -> Iterator[str]:
    values = mapping(release.inputs.get("values"))
    wanted = sorted({group.type_name for group in groups})
    path, found = (plugin.types, at(values, plugin.types)) if plugin.types else _affinity(values)
    if plugin.types or path:
        lacking = [name for name in wanted if name not in items(found)]
        if lacking:
            yield f"values.{path} is {show(found)}, wanted also {', '.join(lacking)}"
    if plugin.serves == "nvidia" and "volume-mounts" in text(at(values, "deviceListStrategy")):
        yield from _unmounted(groups)
    keys = {taint.key for name in wanted for taint in view.catalogue.taints(name)}
    stated = at(values, plugin.tolerations)
    tolerated = plugin.tolerated if stated is None else [text(at(each, "key")) for each in items(stated)]
    everything = any(at(each, "key") is None and at(each, "operator") == "Exists" for each in items(stated))
    closed = sorted(keys - set(tolerated))
    if closed and not everything:
        yield f"values.{plugin.tolerations} is {show(stated)}, wanted also {', '.join(closed)}"


def _unmounted(groups: list[Supply]) -> Iterator[str]:
    """Yield a fault for each group or pool that would ignore a device list that comes as mounts."""
    for group in groups:
        if not group.bottlerocket and not any(MOUNTS_ACCEPTED.search(part) for part in group.boot):
            yield (
                f"values.deviceListStrategy is volume-mounts, but userData of {group.resource.name} does not set"
                " accept-nvidia-visible-devices-as-volume-mounts=true, so its pods would see no device"
            )


def _affinity(values: Json) -> tuple[str, Json]:
    """Return path and values of an affinity by instance type; an empty path when the chart's own affinity holds."""
    for path, each in walk(at(values, "affinity"), "affinity"):
        if each.get("key") == INSTANCE_TYPE_LABEL:
            return f"{path}.values", each.get("values")
    return "", None
