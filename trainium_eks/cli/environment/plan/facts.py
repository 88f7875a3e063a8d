"""Short names and facts for the lines of the resource tree."""

from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import registry


def of(graph: Graph, resource: Resource) -> tuple[str, ...] | None:
    """Return the facts shown beside a resource's name; None for a type that is only counted."""
    shown = registry.of(resource).shown
    return tuple(text for text in shown.facts(graph, resource) if text) if shown else None


def joined_as(resource: Resource, label: str) -> str | None:
    """Return a resource's name in the shared line of its type; None for a type with a line for each resource."""
    shown = registry.of(resource).shown
    return (shown.joined_as(resource) or label) if shown and shown.joined_as else None


def short_type(type_: str) -> str:
    """Return the last part of a type: ``aws:ec2/natGateway:NatGateway`` is ``NatGateway``; a provider is ``aws
    provider``."""
    if type_.startswith("pulumi:providers:"):
        return f"{type_.rsplit(':', 1)[-1]} provider"
    return type_.rsplit(":", 1)[-1]


def short_name(resource: Resource, above: str) -> str:
    """Return a resource's name without its component's name: the component's line stands above it."""
    if above and resource.name.startswith(f"{above}-"):
        return resource.name.removeprefix(f"{above}-")
    return resource.name
