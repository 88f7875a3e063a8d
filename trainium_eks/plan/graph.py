"""The graph of a recorded program: resources, the edges that order them, and the look-ups that rules share.

The JSON form (:meth:`Graph.to_json`) crosses between a program's process and the command line.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue, CatalogueError
from trainium_eks.plan.reading import Json, at, given, items, known, leaves, mapping, text
from trainium_eks.plan.resource import (
    RETAIN_ON_DELETE,
    SCHEMA_VERSION,
    SECRET,
    SECRETS,
    STACK_TYPE,
    UNKNOWN,
    Options,
    Resource,
)
from trainium_eks.plan.subjects import (
    ADDON,
    CLUSTER,
    EFA,
    EKS_CLUSTER,
    LAUNCH_TEMPLATE,
    NODE_GROUP,
    SUBNET,
    ControlPlane,
    NodeGroup,
    SecurityRule,
    security_rules,
    zone,
)

__all__ = [
    "RETAIN_ON_DELETE",
    "SCHEMA_VERSION",
    "SECRET",
    "SECRETS",
    "STACK_TYPE",
    "UNKNOWN",
    "Graph",
    "Options",
    "Resource",
    "camel",
    "grouped",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Graph:
    """A whole recorded program, sorted by URN."""

    project: str
    stack: str
    resources: tuple[Resource, ...]
    outputs: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    """The project's config, decoded, without namespace; secrets as :data:`SECRET`."""
    simulated: tuple[str, ...] = ()
    """Packages with made-up answers (``aws``, ``eks``, ``kubernetes``)."""
    warnings: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    """Look-ups with a made-up answer, one line each."""
    untold: frozenset[str] = frozenset()
    """Facts that are unknown for every resource: :data:`RETAIN_ON_DELETE`, :data:`SECRETS`. A policy pack's graph lists
    them; a recorded program's graph lists none."""
    unjudged: tuple[str, ...] = ()
    """Resource types that are not known here, and types of components that another package builds: they are shown, and
    neither priced, timed nor checked by rules."""

    @cached_property
    def by_urn(self) -> Mapping[str, Resource]:
        """Resource by URN."""
        return {resource.urn: resource for resource in self.resources}

    @cached_property
    def _by_type(self) -> Mapping[str, tuple[Resource, ...]]:
        return grouped((resource.type, resource) for resource in self.resources)

    @cached_property
    def _children(self) -> Mapping[str, tuple[Resource, ...]]:
        return grouped((resource.parent, resource) for resource in self.resources)

    @cached_property
    def not_simulated(self) -> tuple[Resource, ...]:
        """The resources of unknown types, and the components without their parts (a component that was built here
        has outputs)."""
        return tuple(
            each for each in self.resources if each.type in self.unjudged and (each.custom or not each.outputs)
        )

    def of_type(self, *types: str) -> tuple[Resource, ...]:
        """Return the resources of these type tokens, in URN order within each type."""
        return tuple(resource for type_ in types for resource in self._by_type.get(type_, ()))

    def children(self, urn: str) -> tuple[Resource, ...]:
        """Return the direct children of a URN."""
        return self._children.get(urn, ())

    def descendants(self, urn: str) -> Iterator[Resource]:
        """Yield children, their children and so on."""
        for child in self.children(urn):
            yield child
            yield from self.descendants(child.urn)

    def ancestors(self, resource: Resource) -> Iterator[Resource]:
        """Yield parent, its parent and so on, the stack last."""
        while resource.parent and (parent := self.by_urn.get(resource.parent)) is not None:
            yield parent
            resource = parent

    def component_of(self, resource: Resource) -> Resource | None:
        """Return the nearest component above a resource (itself excluded), or None directly under the stack."""
        return next(
            (above for above in self.ancestors(resource) if not above.custom and above.type != STACK_TYPE), None
        )

    @property
    def production(self) -> bool:
        """Whether the environment is held to the production rules."""
        return self.config.get("production") is True

    @cached_property
    def stack_urn(self) -> str:
        """URN of the stack itself, recorded or not."""
        recorded = next((each.urn for each in self.of_type(STACK_TYPE)), "")
        return recorded or f"urn:pulumi:{self.stack}::{self.project}::{STACK_TYPE}::{self.project}-{self.stack}"

    def cluster_objects(self, resource: Resource) -> "Graph":
        """Return the program with the Kubernetes objects of the resource's cluster alone.

        Another cluster may have a namespace of the same name.
        """
        provider = resource.provider
        if provider not in self._of_clusters:
            others = (each for each in self.resources if each.provider != provider)
            elsewhere = {each.urn for each in others if each.type.startswith("kubernetes:")}
            here = tuple(each for each in self.resources if each.urn not in elsewhere)
            self._of_clusters[provider] = replace(self, resources=here)
        return self._of_clusters[provider]

    @cached_property
    def _of_clusters(self) -> "dict[str, Graph]":
        return {}

    @cached_property
    def catalogue(self) -> Catalogue:
        """The catalogue with the environment's own entries."""
        own = mapping(self.config.get("instanceTypes"))
        try:
            return with_entries(CATALOGUE, {name: mapping(entry) for name, entry in own.items()}) if own else CATALOGUE
        except CatalogueError:  # refused with the config itself, long before a rule runs
            return CATALOGUE

    # References between resources --------------------------------------------------------------------------------

    @cached_property
    def _by_handle(self) -> Mapping[tuple[str, str], Resource]:
        """Resource by type and by the handles that others use: id, ARN, name."""
        found: dict[tuple[str, str], Resource] = {}
        for resource in self.resources:
            for values in (resource.outputs, resource.inputs):
                for key in ("id", "arn", "name", "bucket", "keyId"):
                    handle = text(values.get(key))
                    if handle:
                        found.setdefault((resource.type, handle), resource)
        return found

    def named(self, handle: Json, *types: str) -> Resource | None:
        """Return the resource of one of these types with this handle (id, ARN or name), or None."""
        return next(
            (self._by_handle[type_, text(handle)] for type_ in types if (type_, text(handle)) in self._by_handle), None
        )

    def refers(self, resource: Resource, path: str, *types: str) -> tuple[Resource, ...]:
        """Return the resources of these types that an input refers to, by value, else by the origin of the value."""
        found: dict[str, Resource] = {}
        unknown = False
        for _, handle in leaves(at(resource.inputs, path)):
            target = self.named(handle, *types)
            if target is not None:
                found[target.urn] = target
            unknown = unknown or handle == UNKNOWN
        if unknown or not found:
            for urn in resource.property_dependencies.get(path.split(".")[0].split("[")[0], ()):
                source = self.by_urn.get(urn)
                if source is not None and source.type in types:
                    found.setdefault(urn, source)
        return tuple(found.values())

    def referring(self, target: Resource, path: str, *types: str) -> tuple[Resource, ...]:
        """Return the resources of these types with an input that refers to the target."""
        key = (target.type, path, types)
        if key not in self._referring:
            index = self._referring[key] = {}
            for resource in self.of_type(*types):
                for found in self.refers(resource, path, target.type):
                    index.setdefault(found.urn, []).append(resource)
        return tuple(self._referring[key].get(target.urn, ()))

    @cached_property
    def _referring(self) -> dict[tuple[str, str, tuple[str, ...]], dict[str, list[Resource]]]:
        """Index by type of the target, path and types of the referring resources: URN of the target to these."""
        return {}

    def upstream(self, *roots: Resource) -> frozenset[str]:
        """Return the URNs of all resources that must exist before these resources.

        A dependency on a component is a dependency on its children; the dependencies of pulumi-eks' remote component
        are its children's too, because it is constructed only then.
        """
        seen: set[str] = set()
        waiting = [urn for root in roots for urn in self._needs(root)]
        while waiting:
            urn = waiting.pop()
            resource = self.by_urn.get(urn)
            if urn in seen or resource is None:
                continue
            seen.add(urn)
            waiting.extend(self._needs(resource))
            if not resource.custom:
                waiting.extend(child.urn for child in self.children(urn))
        return frozenset(seen)

    def _needs(self, resource: Resource) -> Iterator[str]:
        """Yield the URNs that one resource names: dependencies, inputs' origins, provider."""
        yield from resource.dependencies
        yield from (urn for each in resource.property_dependencies.values() for urn in each)
        yield resource.provider
        parent = self.by_urn.get(resource.parent)
        if parent is not None and parent.type == EKS_CLUSTER:
            yield from parent.dependencies

    # Cluster and nodes -------------------------------------------------------------------------------------------

    @cached_property
    def control_planes(self) -> tuple[ControlPlane, ...]:
        """Every EKS cluster of the program, once."""
        found = []
        inside: set[str] = set()
        for component in self.of_type(EKS_CLUSTER):
            cluster = next((each for each in self.descendants(component.urn) if each.type == CLUSTER), None)
            inside.update([cluster.urn] if cluster else [])
            found.append(ControlPlane(component, cluster))
        found.extend(ControlPlane(None, cluster) for cluster in self.of_type(CLUSTER) if cluster.urn not in inside)
        return tuple(found)

    @cached_property
    def node_groups(self) -> tuple[NodeGroup, ...]:
        """Every managed node group."""
        return tuple(self._node_group(resource) for resource in self.of_type(NODE_GROUP))

    def _node_group(self, resource: Resource) -> NodeGroup:
        template = next(iter(self.refers(resource, "launchTemplate", LAUNCH_TEMPLATE)), None)
        types = [text(each) for each in items(resource.inputs.get("instanceTypes"))]
        if template is not None:
            types.append(text(template.inputs.get("instanceType")))
        type_name = next((each for each in types if each), "")
        return NodeGroup(resource, template, type_name, self.catalogue.get(type_name))

    @property
    def accelerator_groups(self) -> Iterator[NodeGroup]:
        """The node groups with Neuron devices or GPUs."""
        return (group for group in self.node_groups if group.accelerated)

    @property
    def efa_groups(self) -> Iterator[NodeGroup]:
        """The node groups with EFA in their type or their template."""
        for group in self.node_groups:
            if group.has_efa or any(at(each, "interfaceType") in EFA for each in group.interfaces):
                yield group

    def addons(self, name: str) -> tuple[Resource, ...]:
        """Return the EKS add-ons of this name."""
        return tuple(each for each in self.of_type(ADDON) if each.inputs.get("addonName") == name)

    # Security groups and subnets ---------------------------------------------------------------------------------

    @cached_property
    def security_rules(self) -> tuple[SecurityRule, ...]:
        """Every security-group rule, in any form of declaration."""
        return tuple(security_rules(self.of_type))

    def rules_of(self, group: Json) -> tuple[SecurityRule, ...]:
        """Return the rules of one security group, by its id."""
        return self._rules_by_group.get(str(group), ())

    @cached_property
    def _rules_by_group(self) -> Mapping[str, tuple[SecurityRule, ...]]:
        return grouped((str(each.group), each) for each in self.security_rules)

    @cached_property
    def _existing_subnets(self) -> Mapping[str, Mapping[str, Json]]:
        existing = mapping(self.config.get("existingNetwork"))
        lists = (*items(existing.get("privateSubnets")), *items(existing.get("publicSubnets")))
        return {text(at(each, "id")): mapping(each) for each in lists}

    def zone_of(self, subnet_id: Json) -> str:
        """Return the zone (id, else name) of a subnet made here or named by the config; empty when it is unknown."""
        subnet = self.named(subnet_id, SUBNET)
        if subnet is not None:
            return zone(subnet)
        return text(at(self._existing_subnets.get(text(subnet_id)), "zoneId"))

    def public(self, subnet: Resource) -> bool:
        """Return whether a subnet routes to an internet gateway; without route tables, its role tag decides."""
        tables = [
            table
            for association in self.referring(subnet, "subnetId", "aws:ec2/routeTableAssociation:RouteTableAssociation")
            for table in self._tables(association)
        ]
        if not tables:
            return "kubernetes.io/role/elb" in mapping(subnet.inputs.get("tags"))
        return any(table in self._public_tables for table in tables)

    def _tables(self, association: Resource) -> Iterable[str]:
        value = association.inputs.get("routeTableId")
        if known(value):
            return (str(value),)
        return association.property_dependencies.get("routeTableId", ())

    @cached_property
    def _public_tables(self) -> frozenset[str]:
        """Route tables (by id, and by URN for ids not known yet) with a route to an internet gateway."""
        found: set[str] = set()
        for route in self.of_type("aws:ec2/route:Route"):
            if given(route.inputs.get("gatewayId")):
                found.update(self._tables(route))
        for table in self.of_type("aws:ec2/routeTable:RouteTable"):
            if any(given(at(each, "gatewayId")) for each in items(table.inputs.get("routes"))):
                found.update((table.urn, text(table.outputs.get("id"))))
        return frozenset(found)

    # The JSON form ------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form; camelCase keys, deterministic order. Values are no copies."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "project": self.project,
            "stack": self.stack,
            "resources": [_camel_keys(vars(resource)) for resource in self.resources],
            "outputs": dict(self.outputs),
            "config": dict(self.config),
            "simulated": list(self.simulated),
            "warnings": list(self.warnings),
            "placeholders": list(self.placeholders),
            "unjudged": list(self.unjudged),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Graph":
        """Return the graph of a JSON form (:meth:`to_json`); unknown keys (a plan's cost, its rules) are ignored,
        and another schema version is a ValueError that names both."""
        if data.get("schemaVersion") != SCHEMA_VERSION:
            raise ValueError(f"plan has schema version {data.get('schemaVersion')}, this tool reads {SCHEMA_VERSION}")
        return Graph(
            project=data["project"],
            stack=data["stack"],
            resources=tuple(_resource(item) for item in data["resources"]),
            outputs=data["outputs"],
            config=data.get("config", {}),
            simulated=tuple(data.get("simulated", ())),
            warnings=tuple(data.get("warnings", ())),
            placeholders=tuple(data.get("placeholders", ())),
            unjudged=tuple(data.get("unjudged", ())),
        )


def grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    """Return each key of the pairs with its values, both in the order of the pairs."""
    found: dict[str, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


_TUPLES = {"dependencies", "ignore_changes", "replace_on_changes", "additional_secret_outputs", "aliases"}


def camel(name: str) -> str:
    """Return the camelCase name of a field of a dataclass."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def _camel_keys(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataclass record with camelCase keys; the keys of foreign data do not change."""
    out: dict[str, Any] = {}
    for name, value in record.items():
        plain = _camel_keys(vars(value)) if name == "options" else value
        out[camel(name)] = list(plain) if isinstance(plain, tuple) else plain
    return out


def _resource(item: Mapping[str, Any]) -> Resource:
    def fields_of(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: data[camel(name)] for name in cls.__dataclass_fields__ if camel(name) in data}  # type: ignore[attr-defined]
        return {name: tuple(value) if name in _TUPLES else value for name, value in values.items()}

    values = fields_of(Resource, item)
    values["options"] = Options(**fields_of(Options, item["options"]))
    values["property_dependencies"] = {
        key: tuple(urns) for key, urns in values.get("property_dependencies", {}).items()
    }
    return Resource(**values)
