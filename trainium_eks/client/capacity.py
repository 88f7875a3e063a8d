"""Where to buy capacity for a run: Capacity Blocks in all regions beside On-Demand and Spot, and the cheapest plans."""

import dataclasses
import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_eks.aws import market
from trainium_eks.aws.account import Account, NoCredentialsError
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.project import find_project
from trainium_eks.model.catalogue import lustre, regions, versions
from trainium_eks.model.catalogue.instances import CATALOGUE, InstanceType, near
from trainium_eks.model.config import stack_config
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.config.training import TrainingConfig
from trainium_eks.model.sizing import capacity_plan, goodput
from trainium_eks.model.sizing.block_times import EKS_DRAIN, LARGEST_BLOCK, ULTRASERVER_DRAIN
from trainium_eks.model.sizing.capacity_plan import AHEAD_DAYS, DAYS, Need, Offer, Plan
from trainium_eks.model.validation.config_model import ConfigModelError, read
from trainium_eks.model.validation.formats import utc_text
from trainium_eks.model.validation.problems import Problem, nearest, plural
from trainium_eks.plan.recording.project import InvalidConfigError, ProjectError, load_project

SOONEST = datetime.timedelta(minutes=30)
"""A block starts 30 minutes after it is bought at the earliest (EC2 user guide, Capacity Blocks)."""

_NEARLY = 0.95


@dataclass(frozen=True)
class SearchOptions:
    """What a run needs, and where to look."""

    instance_type: str
    nodes: int
    """Nodes of the gang, 1 to 64; of UltraServers a multiple of their nodes."""
    hours: float
    """Hours of training by the clock: starts of the gang are added, faults are not."""
    by: str
    """Deadline in UTC: a day, which counts to its end, or a moment (``2027-01-31T18:00:00Z``)."""
    earliest: str = ""
    """First day or moment; empty for now."""
    regions: tuple[str, ...] = ()
    """Regions to ask; empty for all whose zones offer the type."""


@dataclass(frozen=True)
class Stack:
    """What the search takes from a stack: how fast its checkpoints are, and its region."""

    region: str = ""
    """Empty without a stack."""
    training: TrainingConfig = TrainingConfig()
    file_system: FileSystemConfig = FileSystemConfig()

    @classmethod
    def find(cls, name: str, directory: Path | None = None) -> "Stack":
        """Return a stack by its project's files; the defaults without a project, or where its file is not valid."""
        try:
            project = load_project(find_project(directory))
            settings = project.stack(name).config
            values = stack_config.decode({key.removeprefix(f"{project.name}:"): text for key, text in settings.items()})
            sections = (
                read(TrainingConfig, values.get("training") or {}),
                read(FileSystemConfig, values.get("fileSystem") or {}),
            )
            return cls(str(values.get("region", "")), *sections)
        except (CommandError, ProjectError, InvalidConfigError, ConfigModelError):
            return cls()


@dataclass(frozen=True)
class Row:
    """One way to have the nodes, for the whole run or a part of it."""

    kind: str
    """``capacity-block``, ``on-demand`` or ``spot``."""
    where: tuple[str, ...]
    """Zone ids."""
    usd: float | None
    """Price: of the whole block, and of On-Demand and Spot for the run; None where none is known."""
    training_hours: float
    """Hours of training that it gives before the deadline."""
    usd_per_useful_hour: float | None
    """Price of an hour of steps that count (docs/goodput.md)."""
    done: datetime.datetime | None
    """When it alone has all hours of the run; None when it has not."""
    offer: Offer | None = None
    score: int | None = None
    """Spot's placement score, 1 to 10."""

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data."""
        return {
            "kind": self.kind,
            "zones": list(self.where),
            **(offer_json(self.offer) if self.offer else {"usd": _rounded(self.usd)}),
            "trainingHours": round(self.training_hours, 2),
            "usdPerUsefulHour": _rounded(self.usd_per_useful_hour),
            "done": utc_text(self.done) if self.done else None,
            **({"score": self.score} if self.kind == "spot" else {}),
        }


@dataclass(frozen=True)
class Market:
    """The answer of a search."""

    options: SearchOptions
    need: Need
    useful_fraction: float
    """Useful share of the hours, by the goodput model."""
    rows: tuple[Row, ...]
    """Blocks by the price of a useful hour, then On-Demand and Spot."""
    plans: tuple[Plan, ...]
    """The cheapest of each kind that holds the deadline, cheapest first."""
    not_checked: Mapping[str, str]
    """Region, or ``Spot placement scores``, to the reason why nothing is known."""
    hints: tuple[str, ...]
    """What would help."""

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data; units are in the names."""
        return {
            "instanceType": self.options.instance_type,
            "nodes": self.options.nodes,
            "hours": self.options.hours,
            "earliest": utc_text(self.need.earliest),
            "deadline": utc_text(self.need.deadline),
            "startSeconds": round(self.need.start_seconds),
            "usefulFraction": round(self.useful_fraction, 4),
            "rows": [row.to_json() for row in self.rows],
            "plans": [plan_json(plan) for plan in self.plans],
            "notChecked": dict(self.not_checked),
            "hints": list(self.hints),
        }


