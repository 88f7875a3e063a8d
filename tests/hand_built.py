"""A small environment built by hand: every type that cost, time and comparison look at, and no program behind it."""

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

import yaml

from trainium_eks.plan.graph import STACK_TYPE, Graph, Options, Resource

PREFIX = "urn:pulumi:dev::trainium-eks::"
STACK = f"{PREFIX}{STACK_TYPE}::trainium-eks-dev"


def urn(name, graph):
    """The URN of the one resource of that name."""
    [found] = [resource.urn for resource in graph.resources if resource.name == name]
    return found


class Builder:
    """Collects resources; ``made`` maps a name to its URN."""

    def __init__(self):
        self.made = {"": STACK}
        self.resources = [Resource(STACK, STACK_TYPE, "trainium-eks-dev", custom=False)]

    def component(self, kind, name, waits=()):
        self._add(f"trainium-eks:index:{kind}", name, "", custom=False, dependencies=self._urns(waits))

    def add(self, type_, name, parent="", /, *, uses=None, waits=(), provider="", options=None, **inputs):
        """``uses``: input name to the resources whose outputs it takes. ``waits``: ``depends_on``."""
        properties = {key: self._urns(names) for key, names in (uses or {}).items()}
        named = {each for urns in properties.values() for each in urns} | set(self._urns(waits))
        parts = {"dependencies": tuple(sorted(named)), "property_dependencies": properties}
        inputs = {**{key: f"sim-{key}" for key in properties}, **inputs}
        parts |= {"provider": self.made[provider] if provider else "", "options": options or Options()}
        self._add(type_, name, parent, inputs=inputs, **parts)

    def graph(self, config=None):
        resources = tuple(sorted(self.resources, key=lambda each: each.urn))
        config = {"region": "us-west-2", **(config or {})}
        return Graph("trainium-eks", "dev", resources, {"queueNames": ["test"]}, config, ("aws", "kubernetes"))

    def _urns(self, names):
        return tuple(sorted(self.made[name] for name in names))

    def _add(self, type_, name, parent, **values):
        self.made[name] = f"{PREFIX}{type_}::{name}"
        self.resources.append(Resource(self.made[name], type_, name, parent=self.made[parent], **values))


@cache
def _rows():
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def environment(config=None):
    """One zone's worth of the dev environment, in the order that a good design has."""
    build = Builder()
    for row in copy.deepcopy(_rows()):
        waits = tuple(row.pop("waits", ()))
        if "component" in row:
            build.component(row["component"], row["name"], waits=waits)
        elif "group" in row:
            node_group(build, row.pop("group"), **row)
        else:
            uses = {key: tuple(names) for key, names in row.get("uses", {}).items()}
            options = Options(protect=row.get("protect", False))
            given = {"uses": uses, "waits": waits, "provider": row.get("provider", ""), "options": options}
            build.add(row["type"], row["name"], row.get("in", ""), **given, **row.get("inputs", {}))
    return build.graph(config)


def node_group(build, name, instance_type, nodes, most, *, accelerated=False):
    """A group with its launch template."""
    efa = [{"interfaceType": "efa" if card == 0 else "efa-only"} for card in range(8 if accelerated else 0)]
    build.add(
        "aws:ec2/launchTemplate:LaunchTemplate",
        f"{name}-template",
        "eks",
        uses={"vpcSecurityGroupIds": ("control-plane",)},
        instanceType=instance_type,
        networkInterfaces=efa,
        blockDeviceMappings=[{"ebs": {"volumeSize": 100, "volumeType": "gp3", "throughput": 500, "iops": 3000}}],
    )
    taints = [{"key": "aws.amazon.com/neuron", "value": "present", "effect": "NO_SCHEDULE"}] if accelerated else []
    build.add(
        "aws:eks/nodeGroup:NodeGroup",
        name,
        "eks",
        uses={
            "clusterName": ("control-plane",),
            "nodeRoleArn": ("node-role",),
            "subnetIds": ("subnet",),
            "launchTemplate": (f"{name}-template",),
        },
        waits=("cni", "nat", "worker"),
        launchTemplate={"id": "sim-template", "version": "1"},
        subnetIds=["sim-subnet"],
        amiType="AL2023_x86_64_NEURON" if accelerated else "AL2023_x86_64_STANDARD",
        capacityType="ON_DEMAND",
        scalingConfig={"minSize": 0, "desiredSize": nodes, "maxSize": most},
        taints=taints,
    )


def _edited(graph, name, edit):
    assert any(each.name == name for each in graph.resources), f"no resource {name}"
    return replace(graph, resources=tuple(edit(each) if each.name == name else each for each in graph.resources))


def with_parts(graph, name, **parts):
    """The graph with other parts of one resource: options, outputs, dependencies."""
    return _edited(graph, name, lambda resource: replace(resource, **parts))


def changed(graph, name, /, **inputs):
    """The graph with some inputs of one resource set anew; None takes an input away."""

    def edit(resource):
        edited = {**resource.inputs, **inputs}
        return replace(resource, inputs={key: value for key, value in edited.items() if value is not None})

    return _edited(graph, name, edit)


def waiting(graph, name, *others):
    """The graph, with one resource that also waits for others."""
    more = {urn(other, graph) for other in others}
    return _edited(graph, name, lambda it: replace(it, dependencies=tuple(sorted({*it.dependencies, *more}))))


def without(graph, *names):
    """The graph without some resources and without dependencies on them."""
    gone = {resource.urn for resource in graph.resources if resource.name in names}

    def left(urns):
        return tuple(each for each in urns if each not in gone)

    def edit(resource):
        kept = {key: left(urns) for key, urns in resource.property_dependencies.items()}
        return replace(resource, dependencies=left(resource.dependencies), property_dependencies=kept)

    return replace(graph, resources=tuple(edit(each) for each in graph.resources if each.urn not in gone))
