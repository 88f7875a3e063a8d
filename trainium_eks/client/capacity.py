"""Where to buy capacity for a run: Capacity Blocks of all regions beside On-Demand and Spot, and the cheapest plans."""

import dataclasses
import datetime
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from trainium_eks.aws import market
from trainium_eks.aws.account import Account, NoCredentialsError
from trainium_eks.client.failure import UsageError
from trainium_eks.client.project import find_project
from trainium_eks.jobs.objects.options import Option
from trainium_eks.model.catalogue import lustre, regions, versions
from trainium_eks.model.catalogue.instances import CATALOGUE, InstanceType, near
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.config.training import TrainingConfig
from trainium_eks.model.sizing import capacity_plan, goodput
from trainium_eks.model.sizing.block_times import EKS_DRAIN, LARGEST_BLOCK, ULTRASERVER_DRAIN
from trainium_eks.model.sizing.capacity_plan import AHEAD, DAYS, Need, Offer, Plan
from trainium_eks.model.validation.config_model import ConfigModelError, read
from trainium_eks.model.validation.formats import utc_text
from trainium_eks.model.validation.problems import Problem, config_path, nearest
from trainium_eks.plan.recording.project import InvalidConfigError, Project, ProjectError, load_project

SOONEST = datetime.timedelta(minutes=30)
"""A block starts 30 minutes after it is bought at the earliest (EC2 user guide, Capacity Blocks)."""


@dataclass(frozen=True)
class SearchOptions:
    """What a run needs, and where to look."""

    instance_type: Annotated[str, Option("--type", "Instance type of the nodes.")]
    nodes: Annotated[int, Option("--nodes", "Nodes of the gang, 1 to 64; of UltraServers whole ones.")]
    hours: Annotated[float, Option("--hours", "Hours of training by the clock, without the starts of the gang.")]
    by: Annotated[str, Option("--by", "Deadline in UTC: 2027-01-31, to its end, or 2027-01-31T18:00:00Z.", "TIME")]
    earliest: Annotated[str, Option("--from", "First day or time of the run; default: now.", "TIME")] = ""
    regions: Annotated[
        tuple[str, ...], Option("--regions", "Region to ask, may be repeated; default: all that offer the type.")
    ] = ()


@dataclass(frozen=True)
class Stack:
    """A stack's config."""

    project: Project
    name: str
    values: Mapping[str, str]
    """Key of the config to its text, JSON for lists and mappings."""

    @classmethod
    def find(cls, name: str, directory: Path | None = None) -> "Stack":
        """Return a stack of a project. UsageError without a project, or with a file that cannot be read."""
        try:
            project = load_project(find_project(directory))
            config = project.stack(name).config
        except (ProjectError, InvalidConfigError) as error:
            raise UsageError(str(error)) from None
        return cls(project, name, {key.removeprefix(f"{project.name}:"): text for key, text in config.items()})


@dataclass(frozen=True)
class Row:
    """One way to have the nodes, for the whole run or a part of it."""

    kind: str
    """``capacity-block``, ``on-demand`` or ``spot``."""
    offer: Offer
    """The block; On-Demand and Spot for the whole run from its earliest start, at the list price of On-Demand, with the
    number of zones where there are several."""
    training_hours: float
    """Hours of training that it gives before the deadline."""
    usd_per_useful_hour: float
    """Price of an hour of steps that count (docs/goodput.md)."""
    done: datetime.datetime | None
    """When it alone has all hours of the run; None when it has not."""
    score: int | None = None
    """Spot's placement score, 1 to 10."""


@dataclass(frozen=True)
class Market:
    """The answer of a search."""

    options: SearchOptions
    need: Need
    rows: tuple[Row, ...]
    """Blocks, those that hold the deadline first by their price, others by that of a useful hour; On-Demand; Spot."""
    plans: tuple[Plan, ...]
    """Blocks that hold the deadline, of each region the cheapest single one and, where cheaper, several; cheapest
    first."""
    not_checked: Mapping[str, str]
    """Region, or ``Spot placement scores``, to the reason why nothing, or not all, is known."""
    hints: tuple[str, ...]

    @property
    def is_feasible(self) -> bool:
        """Whether blocks hold the deadline or, if EC2 has them free, On-Demand nodes at a known price."""
        demanded = [row for row in self.rows if row.kind == "on-demand" and row.offer.usd.is_finite()]
        return bool(self.plans) or any(row.done for row in demanded)


