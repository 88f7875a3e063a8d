"""Purchase of a Capacity Block, or of its extension, and the change of the stack's file that uses it.

Nothing is bought but for the price that the caller agrees to. What was bought is never lost: EC2's answer is shown at
once, Ctrl-C waits until the file is written, and the same command again finds what an earlier one bought.
"""

import datetime
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any

from trainium_eks.aws import market
from trainium_eks.aws.account import Account, NotCheckedError, RequestError
from trainium_eks.aws.sessions import AwsError, NotAllowedError
from trainium_eks.client.capacity import SOONEST, Stack, moment
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.notices import Say
from trainium_eks.client.signals import handled
from trainium_eks.client.stack_edit import GroupEdit
from trainium_eks.jobs.objects.options import Option
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config import stack_config
from trainium_eks.model.sizing.capacity_plan import AHEAD, DAYS, Offer
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.model.validation.formats import utc_text
from trainium_eks.model.validation.problems import Problem, refused

STATEMENT = {
    "Effect": "Allow",
    "Action": ["ec2:PurchaseCapacityBlock", "ec2:PurchaseCapacityBlockExtension", "ec2:CreateTags"],
    "Resource": "*",
}
"""Statement that the buyer's role needs; the deploy role has none of it."""

LOOKS, LOOK_SECONDS = 6, 5.0
"""How often, and after which time, EC2 is asked for a purchase that it did not answer."""

UNBOUGHT = "cr-00000000000000000"
"""Stands for the reservation before it exists."""


@dataclass(frozen=True)
class BlockOptions:
    """A block as ``trn capacity`` shows it, and the group for it."""

    offering: Annotated[str, Option("", "Offering, as `trn capacity` shows it.", "OFFERING")]
    group: Annotated[str, Option("--group", "Node group for it: a new name, or one whose block is over.")]
    instance_type: Annotated[str, Option("--type", "Instance type of the nodes.")]
    nodes: Annotated[int, Option("--nodes", "Nodes of the block.")]
    days: Annotated[int, Option("--days", "Duration that was searched, as `trn capacity` shows it.")]
    starts: Annotated[
        str, Option("--starts", "Start of the block: EC2 may give the same block another offering.", "TIME")
    ] = ""


@dataclass(frozen=True)
class Purchase:
    """A block or an extension, and the change of the stack's file, before anything is bought."""

    account: Account
    offer: Offer
    edit: GroupEdit
    look: Callable[[], Offer]
    """Returns the offer as EC2 has it now; CommandError where it is gone."""
    find: Callable[[], market.Reservation | None]
    """Returns the reservation when it was bought after all."""
    tags: Mapping[str, str]
    """Tags of the new reservation; none for an extension."""
    reservation: str = ""
    """The reservation that is extended, or was bought by an earlier command; empty for a block to buy."""
    is_bought: bool = False
    """Whether an earlier command has bought it, so that the file alone is left to write."""


def prepare_block(options: BlockOptions, stack: Stack, account: Account | None = None) -> Purchase:
    """Return the purchase of a block, after everything that can be checked before. Buys nothing.

    UsageError for wrong options; CommandError for a block that is not sold any more, a group that cannot have it, and a
    caller who may not buy."""
    _check(options.days, options)
    account, group = _account(stack, account), _group(stack, options.group)

    bought = functools.partial(market.bought, account, options.instance_type, options.offering)
    with _asking():
        done = bought()
        reservation = str(done["CapacityReservationId"]) if done else ""
        if group and not (done and (group.get("capacity") or {}).get("id") == reservation):
            _check_group(account, options, group)
        offer = _offer_of(done, account) if done else _current(account, options)
    edit = _edit(stack, options.group, options.instance_type, offer, reservation)
    tags = {market.OFFERING_TAG: options.offering, "Name": options.group}
    look = functools.partial(_current, account, options, offer.zone)
    purchase = Purchase(account, offer, edit, look, bought, tags, reservation, is_bought=done is not None)
    _buy(purchase, dry_run=True)
    return purchase


