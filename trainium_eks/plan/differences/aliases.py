"""Renamed resources: the URNs that they had before, and the ids that they have already.

Former URNs come from a resource's own aliases and from the aliases of the components around it. They follow the
engine's rules (pulumi, ``pkg/resource/deploy``): an alias without a part keeps that part, and when the name of a child
begins with its parent's name, an alias of the parent's name is an alias of the child's name too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainium_eks.plan.graph import STACK_TYPE, Graph, Resource
from trainium_eks.plan.reading import with_texts

SHORTEST_ID = 8
"""Fewest characters of an id. Shorter texts are words."""


def former_urns(graph: Graph, resource: Resource) -> tuple[str, ...]:
    """Return every URN under which an earlier program may have made the resource, except its present URN."""
    found = dict.fromkeys([*_own(resource), *_inherited(graph, resource)])
    return tuple(urn for urn in found if urn != resource.urn)


def _own(resource: Resource) -> Iterator[str]:
    for alias in resource.options.aliases:
        yield alias if alias.startswith("urn:") else _of_spec(resource, alias)


def _of_spec(resource: Resource, alias: str) -> str:
    """Return the URN of an alias by parts, which the recording spells ``name=old parent=urn:…``."""
    parts = dict(part.partition("=")[::2] for part in alias.split(" "))
    head, types, _ = _split(resource.urn)
    above, own_type = types[:-1], parts.get("type", types[-1])
    if "no-parent" in parts:
        above = []
    elif "parent" in parts:
        _, above, _ = _split(parts["parent"])
        above = [type_ for type_ in above if type_ != STACK_TYPE]
    stack, project = head
    head = (parts.get("stack", stack), parts.get("project", project))
    return _joined(head, [*above, own_type], parts.get("name", resource.name))


def _inherited(graph: Graph, resource: Resource) -> Iterator[str]:
    parent = graph.by_urn.get(resource.parent)
    if parent is None or parent.type == STACK_TYPE:
        return
    _, types, _ = _split(resource.urn)
    for alias in former_urns(graph, parent):
        head, above, name = _split(alias)
        rest = resource.name.removeprefix(parent.name) if resource.name.startswith(parent.name) else None
        yield _joined(head, [*above, types[-1]], resource.name if rest is None else f"{name}{rest}")


def _split(urn: str) -> tuple[tuple[str, str], list[str], str]:
    """Return stack and project, the types from the outermost component inwards, and the name."""
    _, project, types, name = urn.split("::", 3)
    stack = urn.split("::", 1)[0].removeprefix("urn:pulumi:")
    return (stack, project), types.split("$"), name


def _joined(head: tuple[str, str], types: list[str], name: str) -> str:
    return f"urn:pulumi:{head[0]}::{head[1]}::{'$'.join(types)}::{name}"


def with_standing_ids(after: Graph, old: Mapping[str, Resource]) -> Graph:
    """Return the program with the ids that its renamed resources have already. The simulation makes ids from URNs, so
    that a renamed resource seems to have another id, and its dependents another input; in the account both stay.
    ``old`` are the resources of the earlier program, by their URNs in this program."""
    swaps: dict[str, str] = {}
    for resource in after.resources:
        standing = old.get(resource.urn)
        if standing is not None and standing.urn != resource.urn:
            computed = {key: value for key, value in resource.outputs.items() if key not in resource.inputs}
            swaps.update(_swaps(computed, standing.outputs))
    if not swaps:
        return after
    longest_first = sorted(swaps.items(), key=lambda swap: -len(swap[0]))

    def swapped(text: str) -> str:
        for now, before in longest_first:
            text = text.replace(now, before)
        return text

    return replace(
        after, resources=tuple(replace(each, inputs=with_texts(each.inputs, swapped)) for each in after.resources)
    )


def _swaps(now: Any, before: Any) -> Iterator[tuple[str, str]]:
    """Yield each text that differs, with the earlier text that replaces it. Short texts are words, not ids."""
    if isinstance(now, Mapping) and isinstance(before, Mapping):
        for key in now.keys() & before.keys():
            yield from _swaps(now[key], before[key])
    elif isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        for each, earlier in zip(now, before, strict=True):
            yield from _swaps(each, earlier)
    elif isinstance(now, str) and isinstance(before, str) and now != before and len(now) >= SHORTEST_ID:
        yield now, before
