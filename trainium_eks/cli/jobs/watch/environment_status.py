"""``trn status`` without a job: the environment's present cost, and its idle accelerators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainium_eks.cli.environment.plan.render import show_sections
from trainium_eks.cli.jobs.watch.render_watch import fix_line
from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.durations import duration
from trainium_eks.client import reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.session import Session
from trainium_eks.jobs.submit import planning
from trainium_eks.jobs.watch.idleness import GroupUse, uses


@dataclass(frozen=True)
class Environment:
    """Node groups and costs of an environment, at one moment."""

    cluster: str
    is_local: bool
    groups: tuple[GroupUse, ...]
    other_hourly_usd: float | None
    """Cost of everything but the accelerator groups, at its planned size; None from a stack of an earlier release."""
    now: datetime

    @property
    def hourly_usd(self) -> float:
        """Sum of the known costs."""
        return sum(each.hourly_usd or 0.0 for each in self.groups) + (self.other_hourly_usd or 0.0)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Instance types and parts that the sum leaves out."""
        types = [each.group.instance_type for each in self.groups if each.hourly_usd is None]
        return tuple(dict.fromkeys([*types, *([] if self.other_hourly_usd is not None else ["everything else"])]))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "schemaVersion": reading.SCHEMA_VERSION,
            "cluster": self.cluster,
            "hourlyUsd": round(self.hourly_usd, 4),
            "unknownPrices": [*self.unknown],
            "otherHourlyUsd": self.other_hourly_usd,
            "groups": [each.to_json() for each in self.groups],
        }


def run(cluster: ClusterOptions) -> int:
    """Show the environment; return the exit code."""

    def work(session: Session) -> int:
        found = look(session)
        if cluster.as_json:
            output.write_json(found.to_json())
        else:
            show_sections([_shown(found)], no_color=cluster.no_color)
        return 0

    return reading.run(cluster, work)


def look(session: Session) -> Environment:
    """Read the environment.

    Raises:
        ClusterError: the API server cannot be reached.
    """
    outputs = session.outputs
    nodes, pods, queues = reading.in_cluster(session, ("v1", "Node"), ("v1", "Pod"), reading.QUEUES)
    groups = uses(outputs.node_groups, nodes or (), pods=pods, queues=queues, catalogue=planning.catalogue(outputs))
    now = reading.now()
    return Environment(outputs.cluster_name, session.is_local, tuple(groups), outputs.other_hourly_usd, now)


def _shown(found: Environment) -> RenderableType:
    return Group(Text(found.cluster, "bold"), _table(found.groups, found.now), *_sums(found), *_idle(found))


def _table(groups: Sequence[GroupUse], now: datetime) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("GROUP", overflow="fold")
    table.add_column("TYPE", no_wrap=True)
    for heading in ("NODES", "USD/HOUR"):
        table.add_column(heading, no_wrap=True, justify="right")
    table.add_column("IDLE")
    for each in groups:
        usd = "not known" if each.hourly_usd is None else f"{each.hourly_usd:,.2f}"
        size = f"{each.nodes}/{each.group.max_size}"
        table.add_row(each.group.name, each.group.instance_type, size, usd, _idle_cell(each, now))
    return table


def _idle_cell(each: GroupUse, now: datetime) -> Text:
    if each.idle is None:
        return Text("not known: pods of other teams may not be read, and no idle guard notes it", "dim")
    if not each.idle:
        return Text("-", "dim")
    since = f", for up to {duration((now - each.since).total_seconds())}" if each.since else ", since when is not known"
    return Text(f"{each.idle} node{'' if each.idle == 1 else 's'}{since}", "yellow")


def _sums(found: Environment) -> list[Text]:
    if found.is_local:
        return [Text(f"simulated, and costs nothing; on AWS {found.hourly_usd:,.2f} USD an hour at list prices", "dim")]
    lines = [Text(f"{found.hourly_usd:,.2f} USD an hour now, at list prices")]
    if found.unknown:
        lines.append(Text(f"without {', '.join(found.unknown)}, whose price is not known", "yellow"))
    return lines


def _idle(found: Environment) -> list[Text]:
    """Return lines with the idle nodes and their cost; simulated nodes cost nothing, so there is nothing to mend."""
    lines: list[Text] = []
    for each in found.groups:
        if not each.idle:
            continue
        idle = f"{each.group.name}: {each.idle} of {each.nodes} nodes idle"
        usd = "" if each.idle_hourly_usd is None else f"{each.idle_hourly_usd:,.2f} USD an hour"
        if found.is_local:
            lines.append(Text(f"{idle}{usd and f'; on AWS that would be {usd}'}", "dim"))
            continue
        lines.append(Text(f"{idle}{usd and f': {usd} for nothing'}", "yellow"))
        fewer = max(each.nodes - each.idle, each.group.min_size)
        if fewer < each.nodes:
            lines.append(fix_line(f"trn scale {each.group.name} {fewer}"))
    return lines