def prepare_extension(group: str, days: int, stack: Stack, account: Account | None = None) -> Purchase:
    """Return the purchase of an extension of a group's block, as :func:`prepare_block` does. The days: 1 to 14, or
    multiples of 7 up to 182."""
    _check(days)
    account, held = _account(stack, account), _group(stack, group) or {}
    capacity = held.get("capacity") or {}
    if capacity.get("type") != "capacity-block":
        raise UsageError(f"{group} is no group of {stack.name} with a Capacity Block")
    reservation = str(capacity.get("id"))

    def look() -> Offer:
        listed = market.extension_offers(account, reservation, days)
        if not listed:
            when = "from 56 days to an hour before its end, where nodes are free: take fewer days, or another block"
            raise CommandError(f"EC2 sells no extension of {reservation} by {days} days; it does {when}")
        return min(listed, key=lambda each: each.usd)

    with _asking():
        block = market.reservation(account, reservation)
        if block is None:
            raise CommandError(f"{reservation} of {group} is no reservation of this account in {account.region}")
        longer = replace(_offer_of(block, account), ends=market.end_with_extensions(account, block))
        # An extension that was bought and is not in the file yet.
        is_bought = longer.ends > (moment(capacity.get("ends") or "") or block["EndDate"])
        offer = longer if is_bought else look()

    def find() -> market.Reservation | None:
        return block if market.end_with_extensions(account, block) >= offer.ends else None

    edit = _edit(stack, group, held["instanceType"], replace(longer, ends=offer.ends), reservation)
    purchase = Purchase(account, offer, edit, look, find, {}, reservation, is_bought=is_bought)
    _buy(purchase, dry_run=True)
    return purchase


def complete(purchase: Purchase, agreed_usd: Decimal | None, say: Say) -> str:
    """Buy at the agreed price, write the stack's file, and return the reservation. What an earlier command has bought
    is only written.

    CommandError: the price is another, the offer is gone, EC2 refuses, or gives no answer."""
    offer = purchase.offer
    if not purchase.is_bought:
        if agreed_usd != offer.usd:
            raise CommandError(f"the price is {offer.usd} USD, not {agreed_usd}: nothing was bought")
        with _asking():
            purchase = replace(purchase, offer=purchase.look())
        if replace(purchase.offer, id=offer.id) != offer:
            raise CommandError(f"EC2 does not sell {offer.id} for {offer.usd} USD any more: nothing was bought")
    with _uninterrupted(say):
        reservation = _buy(purchase)
        try:
            say(f"Bought: {reservation}")
        finally:
            capacity = {**purchase.edit.values["capacity"], "id": reservation}
            replace(purchase.edit, values={**purchase.edit.values, "capacity": capacity}).write()
    return reservation


def _account(stack: Stack, given: Account | None) -> Account:
    if not (region := stack.values.get("region")):
        raise UsageError(f"Pulumi.{stack.name}.yaml names no region, and a block is bought in the stack's")
    return given or Account(region)


def _group(stack: Stack, name: str) -> dict[str, Any] | None:
    groups = json.loads(stack.values.get("nodeGroups") or "[]")
    return next((each for each in groups if each.get("name") == name), None)


def _edit(stack: Stack, name: str, instance_type: str, offer: Offer, reservation: str) -> GroupEdit:
    """Return the change by which a group uses a block. CommandError for one that the file or the config cannot have."""
    there = _group(stack, name) or {}
    block = {"starts": utc_text(offer.starts), "ends": utc_text(offer.ends), "nodes": offer.nodes}
    values = {
        **({} if there else {"instanceType": instance_type}),
        "minSize": 0,
        "maxSize": max(offer.nodes, int(there.get("maxSize", 1))),
        "desiredSize": 0,
        "ignoreDesiredSize": True,
        "capacity": {"type": "capacity-block", "id": reservation or UNBOUGHT, "zoneId": offer.zone, **block},
    }
    edit = GroupEdit.of(stack.project, stack.name, name, values)
    edit.difference()

    def judged(groups: list[Any]) -> tuple[Problem, ...]:
        config = stack_config.load({**stack.values, "nodeGroups": json.dumps(groups)}, "ignore")
        return refused(stack_config.validate(config), {rule: each.reason for rule, each in config.waivers.items()})

    others = [each for each in json.loads(stack.values["nodeGroups"]) if each.get("name") != name]
    try:
        known = {each.reason for each in judged(others)}
        problems = [each for each in judged([*others, {"name": name, **there, **values}]) if each.reason not in known]
    except ConfigModelError as error:
        problems = list(error.problems)
    if problems:
        raise CommandError(f"{name} cannot have this block: nothing was bought", problems)
    return edit


