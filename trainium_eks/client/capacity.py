"""Where to buy capacity for a run: Capacity Blocks of all regions beside On-Demand and Spot, and the cheapest plans."""

import dataclasses
import datetime
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeVar

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
from trainium_eks.model.validation.config_model import ConfigModel, ConfigModelError, read
from trainium_eks.model.validation.formats import utc_text
from trainium_eks.model.validation.problems import Problem, config_path, nearest, plural
from trainium_eks.plan.recording.project import InvalidConfigError, Project, ProjectError, load_project

Section = TypeVar("Section", bound=ConfigModel)

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
    """A stack's config; without values its defaults count."""

    project: Project | None = None
    name: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
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

    @property
    def region(self) -> str:
        """Its region; empty for none."""
        return self.values.get("region", "")

    def section(self, key: str, kind: type[Section]) -> Section:
        """Return a section of the config; its defaults where it is not valid."""
        try:
            found: Section = read(kind, json.loads(self.values.get(key) or "{}") or {})
        except (ConfigModelError, ValueError):
            found = kind()
        return found


@dataclass(frozen=True)
class Row:
    """One way to have the nodes, for the whole run or a part of it."""

    kind: str
    """``capacity-block``, ``on-demand`` or ``spot``."""
    zones: tuple[str, ...]
    usd: float | None
    """Price of the whole block; of On-Demand and Spot that of the run, at the list price of On-Demand, None where none
    is known."""
    training_hours: float
    """Hours of training that it gives before the deadline."""
    usd_per_useful_hour: float | None
    """Price of an hour of steps that count (docs/goodput.md)."""
    done: datetime.datetime | None
    """When it alone has all hours of the run; None when it has not."""
    offer: Offer | None = None
    score: int | None = None
    """Spot's placement score, 1 to 10."""


@dataclass(frozen=True)
class Market:
    """The answer of a search."""

    options: SearchOptions
    need: Need
    useful_fraction: float
    """Useful share of the hours, by the goodput model."""
    rows: tuple[Row, ...]
    """Blocks, those that hold the deadline first by their price, others by that of a useful hour; On-Demand; Spot."""
    plans: tuple[Plan, ...]
    """The cheapest of each kind that holds the deadline, cheapest first, and then those of the stack's own region."""
    not_checked: Mapping[str, str]
    """Region, or ``Spot placement scores``, to the reason why nothing, or not all, is known."""
    hints: tuple[str, ...] = ()
    """What would help."""


def to_json(value: Any) -> Any:
    """Return any of these classes as camelCase data; units are in the names."""
    if dataclasses.is_dataclass(value):
        named = ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))
        return {config_path(name): to_json(each) for name, each in named}
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal | float):
        return round(float(value), 4) if math.isfinite(value) else None
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    return utc_text(value) if isinstance(value, datetime.datetime) else value


def search(options: SearchOptions, stack: Stack | None = None, account: Account | None = None) -> Market:
    """Return what is sold for a run. Only reads.

    UsageError: options that nothing can be searched by, all problems at once; and no credentials.
    """
    now = versions.now()
    if problems := option_problems(options, now):
        raise UsageError("no capacity was searched", problems, spell=str)
    kind = CATALOGUE[options.instance_type]
    asked = list(options.regions or kind.zones)
    account = account or Account(asked[0])
    need, gang = _need(options, kind, stack or Stack(), now)
    offers, not_checked = _offers(account, asked, options, need)
    rows = sorted((_block_row(each, need, gang) for each in offers), key=_preference)
    demanded = [each for each in asked if "on-demand" in kind.usage and kind.zones.get(each)]
    if demanded:
        zones = [zone for each in demanded for zone in kind.zones[each]]
        rows.append(_hourly_row("on-demand", zones, need, gang))
    if "spot" in kind.usage:
        scores, why = market.spot_scores(account, asked, kind.name, options.nodes)
        best = sorted(scores.items(), key=lambda each: (-each[1], each[0]))
        rows += [replace(_hourly_row("spot", [zone], need, gang), score=score) for zone, score in best]
        not_checked = not_checked | ({"Spot placement scores": why} if why else {})
    plans = capacity_plan.plans(offers, need, demanded)
    if stack and stack.region in asked:
        own = [each for each in offers if each.region == stack.region]
        own_plans = capacity_plan.plans(own, need, {stack.region} & {*demanded})
        plans += [
            plan for plan in own_plans if plan.region not in {each.region for each in plans if each.kind == plan.kind}
        ]
    found = Market(options, need, gang.useful_fraction, tuple(rows), tuple(plans), not_checked)
    if set(asked) <= set(not_checked):
        return found
    hints = _hints(found) if offers else _alternatives(account, asked, options, need)
    if 0 < kind.ultraserver_nodes < options.nodes:
        hints.append(f"each UltraServer is a block: --nodes {kind.ultraserver_nodes} finds those to buy one by one")
    return replace(found, hints=tuple(hints))


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
    for name, text, read_ in (("--by", options.by, deadline), ("--from", options.earliest, earliest)):
        if read_ is None:
            allowed = "<YYYY-MM-DD> or <YYYY-MM-DD>T<hh:mm:ss>Z"
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
    options: SearchOptions, kind: InstanceType, stack: Stack, now: datetime.datetime
) -> tuple[Need, goodput.Goodput]:
    """Return the run as the planner needs it, and its goodput with the stack's checkpoints."""
    training, disk = stack.section("training", TrainingConfig), stack.section("fileSystem", FileSystemConfig)
    rate = goodput.failure_rate(kind.accelerator, training.failures_per_node_year)
    speed = lustre.write_megabytes_per_second(disk.storage_capacity_gib, disk.deployment_type, disk.throughput_per_tib)
    run = goodput.run_on_lustre(options.nodes, rate.per_node_year, training.checkpoint_gigabytes, speed)
    price, deadline = CATALOGUE.price(kind.name), moment(options.by, is_end=True)
    assert deadline is not None, "option_problems has refused it"
    need = Need(
        options.hours,
        max(moment(options.earliest) or now, now),
        deadline,
        goodput.NEW_NODE_SECONDS + run.restart_seconds,
        ULTRASERVER_DRAIN if kind.ultraserver_nodes else EKS_DRAIN,
        price.hourly_usd * options.nodes if price else None,
    )
    return need, goodput.expect(run)


