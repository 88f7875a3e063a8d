"""Inputs that stay on AWS when a program no longer sets them: the rows' :class:`Kept`, found in changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainium_eks.plan.differences.changes import Changes, PathChange, ResourceChange
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import mapping
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.resource_type import Kept


def kept_inputs(change: ResourceChange) -> Iterator[tuple[Kept, PathChange]]:
    """Yield the changes of an update that remove an input which stays on AWS, each with its row's entry."""
    for path in change.paths if change.kind == "update" else ():
        entry = registry.of(change.resource).keeps(path.path, path.before, path.after)
        if entry is not None:
            yield entry, path


def with_kept_inputs(graph: Graph, changes: Changes) -> Graph:
    """Return the later program with the inputs that stay on AWS, as it is billed after an ``up``."""
    inputs = {
        change.resource.urn: _set(inputs, path.path.split("."), path.before)
        for change in changes.items
        for _, path in kept_inputs(change)
        for inputs in (graph.by_urn[change.resource.urn].inputs,)
    }
    resources = (replace(each, inputs=inputs.get(each.urn, each.inputs)) for each in graph.resources)
    return replace(graph, resources=tuple(resources)) if inputs else graph


def _set(inputs: Any, steps: Sequence[str], value: Any) -> Mapping[str, Any]:
    """Return the inputs with a value at a path of keys."""
    first, *rest = steps
    own = mapping(inputs)
    return {**own, first: _set(own.get(first), rest, value) if rest else value}