def _check(days: int, block: BlockOptions | None = None) -> None:
    """Refuse days, and with ``block`` a block, that EC2 does not sell; all problems at once."""
    found, kind = list[Problem](), CATALOGUE.get(block.instance_type) if block else None
    if block and (kind is None or "capacity-block" not in kind.usage):
        sold = tuple(name for name, each in CATALOGUE.items() if "capacity-block" in each.usage)
        found.append(
            Problem("--type", "the catalogue knows no Capacity Block of it", value=block.instance_type, allowed=sold)
        )
    if block and kind and kind.ultraserver_nodes and block.nodes != kind.ultraserver_nodes:
        fix, good = "buy a block, and a group, for each UltraServer", kind.ultraserver_nodes
        found.append(Problem("--nodes", "each UltraServer is a block", fix, value=block.nodes, good=good))
    if block and block.starts and moment(block.starts) is None:
        found.append(Problem("--starts", "it is no time in UTC", "take it from `trn capacity`", value=block.starts))
    if days not in DAYS:
        allowed = ("1 to 14, or a multiple of 7 up to 182",)
        found.append(Problem("--days", "the catalogue has no block of these days", value=days, allowed=allowed))
    if found:
        raise UsageError("nothing was bought", found, spell=str)


def _check_group(account: Account, options: BlockOptions, group: Mapping[str, Any]) -> None:
    """Refuse a group that is in use: of other capacity or another type, or with a block that is not over."""
    capacity, kind, now = group.get("capacity") or {"type": "on-demand"}, group.get("instanceType"), versions.now()
    used = f"{capacity.get('type')} capacity of {kind}"
    if capacity.get("type") == "capacity-block" and kind == options.instance_type:
        held, ends = market.reservation(account, str(capacity.get("id"))), moment(capacity.get("ends") or "") or now
        ends = max(ends, held["EndDate"]) if held and held["State"] not in market.OVER else ends
        used = f"{capacity.get('id')} until {utc_text(ends)}, and a group has one block at a time" if ends > now else ""
    if used:
        other = "choose another --group, a new name makes a new group, or extend its block: trn capacity extend"
        raise CommandError(f"{options.group} has {used}: {other}")


def _current(account: Account, options: BlockOptions, zone: str = "") -> Offer:
    """Return the offer as EC2 has it now: by its id or, because EC2 may name it anew, its start, in the zone first."""
    now, kind = versions.now(), CATALOGUE[options.instance_type]
    start = moment(options.starts) if options.starts else None
    earliest, latest = (start, start + datetime.timedelta(days=1)) if start else (now + SOONEST, now + AHEAD)
    place, what = [account.region], (kind, options.nodes, [options.days])
    offers, not_checked = market.offers(account, place, *what, earliest, latest)
    same = [each for each in offers if options.offering == each.id or each.starts.replace(microsecond=0) == start]
    if not same:
        why = not_checked.get(account.region, "search again: trn capacity")
        raise CommandError(f"EC2 does not sell {options.offering} in {account.region} now: nothing was bought; {why}")
    return min(same, key=lambda each: (each.id != options.offering, each.zone != zone, each.usd))


def _offer_of(reservation: market.Reservation, account: Account) -> Offer:
    """Return what a reservation was sold as, without its price."""
    zone, times = reservation["AvailabilityZoneId"], (reservation["StartDate"], reservation["EndDate"])
    id_, nodes = reservation["CapacityReservationId"], reservation["TotalInstanceCount"]
    return Offer(id_, account.region, zone, *times, nodes, Decimal(0), 0)


def _buy(purchase: Purchase, *, dry_run: bool = False) -> str:
    """Buy what is not bought, and return the reservation; with ``dry_run`` ask only whether the caller may. Without an
    answer of EC2, look for the purchase."""
    if purchase.is_bought:
        return purchase.reservation
    region, offer, extended = purchase.account.region, purchase.offer, purchase.reservation
    try:
        return market.purchase(region, offer.id, purchase.tags, extended=extended, dry_run=dry_run)
    except NotAllowedError as error:
        detail = f"Add to the policy of your role: {json.dumps(STATEMENT)}"
        raise CommandError(f"you may not buy: {error}", detail=detail) from None
    except market.NotKnownError as error:
        for _ in range(LOOKS):
            time.sleep(LOOK_SECONDS)
            with suppress(NotCheckedError, RequestError):
                if found := purchase.find():
                    return str(found["CapacityReservationId"])
        again = "run the same command again in some minutes: it looks first"
        raise CommandError(f"{error}. Whether {offer.id} was bought is not known: {again}") from None
    except AwsError as error:
        raise CommandError(f"{error}: nothing was bought") from None


@contextmanager
def _asking() -> Iterator[None]:
    """Turn errors of reading AWS into those of a command."""
    try:
        yield
    except (NotCheckedError, RequestError) as error:
        raise UsageError(f"nothing was bought: {error}") from None


@contextmanager
def _uninterrupted(say: Say) -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until what was bought is written."""
    pressed: list[int] = []

    def hold(number: int, _: object) -> None:
        pressed.append(number)
        say("The purchase is finished first.")

    with handled(hold, "SIGINT", "SIGTERM"):
        yield
    if pressed:
        raise KeyboardInterrupt