def _offers(
    account: Account, asked: Sequence[str], options: SearchOptions, need: Need, durations: Sequence[int] = ()
) -> tuple[list[Offer], dict[str, str]]:
    """Return the offers for a run, and the regions that could not be asked; UsageError without credentials."""
    now, kind = versions.now(), CATALOGUE[options.instance_type]
    if "capacity-block" not in kind.usage:
        return [], {}
    days = tuple(durations or capacity_plan.durations(need))
    earliest, latest = max(need.earliest, now + SOONEST), min(need.deadline, now + AHEAD)
    query = market.Query(kind.name, options.nodes, days, earliest, latest, kind.ultraserver_nodes)
    try:
        return market.offers(account, asked, query)
    except NoCredentialsError as error:
        raise UsageError(str(error)) from None


def _block_row(offer: Offer, need: Need, gang: goodput.Goodput) -> Row:
    hours, usd = need.training_seconds(offer) / 3600, float(offer.usd)
    done = offer.starts + datetime.timedelta(seconds=need.start_seconds, hours=need.hours)
    useful = usd / (hours * gang.useful_fraction) if hours and gang.useful_fraction else math.inf
    return Row("capacity-block", (offer.zone,), usd, hours, useful, done if hours >= need.hours else None, offer)


def _preference(row: Row) -> tuple[bool, float, datetime.datetime]:
    """Return the order of a block's row."""
    assert row.offer is not None, "the row of a block"
    return row.done is None, (row.usd if row.done else row.usd_per_useful_hour) or 0.0, row.offer.starts


def _hourly_row(kind: str, zones: Sequence[str], need: Need, gang: goodput.Goodput) -> Row:
    """Return the row of capacity that is paid by the hour, for the whole run."""
    hours = need.hours + need.start_seconds / 3600
    usd = None if need.on_demand_usd is None else need.on_demand_usd * hours
    useful = usd / (need.hours * gang.useful_fraction) if usd and gang.useful_fraction else None
    done = need.earliest + datetime.timedelta(hours=hours)
    return Row(kind, tuple(zones), usd, need.hours, useful, done if done <= need.deadline else None)


def _hints(found: Market) -> list[str]:
    """Return small changes of the request that would help, where there are offers."""
    hours, blocks = found.need.hours, [row for row in found.rows if row.offer]
    most = 0.9 * (found.plans[0].usd if found.plans else math.inf)
    nearly = [row for row in blocks if 0.95 * hours <= row.training_hours < hours and (row.usd or 0) < most]
    hints = []
    if best := min(nearly, key=lambda row: row.usd or 0, default=None):
        fitting = math.floor(best.training_hours * 10) / 10
        hints.append(f"--hours {fitting:g} would fit into {best.offer and best.offer.id}, for {best.usd:,.2f} USD")
    if not any("block" in plan.kind for plan in found.plans):
        longest = max(row.training_hours for row in blocks)
        hints.append(
            f"no blocks hold the deadline, the longest has {longest:.1f} hours of training: take a later --by, "
            "or fewer --hours or --nodes"
        )
    return hints


def _alternatives(account: Account, asked: Sequence[str], options: SearchOptions, need: Need) -> list[str]:
    """Return what EC2 sells where it has no block for a run: on other dates, of fewer nodes, of other types."""
    kind = CATALOGUE[options.instance_type]
    steps = max(kind.ultraserver_nodes, 1)
    later = replace(need, deadline=max(need.deadline, versions.now() + AHEAD))
    tries = [("another --by", asked, options, later)]
    if fewer := options.nodes // 2 // steps * steps:
        tries.append((f"--nodes {fewer}", asked, replace(options, nodes=fewer), need))
    letters = kind.name[: re.match("[a-z]+", kind.name).end()]  # type: ignore[union-attr]
    for name, other in CATALOGUE.items():
        is_like = name.startswith(letters) and other.accelerators >= kind.accelerators
        if is_like and name != kind.name and not options.nodes % max(other.ultraserver_nodes, 1):
            there = options.regions or tuple(other.zones)
            tries.append((f"--type {name}", there, replace(options, instance_type=name), need))
    hints = [] if "capacity-block" in kind.usage else [f"EC2 sells no Capacity Blocks of {kind.name}"]
    for change, places, changed, wanted in tries:
        offers, _ = _offers(account, places, changed, wanted, capacity_plan.durations(wanted)[-2:])
        if usable := [each for each in offers if wanted.training_seconds(each) >= wanted.hours * 3600]:
            first = min(usable, key=lambda each: each.ends)
            what = f"{first.starts:%Y-%m-%d} to {first.ends:%Y-%m-%d} in {first.zone}, {first.usd:,.2f} USD"
            hints.append(f"{change} has {plural(len(usable), 'block')}, the first {what}")
    return hints or [
        "EC2 sells no block for fewer nodes, on other dates of the next 8 weeks or of similar types either"
    ]
