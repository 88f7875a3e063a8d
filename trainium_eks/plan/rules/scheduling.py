"""R61-R63 and R93: Volcano's HyperNodes, etcd, device plugins, and the repair of nodes."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainium_eks.model import node_labels
from trainium_eks.model.catalogue.chart_workloads import HYPERNODES
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL, InstanceType
from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import Json, at, items, mapping, number, show, text, true
from trainium_eks.plan.rules._autoscaled import Pool, nodes_of
from trainium_eks.plan.rules._objects import namespace, object_name, releases, walk
from trainium_eks.plan.rules._rule import broken, judged, rule
from trainium_eks.plan.subjects import DEPLOYMENT, NodeGroup

MOUNTS_ACCEPTED = re.compile(r"accept-nvidia-visible-devices-as-volume-mounts\s*=\s*true")
"""The setting of NVIDIA's container runtime, as its file or ``nvidia-ctk config`` has it. Bottlerocket has it on."""


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


@rule("R61", "Keep etcd inside the cluster", "medium", "torchx resources/etcd.yaml")
def rendezvous(graph: Graph) -> Iterator[Finding]:
    """The rendezvous etcd is one pod without a password: a ClusterIP service, and a network policy that names the
    allowed peers. Our chart has both; its values must not undo them."""
    for release in (each for each in releases(graph) if "etcd" in text(each.inputs.get("chart"))):
        values = mapping(release.inputs.get("values"))
        kind = at(values, "service.type")
        faults = [] if kind in (None, "ClusterIP") else [f'values.service.type is {show(kind)}, wanted "ClusterIP"']
        policy = at(values, "networkPolicy.enabled")
        if policy is not None and not true(policy):
            faults.append(f"values.networkPolicy.enabled is {show(policy)}, wanted true")
        yield from judged(release, faults, "reached inside the cluster only")
    guarded = {namespace(each) for each in graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")}
    for service in graph.of_type("kubernetes:core/v1:Service"):
        if any(number(at(port, "port")) == 2379 for port in items(at(service.inputs, "spec.ports"))):
            kind = at(service.inputs, "spec.type")
            faults = [] if kind in (None, "ClusterIP") else [f'spec.type is {show(kind)}, wanted "ClusterIP"']
            if namespace(service) not in guarded:
                faults.append(f"no NetworkPolicy in {namespace(service)}, wanted one that says who reaches port 2379")
            yield from judged(service, faults, "reached inside the cluster only")


@rule("R62", "Install device plugins on every type of the pool", "high", "aws-do-eks#56, own")
def plugin_types(graph: Graph) -> Iterator[Finding]:
    """Plugin charts list instance types; a type that is missing gets no plugin, and a DaemonSet with DESIRED 0 looks
    healthy. The list holds the pool's types and the plugin tolerates their taints; every family in the pool has its
    plugin. Where the NVIDIA plugin hands out devices as mounts, the nodes' runtime accepts them."""
    found = {name: releases(graph, name) for name in PLUGINS}
    for name, plugin in PLUGINS.items():
        served = [(each, type_) for each in nodes_of(graph) for type_ in each.instances if _is_served(type_, plugin)]
        types = sorted({type_.name for _, type_ in served})
        nodes = [each for each, _ in served]
        for release in found[name] if served else ():
            yield from judged(release, _plugin_faults(graph, release, plugin, types, nodes), "lists the pool's types")
        if served and plugin.device and not found[name]:
            fault = f"no Release of chart {name} for {', '.join(types)}, wanted one"
            for plane in graph.control_planes:
                yield broken(plane.resource.urn, fault)


@rule("R63", "Let only one controller repair nodes", "medium", "own")
def one_recovery(graph: Graph) -> Iterator[Finding]:
    """EKS node repair and Neuron's node recovery both replace a broken node; together they fight, and with neither
    a broken device stays in the gang."""
    recovering = [
        release.name
        for release in releases(graph, "neuron-helm-chart")
        if true(at(release.inputs, "values.npd.nodeRecovery.enabled"))
        and at(release.inputs, "values.npd.enabled") is not False
    ]
    for group in graph.accelerator_groups:
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
def discovery(graph: Graph) -> Iterator[Finding]:
    """Volcano 1.15 names a HyperNode at random when its cache shows none for the switch, and the cache lags while nodes
    join together: one switch gets two, and no job with a topology is placed any more. VolcanoStack's own controller
    names them after the switch; where a group's nodes are in UltraServers, it must know the labels of those, too, by
    which `--tier` counts Volcano's tiers."""
    path = "values.custom.controller_config_override"
    for release in releases(graph, "volcano"):
        found = at(release.inputs, path)
        if isinstance(found, str):
            by_label = re.search(r"source:\s*[\"']?label\b", found) is not None
        else:
            sources = items(at(found, "networkTopologyDiscovery"))
            by_label = any(at(each, "source") == "label" and true(at(each, "enabled")) for each in sources)
        faults = [f"{path}: networkTopologyDiscovery has the source label, wanted none"] if by_label else []
        yield from judged(release, faults, "discovers no HyperNodes by label")
    due = node_labels.topology_labels((each.type_name for each in graph.node_groups), graph.catalogue)
    for controller in graph.of_type(DEPLOYMENT):
        if object_name(controller) == HYPERNODES.name and namespace(controller) == HYPERNODES.namespace:
            arguments = json.dumps(at(controller.inputs, "spec.template.spec.containers"))
            lacking = [each for each in due if each in node_labels.ULTRASERVER_LABELS and each not in arguments]
            faults = [f"its arguments lack {each}, wanted it, because of UltraServers" for each in lacking]
            yield from judged(controller, faults, "knows the labels of all tiers")


def _is_served(type_: InstanceType, plugin: Plugin) -> bool:
    return type_.has_efa and type_.family != "cpu" if plugin.serves == "efa" else type_.family == plugin.serves


def _plugin_faults(
    graph: Graph, release: Resource, plugin: Plugin, wanted: list[str], nodes: list[NodeGroup | Pool]
) -> Iterator[str]:
    values = mapping(release.inputs.get("values"))
    path, found = (plugin.types, at(values, plugin.types)) if plugin.types else _affinity(values)
    if plugin.types or path:
        lacking = [name for name in wanted if name not in items(found)]
        if lacking:
            yield f"values.{path} is {show(found)}, wanted also {', '.join(lacking)}"
    if plugin.serves == "nvidia" and "volume-mounts" in text(at(values, "deviceListStrategy")):
        yield from _unmounted(nodes)
    keys = {taint.key for name in wanted for taint in graph.catalogue.taints(name)}
    stated = at(values, plugin.tolerations)
    tolerated = plugin.tolerated if stated is None else [text(at(each, "key")) for each in items(stated)]
    everything = any(at(each, "key") is None and at(each, "operator") == "Exists" for each in items(stated))
    closed = sorted(keys - set(tolerated))
    if closed and not everything:
        yield f"values.{plugin.tolerations} is {show(stated)}, wanted also {', '.join(closed)}"


def _unmounted(nodes: list[NodeGroup | Pool]) -> Iterator[str]:
    """Yield a fault for each group or pool that would ignore a device list that comes as mounts."""
    for group in nodes:
        if not group.is_bottlerocket and not any(MOUNTS_ACCEPTED.search(part) for part in group.scripts):
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