def offer_json(offer: Offer) -> dict[str, Any]:
    """Return an offer as camelCase data."""
    return {
        "offering": offer.id,
        "region": offer.region,
        "zone": offer.zone_id,
        "starts": utc_text(offer.starts),
        "ends": utc_text(offer.ends),
        "nodes": offer.nodes,
        "usd": float(offer.usd),
    }


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as camelCase data."""
    parts = [
        {
            "from": utc_text(each.starts),
            "until": utc_text(each.ends),
            "usd": _rounded(each.usd),
            "offering": each.offer.id if each.offer else None,
        }
        for each in plan.stretches
    ]
    return {
        "kind": plan.kind,
        "region": plan.region,
        "usd": _rounded(plan.usd),
        "done": utc_text(plan.done),
        "stretches": parts,
    }


def search(options: SearchOptions, stack: Stack | None = None, account: Account | None = None) -> Market:
    """Return what is sold for a run. Only reads.

    UsageError: options that nothing can be searched by, all at once, and no credentials.
    """
    stack, now = stack or Stack(), versions.now()
    problems = option_problems(options, now)
    if problems:
        raise UsageError("no capacity was searched", problems, spell=str)
    instance = CATALOGUE[options.instance_type]
    asked = options.regions or tuple(instance.zones)
    account = account or Account(asked[0])
    need, gang = _need(options, instance, stack, now)
    found, refused = _ask(account, asked, options, instance, need)
    spot = _spot_rows(account, asked, options, instance, need, gang) if "spot" in instance.usage else ([], "")
    rows = sorted((_block_row(offer, need, gang) for offer in found), key=lambda row: row.usd_per_useful_hour or 0)
    demand_regions = [each for each in asked if "on-demand" in instance.usage and instance.zones.get(each)]
    if demand_regions:
        rows.append(
            _hourly_row("on-demand", [zone for each in demand_regions for zone in instance.zones[each]], need, gang)
        )
    plans = capacity_plan.plans(found, need, demand_regions)
    market_ = Market(
        options,
        need,
        gang.useful_fraction,
        (*rows, *spot[0]),
        tuple(plans),
        refused | ({"Spot placement scores": spot[1]} if spot[1] else {}),
        (),
    )
    if len(refused) == len(asked):
        return market_
    hints = _hints(market_, found) or _elsewhere(account, asked, options, instance, need)
    return dataclasses.replace(market_, hints=tuple(hints))


def option_problems(options: SearchOptions, now: datetime.datetime) -> list[Problem]:
    """Return the problems of the options, by the names that they have on the command line."""
    found = []
    instance = CATALOGUE.get(options.instance_type)
    sold = tuple(name for name, each in CATALOGUE.items() if each.accelerators)
    if instance is None or not instance.accelerators:
        reason = "the catalogue has no accelerator type of this name"
        good = near(options.instance_type, sold)
        found.append(Problem("--type", reason, value=options.instance_type, allowed=sold, good=good))
    each = instance.ultraserver_nodes if instance else 0
    if not 1 <= options.nodes <= LARGEST_BLOCK or (each and options.nodes % each):
        step = f", in multiples of {each}" if each else ""
        reason = f"a Capacity Block has 1 to {LARGEST_BLOCK} nodes{step}"
        fix = "a larger gang takes several blocks: search for each by itself"
        found.append(Problem("--nodes", reason, fix, value=options.nodes))
    if not 0 < options.hours <= DAYS[-1] * 24:
        reason = f"it must be above 0 and at most {DAYS[-1] * 24}, the longest block"
        found.append(Problem("--hours", reason, value=options.hours, good=min(max(options.hours, 1), DAYS[-1] * 24)))
    moments = {}
    for name, text, is_end in (("--by", options.by, True), ("--from", options.earliest, False)):
        if not text and not is_end:
            continue
        moments[name] = _moment(text, is_end=is_end)
        if moments[name] is None:
            reason = "it is neither a day nor a moment in UTC"
            allowed = ("<YYYY-MM-DD>", "<YYYY-MM-DD>T<hh:mm:ss>Z")
            found.append(Problem(name, reason, value=text, allowed=allowed))
    deadline, earliest = moments.get("--by"), moments.get("--from") or now
    if deadline and deadline <= max(earliest, now):
        found.append(Problem("--by", "it is over before the run may begin", "take a later day", value=options.by))
    for name in options.regions:
        if name not in regions.REGIONS and not regions.may_be_new(name):
            good = nearest(name, regions.REGIONS)
            found.append(
                Problem(
                    "--regions", "it is no region of AWS", "aws ec2 describe-regions has them", value=name, good=good
                )
            )
    return found


def _moment(text: str, *, is_end: bool) -> datetime.datetime | None:
    """Return the moment of a text, of a day its end or its beginning; None for another text."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    found = found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
    is_day = re.fullmatch(r"[0-9-]+", text) is not None
    return found.astimezone(datetime.UTC) + datetime.timedelta(days=1 if is_day and is_end else 0)


