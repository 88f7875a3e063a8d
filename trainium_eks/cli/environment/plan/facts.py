"""What makes a line of the resource tree worth reading: short names, and the few facts that the rows tell."""

from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import registry


def of(graph: Graph, resource: Resource) -> tuple[str, ...] | None:
    """What to say about a resource beside its name; None for a type that is only counted."""
    shown = registry.of(resource).shown
    return tuple(text for text in shown.facts(graph, resource) if text) if shown else None


def joined_as(resource: Resource, label: str) -> str | None:
    """The name that a resource has in the one line of its type, ``label`` where it has no better one; None for a type
    whose resources have lines of their own."""
    shown = registry.of(resource).shown
    return (shown.joined_as(resource) or label) if shown and shown.joined_as else None


def short_type(type_: str) -> str:
    """``aws:ec2/natGateway:NatGateway`` is ``NatGateway``; a provider is ``aws provider``."""
    if type_.startswith("pulumi:providers:"):
        return f"{type_.rsplit(':', 1)[-1]} provider"
    return type_.rsplit(":", 1)[-1]


def short_name(resource: Resource, above: str) -> str:
    """A resource's name without that of the component that it is in: its component's line stands above it."""
    if above and resource.name.startswith(f"{above}-"):
        return resource.name.removeprefix(f"{above}-")
    return resource.name
