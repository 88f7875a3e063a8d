"""The graph as rules see it: look-ups that they share, and references between resources."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue, CatalogueError
from trainium_eks.plan.graph import STACK_TYPE, UNKNOWN, Graph, Resource
from trainium_eks.plan.rules._facts import (
    ADDON,
    CLUSTER,
    EKS_CLUSTER,
    LAUNCH_TEMPLATE,
    NODE_GROUP,
    SUBNET,
    ControlPlane,
    NodeGroup,
    SecurityRule,
    interfaces,
    security_rules,
    zone,
)
from trainium_eks.plan.rules._read import Json, at, given, items, known, leaves, mapping, text


class View:
    """One graph, with the look-ups that rules share; each is computed once, on first use."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @property
    def production(self) -> bool:
        """Whether the production rules hold."""
        return self.graph.production

    def of(self, *types: str) -> tuple[Resource, ...]:
        """Return the resources of these types."""
        return self.graph.of_type(*types)

    def beside(self, resource: Resource) -> "View":
        """Return a view with the Kubernetes objects of the resource's cluster alone.

        Another cluster may have a namespace of the same name.
        """
        return self._of_clusters.setdefault(resource.provider, _ClusterView(self.graph, resource.provider))

    @cached_property
    def _of_clusters(self) -> "dict[str, View]":
        return {}

    @cached_property
    def stack_urn(self) -> str:
        """URN of the stack itself, recorded or not."""
        graph = self.graph
        recorded = next((each.urn for each in self.of(STACK_TYPE)), "")
        return recorded or f"urn:pulumi:{graph.stack}::{graph.project}::{STACK_TYPE}::{graph.project}-{graph.stack}"

    @cached_property
    def catalogue(self) -> Catalogue:
        """The catalogue with the environment's own entries."""
        own = mapping(self.graph.config.get("instanceTypes"))
        try:
            return with_entries(CATALOGUE, {name: mapping(entry) for name, entry in own.items()}) if own else CATALOGUE
        except CatalogueError:  # refused with the config itself, long before a rule runs
            return CATALOGUE

    # References between resources --------------------------------------------------------------------------------

    @cached_property
    def _by_handle(self) -> Mapping[tuple[str, str], Resource]:
        """Resource by type and by the handles that others use: id, ARN, name."""
        found: dict[tuple[str, str], Resource] = {}
        for resource in self.graph.resources:
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
                source = self.graph.by_urn.get(urn)
                if source is not None and source.type in types:
                    found.setdefault(urn, source)
        return tuple(found.values())

    def referring(self, target: Resource, path: str, *types: str) -> tuple[Resource, ...]:
        """Return the resources of these types with an input that refers to the target."""
        key = (target.type, path, types)
        if key not in self._referring:
            index = self._referring[key] = {}
            for resource in self.of(*types):
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
            resource = self.graph.by_urn.get(urn)
            if urn in seen or resource is None:
                continue
            seen.add(urn)
            waiting.extend(self._needs(resource))
            if not resource.custom:
                waiting.extend(child.urn for child in self.graph.children(urn))
        return frozenset(seen)

    def _needs(self, resource: Resource) -> Iterator[str]:
        """Yield the URNs that one resource names: dependencies, inputs' origins, provider."""
        yield from resource.dependencies
        yield from (urn for each in resource.property_dependencies.values() for urn in each)
        yield resource.provider
        parent = self.graph.by_urn.get(resource.parent)
        if parent is not None and parent.type == EKS_CLUSTER:
            yield from parent.dependencies

    # Cluster and nodes -------------------------------------------------------------------------------------------

    @cached_property
    def control_planes(self) -> tuple[ControlPlane, ...]:
        """Every EKS cluster of the program, once."""
        found = []
        inside: set[str] = set()
        for component in self.of(EKS_CLUSTER):
            cluster = next((each for each in self.graph.descendants(component.urn) if each.type == CLUSTER), None)
            inside.update([cluster.urn] if cluster else [])
            found.append(ControlPlane(component, cluster))
        found.extend(ControlPlane(None, cluster) for cluster in self.of(CLUSTER) if cluster.urn not in inside)
        return tuple(found)

    @cached_property
    def node_groups(self) -> tuple[NodeGroup, ...]:
        """Every managed node group."""
        return tuple(self._node_group(resource) for resource in self.of(NODE_GROUP))

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
        return (group for group in self.node_groups if group.has_efa or any(each.is_efa for each in interfaces(group)))

    def addons(self, name: str) -> tuple[Resource, ...]:
        """Return the EKS add-ons of this name."""
        return tuple(each for each in self.of(ADDON) if each.inputs.get("addonName") == name)

    # Security groups and subnets ---------------------------------------------------------------------------------

    @cached_property
    def security_rules(self) -> tuple[SecurityRule, ...]:
        """Every security-group rule, in any form of declaration."""
        return tuple(security_rules(self.graph))

    def rules_of(self, group: Json) -> tuple[SecurityRule, ...]:
        """Return the rules of one security group, by its id."""
        return self._rules_by_group.get(str(group), ())

    @cached_property
    def _rules_by_group(self) -> Mapping[str, tuple[SecurityRule, ...]]:
        found: dict[str, list[SecurityRule]] = {}
        for each in self.security_rules:
            found.setdefault(str(each.group), []).append(each)
        return {group: tuple(rules) for group, rules in found.items()}

    @cached_property
    def _existing_subnets(self) -> Mapping[str, Mapping[str, Json]]:
        existing = mapping(self.graph.config.get("existingNetwork"))
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
            for table in (*self._tables(association),)
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
        for route in self.of("aws:ec2/route:Route"):
            if given(route.inputs.get("gatewayId")):
                found.update(self._tables(route))
        for table in self.of("aws:ec2/routeTable:RouteTable"):
            if any(given(at(each, "gatewayId")) for each in items(table.inputs.get("routes"))):
                found.update((table.urn, text(table.outputs.get("id"))))
        return frozenset(found)


class _ClusterView(View):
    def __init__(self, graph: Graph, provider: str) -> None:
        super().__init__(graph)
        self._provider = provider

    def of(self, *types: str) -> tuple[Resource, ...]:
        found = super().of(*types)
        return tuple(
            each for each in found if each.provider == self._provider or not each.type.startswith("kubernetes:")
        )

    def beside(self, resource: Resource) -> View:
        return self if resource.provider == self._provider else View(self.graph).beside(resource)