def _need(
    options: SearchOptions, instance: InstanceType, stack: Stack, now: datetime.datetime
) -> tuple[Need, goodput.Goodput]:
    """Return the run as the planner needs it, and its goodput with the checkpoints of the stack."""
    rate = goodput.failure_rate(instance.accelerator, stack.training.failures_per_node_year)
    system = stack.file_system
    throughput = lustre.write_megabytes_per_second(
        system.storage_capacity_gib, system.deployment_type, system.throughput_per_tib
    )
    run = goodput.run_on_lustre(options.nodes, rate.per_node_year, stack.training.checkpoint_gigabytes, throughput)
    price = CATALOGUE.price(instance.name)
    earliest = _moment(options.earliest, is_end=False) if options.earliest else None
    deadline = _moment(options.by, is_end=True)
    assert deadline is not None, "option_problems has refused it"
    need = Need(
        hours=options.hours,
        earliest=max(earliest or now, now),
        deadline=deadline,
        start_seconds=goodput.NEW_NODE_SECONDS + run.restart_seconds,
        drain_seconds=(ULTRASERVER_DRAIN if instance.ultraserver_nodes else EKS_DRAIN).total_seconds(),
        on_demand_usd=price.hourly_usd * options.nodes if price else None,
    )
    return need, goodput.expect(run)


def _ask(
    account: Account,
    asked: tuple[str, ...],
    options: SearchOptions,
    instance: InstanceType,
    need: Need,
    *,
    brief: bool = False,
) -> tuple[list[Offer], dict[str, str]]:
    """Return the offers for a run, ``brief``: of the shortest sufficient duration alone, and the regions that could
    not be asked. UsageError without credentials."""
    if "capacity-block" not in instance.usage:
        return [], {}
    durations = capacity_plan.durations(need)
    now = versions.now()
    query = market.Query(
        instance.name,
        options.nodes,
        durations[-2:-1] or durations if brief else durations,
        max(need.earliest, now + SOONEST),
        min(need.deadline, now + datetime.timedelta(days=AHEAD_DAYS)),
        instance.ultraserver_nodes,
    )
    try:
        return market.offers(account, asked, query)
    except NoCredentialsError as error:
        raise UsageError(str(error)) from None


def _block_row(offer: Offer, need: Need, gang: goodput.Goodput) -> Row:
    seconds = need.training_seconds(offer)
    has_all = seconds >= need.seconds
    done = offer.starts + datetime.timedelta(seconds=need.start_seconds + need.seconds) if has_all else None
    useful = seconds / 3600 * gang.useful_fraction
    price = float(offer.usd) / useful if useful else math.inf
    return Row("capacity-block", (offer.zone_id,), float(offer.usd), seconds / 3600, price, done, offer)


