"""Left-over resources for people: each with its cost and the command that removes it."""

import re
from collections.abc import Iterable
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainium_eks.cli.environment.cleanup.orphans_report import Orphans
from trainium_eks.cli.shared.console import show_sections
from trainium_eks.client.failure import as_typed
from trainium_eks.model.catalogue import prices
from trainium_eks.operate.cleanup.left_over import LeftOver, NotLookedAt, Result

COMMAND_WIDTH = 72
"""Columns after which a command continues in the next line."""


_EMPTY = (
    "The state of {stack} is empty: it was never brought up from this backend, or is destroyed. If another backend has "
    "it (pulumi whoami -v), all that follows is in use."
)
_LIVE = (
    "{cluster} is in service, so no command is shown. Log in to the backend that has its state; or, if that is lost "
    "for good: trn orphans --cluster {cluster} --region {region}"
)


def show(found: Orphans, *, no_color: bool = False) -> None:
    """Print the left-over resources to stdout."""
    result = found.result
    header = [Text(f"{found.subject} · {found.region}", "bold")]
    if not result.has_state:
        header.append(Text("There is no state to compare with: what is still in use is listed, too.", "yellow"))
    if result.empty_state:
        header.append(Text(as_typed(_EMPTY.format(stack=found.subject)), "bold red" if result.live else "yellow"))
    if result.live:
        header.append(Text(as_typed(_LIVE.format(cluster=result.live[0], region=found.region)), "bold red"))
    if result.pending:
        stopped = f"An update was interrupted, or still runs: {result.pending} operations are open in the state."
        header.append(Text(as_typed(stopped), "yellow"))
    sections = [_section(kind, list(each)) for kind, each in groupby(result.found, key=lambda each: each.kind)]
    show_sections([Group(*header), *sections, *_unseen(result.unseen), _summary(result)], no_color=no_color)


def _section(kind: str, found: list[LeftOver]) -> RenderableType:
    lines: list[RenderableType] = [Text(f"{kind} ({len(found)})", "bold underline")]
    for each in found:
        lines.append(Padding(Text.assemble((each.name, "bold"), f"  {_price(each)}"), (0, 0, 0, 2), expand=False))
        about = "; ".join(part for part in (each.why, each.note) if part)
        lines.append(Padding(Text(about, "dim"), (0, 0, 0, 4), expand=False))
        lines += (
            Padding(Text(line, "cyan"), (0, 0, 0, 4), expand=False)
            for command in each.commands
            for line in shell_lines(command)
        )
    return Group(*lines)


def shell_lines(command: str) -> list[str]:
    """Return a command in lines that fit and can be copied: each but the last ends with a backslash."""
    lines = [""]
    for part in re.split(r" (?=--)", command):
        if lines[-1] and len(lines[-1]) + len(part) > COMMAND_WIDTH:
            lines[-1] += " \\"
            lines.append(f"  {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}".lstrip() if len(lines) == 1 else f"{lines[-1]} {part}"
    return lines


def _price(found: LeftOver) -> str:
    if found.hourly_usd is None:
        return "price not known"
    if not found.hourly_usd:
        return "free"
    monthly = found.hourly_usd * prices.HOURS_PER_MONTH
    return f"${found.hourly_usd:,.2f} an hour" if found.hourly_usd >= 0.01 else f"${monthly:,.2f} a month"


def _unseen(unseen: Iterable[NotLookedAt]) -> list[RenderableType]:
    """Return one line for each reason: without credentials all would repeat the same."""
    reasons: dict[str, list[str]] = {}
    for each in unseen:
        reasons.setdefault(each.reason, []).append(each.what)
    lines = [Text(f"not looked at: {', '.join(what)}: {reason}", "yellow") for reason, what in reasons.items()]
    return [Group(*lines)] if lines else []


def _summary(result: Result) -> Text:
    if not result.found:
        if result.unseen:
            return Text("? Nothing was found where it could be looked for.", "bold yellow")
        return Text("✓ Nothing is left.", "bold green")
    count = f"{len(result.found)} thing{'s are' if len(result.found) > 1 else ' is'}"
    unknown = f", and {', '.join(result.unknown)} at unknown prices" if result.unknown else ""
    cost = f"about ${result.hourly_usd:,.2f} an hour ({prices.REGION}'s list prices){unknown}"
    told = "read each command before you run it" if not result.live else "none of it is called left over"
    return Text(f"✗ {count} left: {cost}. Nothing was removed; {told}.", "bold red")
