"""What changes between two plans, for people: what may lose data first, then the rest by component, then the money."""

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainium_eks.cli import facts
from trainium_eks.cli.report import Comparison, Plan
from trainium_eks.graph.cost import Cost
from trainium_eks.graph.diff import Change, Changes, OptionChange, PathChange
from trainium_eks.graph.replacements import STATEFUL
from trainium_eks.model.prices import HOURS_PER_MONTH

_SIGNS = {"create": ("+", "green"), "delete": ("-", "red"), "replace": ("±", "magenta"), "update": ("~", "yellow")}
VALUE_WIDTH = 48
"""Longest value shown, in characters."""


def changes(comparison: Comparison, plan: Plan) -> RenderableType:
    """The whole comparison."""
    found = comparison.changes
    counts = ", ".join(f"{len([each for each in found.items if each.kind == kind])} {kind}" for kind in _SIGNS)
    lines: list[RenderableType] = [Text(f"Changes since {comparison.since}", "bold underline")]
    if not found:
        lines.append(_indented(Text("none", "green")))
    else:
        lines.append(_indented(Text(counts, "bold")))
        lines += map(_indented, _dangers(found))
        lines += map(_indented, _by_component(found))
    lines.append(_indented(_money(comparison.cost, plan.cost)))
    return Group(*lines)


def _dangers(found: Changes) -> Iterable[Text]:
    """What loses data or running work, and guards that are taken off."""
    for change in found.dangerous:
        word = "REPLACED" if change.kind == "replace" else "DELETED"
        line = Text(f"! {facts.short_type(change.resource.type)} {change.resource.name} is {word}", "bold red")
        line.append(f", and with it goes {STATEFUL[change.resource.type]}", "red not bold")
        if change.blocked:
            line.append("; protected, so Pulumi refuses", "red")
        elif change.resource.options.retain_on_delete:
            line.append("; the old one stays in the account", "yellow")
        yield line
        yield from _why(change)
    for option in found.options:
        if option.weakens:
            yield Text(f"! {option.name} loses {option.option}", "bold red")


def _by_component(found: Changes) -> Iterable[Text]:
    """Everything else, tags folded into one line."""
    rest = [change for change in found.items if not change.stateful or change.kind not in ("replace", "delete")]
    tags = [change for change in rest if change.tags_only]
    shown = [change for change in rest if not change.tags_only]
    for component, group in groupby(shown, key=lambda change: change.component):
        yield Text(component, "bold")
        for change in group:
            sign, color = _SIGNS[change.kind]
            name = facts.short_name(change.resource, component)
            yield Text(f"  {sign} {facts.short_type(change.resource.type)}  {name}", color)
            if change.kind in ("update", "replace"):
                yield from _why(change)
    yield from (_option(option) for option in found.options if not option.weakens)
    if tags:
        count = len(tags)
        yield Text(f"and tags alone on {count} resource{'' if count == 1 else 's'}", "dim")


def _why(change: Change) -> Iterable[Text]:
    if change.follows:
        yield Text(f"      follows from {change.follows.rsplit('::', 1)[-1]}", "dim")
    if change.kind == "delete":
        return
    for path in sorted(change.paths, key=lambda each: not each.replaces):
        if path.before is None and path.after is None:
            yield Text(f"      {path.path}: a new one, nodes are renewed in turn", "dim")
        else:
            yield _path(path)


def _path(change: PathChange) -> Text:
    line = Text(f"      {change.path}: {_shown(change.before)} → {_shown(change.after)}", "default")
    return line.append("  replaces it", "magenta") if change.replaces else line


def _option(change: OptionChange) -> Text:
    return Text(f"~ {change.name}: {change.option} {_shown(change.before)} → {_shown(change.after)}", "yellow")


def _money(before: Cost, after: Cost) -> Text:
    """The difference, and the components that make it."""
    hourly = after.hourly_usd - before.hourly_usd
    most = after.maximum_hourly_usd - before.maximum_hourly_usd
    if round(hourly, 2) == 0 and round(most, 2) == 0:
        return Text("Cost: unchanged", "dim")
    line = Text(f"Cost: {_signed(hourly)} an hour, {_signed(hourly * HOURS_PER_MONTH, 0)} a month", "bold")
    line.append(f"; {_signed(most)} an hour at most", "dim not bold")
    old = {each.component: each.hourly_usd for each in before.by_component}
    new = {each.component: each.hourly_usd for each in after.by_component}
    steps = [(new.get(name, 0.0) - old.get(name, 0.0), name) for name in {*old, *new}]
    for step, name in sorted(steps, key=lambda each: (-abs(each[0]), each[1])):
        if round(step, 2):
            line.append(f"\n  {_signed(step)} {name}", "default not bold")
    new_unknown = [what for what in after.unknown if what not in before.unknown]
    if new_unknown:
        line.append(f"\n  no price is known for {', '.join(new_unknown)}", "yellow not bold")
    return line


def _signed(amount: float, digits: int = 2) -> str:
    return f"{'-' if amount < 0 else '+'}${abs(amount):,.{digits}f}"


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 1]}…"


def _indented(what: RenderableType) -> RenderableType:
    return Padding(what, (0, 0, 0, 2), expand=False)