def _hourly_row(kind: str, zones: list[str], need: Need, gang: goodput.Goodput, score: int | None = None) -> Row:
    """Return the row of capacity that is paid by the hour, for the whole run at the On-Demand price."""
    needed = need.seconds + need.start_seconds
    usd = need.on_demand_usd * needed / 3600 if need.on_demand_usd is not None else None
    price = usd / (need.hours * gang.useful_fraction) if usd is not None and gang.useful_fraction else None
    done = need.earliest + datetime.timedelta(seconds=needed)
    return Row(kind, tuple(zones), usd, need.hours, price, done if done <= need.deadline else None, score=score)


def _spot_rows(
    account: Account,
    asked: tuple[str, ...],
    options: SearchOptions,
    instance: InstanceType,
    need: Need,
    gang: goodput.Goodput,
) -> tuple[list[Row], str]:
    scores, why = market.spot_scores(account, asked, instance.name, options.nodes)
    best = sorted(scores.items(), key=lambda each: (-each[1], each[0]))
    return [_hourly_row("spot", [zone], need, gang, score) for zone, score in best], why


def _hints(found: Market, offers: list[Offer]) -> list[str]:
    """Return what to change a little, where there are offers."""
    need, hints = found.need, []
    best = found.plans[0].usd if found.plans else math.inf
    for row in sorted(found.rows, key=lambda row: row.usd or math.inf):
        if (
            row.offer
            and row.done is None
            and row.training_hours >= need.hours * _NEARLY
            and row.usd
            and row.usd < 0.9 * best
        ):
            hours = math.floor(row.training_hours * 10) / 10
            hints.append(f"--hours {hours:g} would fit into {row.offer.id}, for {row.usd:,.2f} USD")
            break
    if offers and not any(plan.kind in ("block", "blocks") for plan in found.plans):
        most = max((row for row in found.rows if row.offer), key=lambda row: row.training_hours)
        hints.append(
            f"no blocks hold the deadline: the longest training in one is {most.training_hours:.1f} hours; take a later "
            "--by, fewer --hours, or fewer --nodes"
        )
    return hints if offers else []


def _elsewhere(
    account: Account, asked: tuple[str, ...], options: SearchOptions, instance: InstanceType, need: Need
) -> list[str]:
    """Return what EC2 does sell where it sells no block for a run: other dates, fewer nodes, other types."""
    last = max(need.deadline, versions.now() + datetime.timedelta(days=AHEAD_DAYS))
    family = re.match(r"[a-z]+", instance.name)
    others = [
        each
        for name, each in CATALOGUE.items()
        if family
        and name != instance.name
        and name.startswith(family[0])
        and "capacity-block" in each.usage
        and each.accelerators >= instance.accelerators
    ]
    fewer = options.nodes // 2 // max(instance.ultraserver_nodes, 1) * max(instance.ultraserver_nodes, 1)
    tries = [("--by {ends:%Y-%m-%d}", instance, options.nodes, dataclasses.replace(need, deadline=last), asked)]
    if fewer:
        tries.append((f"--nodes {fewer}", instance, fewer, need, asked))
    for each in others:
        nodes = math.ceil(options.nodes / max(each.ultraserver_nodes, 1)) * max(each.ultraserver_nodes, 1)
        there = options.regions or tuple(each.zones)
        tries.append((f"--type {each.name}", each, min(nodes, LARGEST_BLOCK), need, there))
    hints = []
    for text, type_, nodes, changed, places in tries:
        offers, _ = _ask(account, places, dataclasses.replace(options, nodes=nodes), type_, changed, brief=True)
        usable = [each for each in offers if changed.training_seconds(each) >= changed.seconds]
        if usable:
            first = min(usable, key=lambda each: each.ends)
            what = text.format(ends=first.ends)
            hints.append(
                f"{what}: {plural(len(usable), 'block')}, the first from {first.starts:%Y-%m-%d} in {first.zone_id} for "
                f"{first.usd:,.2f} USD"
            )
    if "capacity-block" not in instance.usage:
        hints.insert(0, f"EC2 sells no Capacity Blocks of {instance.name}")
    return hints or ["EC2 sells no block for fewer nodes, other dates in the next 8 weeks or other types either"]


def _rounded(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, 2)
