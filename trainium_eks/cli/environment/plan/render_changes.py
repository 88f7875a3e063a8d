"""Changes between two plans, for people: possible data loss first, then the rest by component, then the money."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainium_eks.cli.environment.plan import facts
from trainium_eks.model.catalogue.prices import HOURS_PER_MONTH
from trainium_eks.plan.cost import ComponentCost, Cost
from trainium_eks.plan.differences import cost_difference
from trainium_eks.plan.differences.changes import Changes, PathChange, ResourceChange
from trainium_eks.plan.graph import Resource

if TYPE_CHECKING:
    from trainium_eks.operate.review.review import Review
    from trainium_eks.operate.review.risks import Risk

_SIGNS = {"create": ("+", "green"), "delete": ("-", "red"), "replace": ("±", "magenta"), "update": ("~", "yellow")}
VALUE_WIDTH = 48
"""Longest value shown, in characters."""


def changes(review: "Review") -> RenderableType:
    """Return the whole comparison: risks for the reviewer, then the rest by component, then the money."""
    compared = review.comparison
    assert compared is not None
    found = compared.changes
    lines: list[RenderableType] = [Text(f"Changes since {review.since}", "bold underline")]
    if not found and not compared.risks:
        lines.append(_indented(Text("none", "green")))
    else:
        counts: Counter[str] = Counter(change.kind for change in found.items)
        lines.append(_indented(Text(", ".join(f"{counts[kind]} {kind}" for kind in _SIGNS), "bold")))
        lines += _rolled(found)
        lines += _risks(compared.risks)
        lines += _by_component(found)
    lines.append(_indented(_money(compared.before.cost, compared.after.cost)))
    return Group(*lines)


def _rolled(found: Changes) -> Iterator[RenderableType]:
    """Yield a line with the number of node groups that stay while their nodes are replaced."""
    groups = found.rolled
    if not groups:
        return
    paces = {_pace(change.resource) for change in groups}
    line = Text(f"nodes of {len(groups)} group{'' if len(groups) == 1 else 's'} are replaced ", "bold red")
    line.append(paces.pop() if len(paces) == 1 else "in turn")
    resting = sum(not change.stateful for change in groups)
    if resting:
        line.append(f"; {resting} of these {'has' if resting == 1 else 'have'} no nodes now")
    yield _indented(line)


def _risks(found: "Iterable[Risk]") -> Iterator[RenderableType]:
    """Yield the risks for a reviewer, each with its inputs."""
    for risk in found:
        color = "yellow" if risk.weight == "review" else "red"
        line = Text(f"! {facts.short_type(risk.resource.type)} {risk.resource.name}: ", f"bold {color}")
        yield _indented(line.append(risk.what, f"{color} not bold"))
        for path in sorted(risk.paths, key=lambda each: not each.replaces):
            yield _indented(_path(path), 4)
        if risk.note:
            yield _indented(Text(risk.note, "dim"), 4)


def _pace(group: Resource) -> str:
    """Return how many nodes go at a time; one when the group does not say."""
    update = group.inputs.get("updateConfig") or {}
    if update.get("maxUnavailablePercentage"):
        return f"{update['maxUnavailablePercentage']}% at a time"
    most = update.get("maxUnavailable", 1)
    return "one after another" if most == 1 else f"{most} at a time"


def _by_component(found: Changes) -> Iterator[RenderableType]:
    """Yield all other changes. Changes of tags alone and consequences of a replacement are folded."""
    rest = [change for change in found.items if change not in found.dangerous]
    follows = [change for change in rest if _only_follows(change)]
    tags = [change for change in rest if change.tags_only]
    shown = [change for change in rest if change not in follows and change not in tags]
    for component, group in groupby(shown, key=lambda change: change.component):
        yield _indented(Text(component, "bold"))
        for change in group:
            sign, color = _SIGNS[change.kind]
            name = facts.short_name(change.resource, component)
            yield _indented(Text(f"{sign} {facts.short_type(change.resource.type)}  {name}", color), 4)
            yield from _why(change, 8)
    for option in found.options:
        if option.harmless:
            values = f"{_shown(option.before)} → {_shown(option.after)}"
            yield _indented(Text(f"~ {option.name}: {option.option} {values}", "yellow"))
    yield from _followers(follows)
    if tags:
        count = len(tags)
        yield _indented(Text(f"and tags alone on {count} resource{'' if count == 1 else 's'}", "dim"))


def _only_follows(change: ResourceChange) -> bool:
    """Return whether a change is only the consequence of a replacement. A node group with replaced nodes is not."""
    if change.kind == "replace":
        return bool(change.follows)
    return change.kind == "update" and not change.rolls_nodes and all(path.cause for path in change.paths)


def _followers(follows: list[ResourceChange]) -> Iterator[RenderableType]:
    """Yield the consequences of replacements, counted by type under their cause: replaced before updated."""
    for kind, word in (("replace", "replaced"), ("update", "updated")):
        sign, color = _SIGNS[kind]
        of_kind = [change for change in follows if change.kind == kind]
        for cause in sorted({change.follows for change in of_kind}):
            types = Counter(facts.short_type(change.resource.type) for change in of_kind if change.follows == cause)
            listed = ", ".join(type_ if count == 1 else f"{count} {type_}" for type_, count in sorted(types.items()))
            because = f"{_name(cause)} is" if kind == "replace" else f"{_name(cause)} is replaced"
            yield _indented(Text(f"{sign} {word} because {because}: {listed}", color))


def _why(change: ResourceChange, indent: int) -> Iterator[RenderableType]:
    """Yield the paths of an update or a replacement, the replacing paths first."""
    if change.kind in ("create", "delete"):
        return
    if change.follows and change.kind == "replace":
        yield _indented(Text(f"follows from {_name(change.follows)}", "dim"), indent)
    if change.unjudged:
        yield _indented(Text("may be a replacement: its type is unknown", "yellow"), indent)
    for path in sorted(change.paths, key=lambda each: not each.replaces):
        yield _indented(_path(path), indent)


def _path(change: PathChange) -> Text:
    if change.cause:
        return Text(f"{change.path}: a new value, from {_name(change.cause)}", "dim")
    line = Text(f"{change.path}: {_shown(change.before)} → {_shown(change.after)}")
    return line.append("  replaces it", "magenta") if change.replaces else line


def _name(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]


def _money(before: Cost, after: Cost) -> Text:
    """Return the difference, and the components that make it; never a saving where a price that changes is unknown."""
    found = cost_difference.difference(before, after)
    hourly, most = found.hourly_usd, found.maximum_hourly_usd
    if not found:
        return Text("Cost: unchanged", "dim")
    if hourly is None and found.at_least_hourly_usd is None:
        line = Text("Cost: not known", "bold")
    else:
        least = found.at_least_hourly_usd or 0.0 if hourly is None else hourly
        bound = "at least " if hourly is None else ""
        line = Text(f"Cost: {bound}{_signed(least)} an hour, {_signed(least * HOURS_PER_MONTH, 0)} a month", "bold")
    if most is not None:
        line.append(f"; {_signed(most)} an hour at most", "dim not bold")
    old = {each.component: each for each in before.by_component}
    new = {each.component: each for each in after.by_component}
    steps = [
        (_hourly(new.get(name)) - _hourly(old.get(name)), name)
        for name in {*old, *new}
        if not _unpriced(old.get(name)) ^ _unpriced(new.get(name))
    ]
    for step, name in sorted(steps, key=lambda each: (-abs(each[0]), each[1])):
        if round(step, 2):
            line.append(f"\n  {_signed(step)} {name}", "default not bold")
    if found.unknown:
        line.append(f"\n  no price is known for {', '.join(found.unknown)}", "yellow not bold")
    return line


def _hourly(cost: ComponentCost | None) -> float:
    return cost.hourly_usd if cost else 0.0


def _unpriced(cost: ComponentCost | None) -> set[str]:
    return set(cost.unknown) if cost else set()


def _signed(amount: float, digits: int = 2) -> str:
    return f"{'-' if amount < 0 else '+'}${abs(amount):,.{digits}f}"


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 1]}…"


def _indented(what: RenderableType, columns: int = 2) -> RenderableType:
    return Padding(what, (0, 0, 0, columns), expand=False)