def to_json(value: Any) -> Any:
    """Return any of these classes as camelCase data; a time between two is in seconds, and an unknown number None."""
    if dataclasses.is_dataclass(value):
        return {config_path(each.name): to_json(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [to_json(each) for each in value]
    if isinstance(value, Decimal | float):
        return round(float(value), 4) if math.isfinite(value) else None
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return utc_text(value) if isinstance(value, datetime.datetime) else value


def search(options: SearchOptions, stack: Stack | None = None, account: Account | None = None) -> Market:
    """Return what is sold for a run. Only reads. Without a stack its config has the defaults.

    UsageError: options that nothing can be searched by, all problems at once; and no credentials.
    """
    now = versions.now()
    if problems := option_problems(options, now):
        raise UsageError("no capacity was searched", problems, spell=str)
    kind = CATALOGUE[options.instance_type]
    asked = list(options.regions or kind.zones)
    account = account or Account(asked[0])
    need, useful = _need(options, kind, stack.values if stack else {}, now)

    def row(kind: str, offer: Offer, hours: float, score: int | None = None) -> Row:
        done = offer.starts + datetime.timedelta(seconds=need.start_seconds, hours=need.hours)
        per_hour = float(offer.usd) / (hours * useful or math.nan)
        return Row(kind, offer, hours, per_hour, done if hours >= need.hours else None, score)

    offers, not_checked = list[Offer](), dict[str, str]()
    if "capacity-block" in kind.usage:
        between = max(need.earliest, now + SOONEST), min(need.deadline, now + AHEAD)
        days = capacity_plan.durations(need)
        try:
            offers, not_checked = market.offers(account, asked, kind, options.nodes, days, *between)
        except NoCredentialsError as error:
            raise UsageError(str(error)) from None
    rows = [row("capacity-block", each, need.training_seconds(each) / 3600) for each in offers]
    rows.sort(key=lambda each: (not each.done, each.offer.usd if each.done else each.usd_per_useful_hour))
    hints = []
    if not any(each.done for each in rows) and not set(asked) <= set(not_checked):
        longest = max((each.training_hours for each in rows), default=0)
        change = "take a later --by, fewer --hours or --nodes, or another --type"
        hints.append(f"no single block holds the deadline, the longest has {longest:.1f} hours: {change}")
    if 0 < kind.ultraserver_nodes < options.nodes:
        hints.append(f"each UltraServer is a block: --nodes {kind.ultraserver_nodes} finds those to buy one by one")

    lasts, price = datetime.timedelta(seconds=need.start_seconds, hours=need.hours), CATALOGUE.price(kind.name)
    usd = price.hourly_usd * options.nodes * lasts.total_seconds() / 3600 if price else math.nan
    whole = Offer("On-Demand", "", "", need.earliest, need.earliest + lasts, options.nodes, Decimal(usd), 0)
    most = min(need.hours, max((need.deadline - need.earliest).total_seconds() - need.start_seconds, 0) / 3600)
    zones = [zone for each in asked for zone in kind.zones.get(each, ())]
    if zones and "on-demand" in kind.usage:
        zone = zones[0] if len(zones) == 1 else f"{len(zones)} zones"
        rows.append(row("on-demand", replace(whole, zone=zone), most))
    if "spot" in kind.usage:
        scores, why = market.spot_scores(account, asked, kind.name, options.nodes)
        not_checked |= {"Spot placement scores": why} if why else {}
        for zone, score in sorted(scores.items(), key=lambda each: (-each[1], each[0])):
            spot = replace(whole, id=f"Spot, score {score}", zone=zone)
            rows.append(row("spot", spot, most, score))
    plans = capacity_plan.plans(offers, need)
    return Market(options, need, tuple(rows), tuple(plans), not_checked, tuple(hints))


def option_problems(options: SearchOptions, now: datetime.datetime) -> list[Problem]:
    """Return the problems of the options, by their names on the command line."""
    found = []
    sold = tuple(name for name, each in CATALOGUE.items() if each.accelerators)
    if options.instance_type not in sold:
        reason, name = "the catalogue has no accelerator type of this name", options.instance_type
        found.append(Problem("--type", reason, value=name, allowed=sold, good=near(name, sold)))
    step = max(CATALOGUE[options.instance_type].ultraserver_nodes, 1) if options.instance_type in sold else 1
    if not 1 <= options.nodes <= LARGEST_BLOCK or options.nodes % step:
        allowed = f"{step} to {LARGEST_BLOCK}{f', in steps of {step}' if step > 1 else ''}"
        fix = "a larger gang takes several blocks: search for each"
        found.append(Problem("--nodes", "no block has these nodes", fix, value=options.nodes, allowed=(allowed,)))
    if not 0 < options.hours <= DAYS[-1] * 24:
        allowed = f"above 0, and at most {DAYS[-1] * 24}, the longest block"
        found.append(Problem("--hours", "no block is for these hours", value=options.hours, allowed=(allowed,)))
    deadline, earliest = moment(options.by, is_end=True), moment(options.earliest) if options.earliest else now
    allowed = "<YYYY-MM-DD> or <YYYY-MM-DD>T<hh:mm:ss>Z"
    for name, text in [("--by", options.by)] * (not deadline) + [("--from", options.earliest)] * (not earliest):
        found.append(Problem(name, "it is neither a day nor a time in UTC", value=text, allowed=(allowed,)))
    if deadline and earliest and deadline <= max(earliest, now):
        found.append(Problem("--by", "it is over before the run may begin", "take a later day", value=options.by))
    for name in options.regions:
        if name not in regions.REGIONS and not regions.may_be_new(name):
            fix, good = "aws ec2 describe-regions lists them", nearest(name, regions.REGIONS)
            found.append(Problem("--regions", "it is no region of AWS", fix, value=name, good=good))
    return found


def moment(text: str, *, is_end: bool = False) -> datetime.datetime | None:
    """Return the moment of a text in UTC, of a day its beginning or its end; None for another text."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    found = found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
    is_day = re.fullmatch(r"[0-9-]+", text) is not None
    return found.astimezone(datetime.UTC) + datetime.timedelta(days=is_day and is_end)


def _need(
    options: SearchOptions, kind: InstanceType, values: Mapping[str, str], now: datetime.datetime
) -> tuple[Need, float]:
    """Return the run as the planner needs it, and the useful share of its hours with the stack's checkpoints; a section
    of the config that is not valid counts as its defaults."""
    training, disk = TrainingConfig(), FileSystemConfig()
    with suppress(ConfigModelError, ValueError):
        training = read(TrainingConfig, json.loads(values["training"]) if "training" in values else {})
    with suppress(ConfigModelError, ValueError):
        disk = read(FileSystemConfig, json.loads(values["fileSystem"]) if "fileSystem" in values else {})
    rate = goodput.failure_rate(kind.accelerator, training.failures_per_node_year)
    speed = lustre.write_megabytes_per_second(disk.storage_capacity_gib, disk.deployment_type, disk.throughput_per_tib)
    run = goodput.run_on_lustre(options.nodes, rate.per_node_year, training.checkpoint_gigabytes, speed)
    deadline, earliest = moment(options.by, is_end=True), max(moment(options.earliest) or now, now)
    assert deadline is not None, "option_problems has refused it"
    drain = ULTRASERVER_DRAIN if kind.ultraserver_nodes else EKS_DRAIN
    need = Need(options.hours, earliest, deadline, goodput.NEW_NODE_SECONDS + run.restart_seconds, drain)
    return need, goodput.expect(run).useful_fraction or math.nan
