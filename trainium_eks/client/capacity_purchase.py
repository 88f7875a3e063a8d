"""Purchase of a Capacity Block, or of its extension, and the change of the stack's file that uses it.

Nothing is bought but for the price that the caller agrees to. What was bought is never lost: EC2's answer is shown at
once, Ctrl-C waits until the file is written, and the same command again finds what an earlier one bought.
"""

import datetime
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from trainium_eks.aws import market
from trainium_eks.aws.account import Account, NotCheckedError, RequestError
from trainium_eks.aws.sessions import AwsError, NotAllowedError
from trainium_eks.client.capacity import SOONEST, moment
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.notices import Say
from trainium_eks.client.project import find_project
from trainium_eks.client.stack_edit import GroupEdit
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config import stack_config
from trainium_eks.model.sizing.capacity_plan import AHEAD, DAYS, Offer
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.model.validation.formats import utc_text
from trainium_eks.model.validation.problems import Problem, refused
from trainium_eks.plan.recording.project import InvalidConfigError, Project, ProjectError, load_project

STATEMENT = {
    "Effect": "Allow",
    "Action": ["ec2:PurchaseCapacityBlock", "ec2:PurchaseCapacityBlockExtension", "ec2:CreateTags"],
    "Resource": "*",
}
"""Statement that the buyer's role needs; the deploy role has none of it."""

LOOKS, LOOK_SECONDS = 6, 5.0
"""How often, and after which time, EC2 is asked for a purchase that it did not answer."""

_UNBOUGHT = "cr-00000000000000000"


@dataclass(frozen=True)
class BlockOptions:
    """A block as ``trn capacity`` shows it, and the group for it."""

    offering: str
    """``cb-…``."""
    group: str
    """Group of the stack whose block is over, or a new name."""
    instance_type: str
    nodes: int
    days: int
    """Duration that was searched."""
    starts: str = ""
    """Start of the block, in UTC: another offering for the same time and zone is then as good."""


@dataclass(frozen=True)
class Purchase:
    """What would be bought."""

    region: str
    offer: Offer
    edit: GroupEdit
    options: BlockOptions | None = None
    """None for an extension."""
    reservation: str = ""
    """The reservation: that is extended, or was bought before; empty for a block that is not bought yet."""
    is_bought: bool = False
    """Whether an earlier command has bought it, so that the file alone is left to write."""


@dataclass(frozen=True)
class _Stack:
    """A stack's file, read for a purchase."""

    project: Project
    name: str
    values: Mapping[str, str]
    account: Account

    @classmethod
    def read(cls, stack: str, directory: Path | None, account: Account | None) -> "_Stack":
        try:
            project = load_project(find_project(directory))
            settings = project.stack(stack)
        except (ProjectError, InvalidConfigError) as error:
            raise UsageError(str(error)) from None
        values = {key.removeprefix(f"{project.name}:"): text for key, text in settings.config.items()}
        if not values.get("region"):
            raise UsageError(f"Pulumi.{stack}.yaml names no region, and a block is bought for the stack's")
        return cls(project, stack, values, account or Account(values["region"]))

    def group(self, name: str) -> dict[str, Any] | None:
        """Return a group of the config; None for none."""
        groups = json.loads(self.values.get("nodeGroups") or "[]")
        return next((each for each in groups if each.get("name") == name), None)

    def edit(self, name: str, instance_type: str, offer: Offer, reservation: str = _UNBOUGHT) -> GroupEdit:
        """Return the change by which a group uses a block. CommandError for a change that the config cannot have."""
        there = self.group(name) or {}
        block = {"starts": utc_text(offer.starts), "ends": utc_text(offer.ends), "nodes": offer.nodes}
        values = {
            **({} if there else {"instanceType": instance_type}),
            "minSize": 0,
            "maxSize": max(offer.nodes, int(there.get("maxSize", 1))),
            "desiredSize": 0,
            "ignoreDesiredSize": True,
            "capacity": {"type": "capacity-block", "id": reservation, "zoneId": offer.zone, **block},
        }
        edit = GroupEdit.of(self.project, self.name, name, values)
        edit.difference()
        self._check({"name": name, **there, **values})
        return edit

    def _check(self, group: Mapping[str, Any]) -> None:
        """Refuse a group that the stack's config cannot have."""
        groups = json.loads(self.values.get("nodeGroups") or "[]")
        others = [each for each in groups if each.get("name") != group["name"]]
        before, after = ({**self.values, "nodeGroups": json.dumps(each)} for each in (others, [*others, group]))
        try:
            config = stack_config.load(after, "ignore")
            known = {problem.reason for problem in stack_config.validate(stack_config.load(before, "ignore"))}
        except ConfigModelError as error:
            raise CommandError(f"{group['name']} cannot have this block", error.problems) from None
        waivers = {rule: waiver.reason for rule, waiver in config.waivers.items()}
        if problems := [each for each in refused(stack_config.validate(config), waivers) if each.reason not in known]:
            raise CommandError(f"{group['name']} cannot have this block: nothing was bought", problems)


def prepare_block(
    options: BlockOptions, stack: str, directory: Path | None = None, account: Account | None = None
) -> Purchase:
    """Return the purchase of a block, after everything that can be checked before. Buys nothing.

    UsageError for wrong options; CommandError for a block that is not sold any more, a group that cannot have it, and a
    caller who may not buy."""
    if problems := _block_problems(options):
        raise UsageError("nothing was bought", problems, spell=str)
    found = _Stack.read(stack, directory, account)
    region = found.values["region"]
    with _asking():
        if done := market.bought(found.account, options.instance_type, options.offering):
            if ((found.group(options.group) or {}).get("capacity") or {}).get("id") != done["CapacityReservationId"]:
                _check_group(found, options)
            offer = _offer_of(done, options.offering, region)
            edit = found.edit(options.group, options.instance_type, offer, done["CapacityReservationId"])
            return Purchase(region, offer, edit, options, done["CapacityReservationId"], is_bought=True)
        _check_group(found, options)
        offer = _current(found.account, region, options)
    purchase = Purchase(region, offer, found.edit(options.group, options.instance_type, offer), options)
    _buy(purchase, dry_run=True)
    return purchase


def prepare_extension(
    group: str, days: int, stack: str, directory: Path | None = None, account: Account | None = None
) -> Purchase:
    """Return the purchase of an extension of a group's block, as :func:`prepare_block` does. The days: 1 to 14, or
    multiples of 7 up to 182."""
    if days not in DAYS:
        reason, allowed = "EC2 sells no such extension", "1 to 14, or a multiple of 7 up to 182"
        raise UsageError("nothing was bought", [Problem("--days", reason, value=days, allowed=(allowed,))], spell=str)
    found = _Stack.read(stack, directory, account)
    region, held = found.values["region"], found.group(group)
    capacity = (held or {}).get("capacity") or {}
    if held is None or capacity.get("type") != "capacity-block":
        raise UsageError(f"{group} is no group of {stack} with a Capacity Block")
    with _asking():
        block = market.reservation(found.account, capacity["id"])
        if block is None:
            raise CommandError(f"{capacity['id']} of {group} is no reservation of this account in {region}")
        current = _offer_of(block, "", region)
        ends = market.end_with_extensions(found.account, block)
        known = moment(capacity.get("ends") or utc_text(block["EndDate"]))
        if known and ends > known:  # bought, and not written
            edit = found.edit(group, held["instanceType"], replace(current, ends=ends), capacity["id"])
            return Purchase(region, replace(current, ends=ends), edit, reservation=capacity["id"], is_bought=True)
        offers = market.extension_offers(found.account, capacity["id"], days)
    if not offers:
        raise CommandError(
            f"EC2 sells no extension of {capacity['id']} by {days} days: it does from 56 days to an hour before the "
            "end, where the nodes are free; take fewer days, or buy a block for another group (trn capacity)"
        )
    offer = min(offers, key=lambda each: each.usd)
    edit = found.edit(group, held["instanceType"], replace(current, ends=offer.ends), capacity["id"])
    purchase = Purchase(region, offer, edit, reservation=capacity["id"])
    _buy(purchase, dry_run=True)
    return purchase


def complete(purchase: Purchase, agreed_usd: Decimal | None, say: Say, account: Account | None = None) -> str:
    """Buy at the agreed price, write the stack's file, and return the reservation. ``agreed_usd`` is not used for what
    is bought already.

    CommandError: the price is another, the offer is gone, EC2 refuses, or gives no answer."""
    offer, reservation = purchase.offer, purchase.reservation
    if not purchase.is_bought:
        if agreed_usd is None or agreed_usd != offer.usd:
            raise CommandError(f"{offer.id} costs {offer.usd} USD, not {agreed_usd}: nothing was bought")
        account = account or Account(purchase.region)
        with _asking():
            if purchase.options:
                now = _current(account, purchase.region, purchase.options)
            else:
                listed = market.extension_offers(account, reservation, round((offer.ends - offer.starts).days) or 1)
                now = next((each for each in listed if each.ends == offer.ends), replace(offer, usd=Decimal(-1)))
        if (now.usd, now.starts, now.ends) != (offer.usd, offer.starts, offer.ends):
            raise CommandError(f"EC2 does not sell {offer.id} for {offer.usd} USD any more: nothing was bought")
        purchase = replace(purchase, offer=now)
    with _uninterrupted(say):
        if not purchase.is_bought:
            reservation = _buy(purchase, account=account)
        try:
            say(f"Bought: {reservation}")
        finally:
            capacity = {**purchase.edit.values["capacity"], "id": reservation}
            replace(purchase.edit, values={**purchase.edit.values, "capacity": capacity}).write()
    return reservation


def _block_problems(options: BlockOptions) -> list[Problem]:
    found = []
    kind = CATALOGUE.get(options.instance_type)
    if kind is None or "capacity-block" not in kind.usage:
        sold = tuple(name for name, each in CATALOGUE.items() if "capacity-block" in each.usage)
        found.append(Problem("--type", "EC2 sells no block of it", value=options.instance_type, allowed=sold))
    elif kind.ultraserver_nodes and options.nodes != kind.ultraserver_nodes:
        fix = "buy a block, and a group, for each UltraServer"
        found.append(Problem("--nodes", "each UltraServer is a block", fix, value=options.nodes))
    if options.days not in DAYS:
        allowed = "1 to 14, or a multiple of 7 up to 182"
        found.append(Problem("--days", "no block has these days", value=options.days, allowed=(allowed,)))
    if options.starts and moment(options.starts) is None:
        found.append(Problem("--starts", "it is no time in UTC", "take it from `trn capacity`", value=options.starts))
    return found


def _check_group(stack: _Stack, options: BlockOptions) -> None:
    """Refuse a group that is in use: of other capacity or another type, or with a block that is not over."""
    group, other = stack.group(options.group), "choose another --group: a new name makes a new group"
    if group is None:
        return
    capacity = group.get("capacity") or {"type": "on-demand"}
    if capacity.get("type") != "capacity-block":
        raise CommandError(f"{options.group} has {capacity.get('type')} capacity: {other}")
    if group.get("instanceType") != options.instance_type:
        raise CommandError(f"{options.group} is of {group.get('instanceType')}: {other}")
    held = market.reservation(stack.account, capacity["id"])
    ends = moment(capacity.get("ends") or "") or versions.now()
    ends = max(ends, held["EndDate"]) if held and held["State"] not in market.OVER else ends
    if ends > versions.now():
        raise CommandError(
            f"{options.group} has {capacity['id']} until {utc_text(ends)}, and a group has one block at a time: "
            f"{other}, or extend the block (trn capacity extend)"
        )


def _current(account: Account, region: str, options: BlockOptions) -> Offer:
    """Return the offer as EC2 has it now, by its id or, because EC2 may name it anew, by its start."""
    now, kind = versions.now(), CATALOGUE[options.instance_type]
    start = moment(options.starts) if options.starts else None
    earliest, latest = (start, start + datetime.timedelta(days=1)) if start else (now + SOONEST, now + AHEAD)
    query = market.Query(kind.name, options.nodes, (options.days,), earliest, latest, kind.ultraserver_nodes)
    offers, refused_ = market.offers(account, [region], query)
    same = [each for each in offers if each.id == options.offering]
    same = same or sorted((each for each in offers if each.starts == start), key=lambda each: each.usd)
    if not same:
        why = refused_.get(region, "search again: trn capacity")
        raise CommandError(f"EC2 does not sell {options.offering} in {region} now: nothing was bought; {why}")
    return same[0]


def _offer_of(reservation: market.Reservation, offering: str, region: str) -> Offer:
    """Return what a reservation was sold as."""
    zone, nodes = reservation["AvailabilityZoneId"], reservation["TotalInstanceCount"]
    return Offer(offering, region, zone, reservation["StartDate"], reservation["EndDate"], nodes, Decimal(0), 0)


def _buy(purchase: Purchase, *, dry_run: bool = False, account: Account | None = None) -> str:
    """Buy, and return the reservation; with ``dry_run`` ask only whether the caller may. Without an answer of EC2, look
    for the purchase."""
    region, offer, options = purchase.region, purchase.offer, purchase.options
    try:
        if options is None:
            market.purchase_extension(region, purchase.reservation, offer.id, dry_run=dry_run)
            return purchase.reservation
        tags = {market.OFFERING_TAG: options.offering, "Name": options.group}
        found = market.purchase(region, offer.id, tags, dry_run=dry_run)
        return str(found["CapacityReservationId"]) if found else ""
    except NotAllowedError as error:
        statement = json.dumps(STATEMENT)
        raise CommandError(f"you may not buy: {error}", detail=f"Add to your role's policy: {statement}") from None
    except market.NotKnownError as error:
        if account and (found_id := _found(purchase, account)):
            return found_id
        again = "run the same command again in some minutes: it looks first"
        raise CommandError(f"{error}. Whether {offer.id} was bought is not known: {again}") from None
    except AwsError as error:
        raise CommandError(f"{error}: nothing was bought") from None


def _found(purchase: Purchase, account: Account) -> str:
    """Return the reservation of a purchase without an answer; empty when EC2 does not show it."""
    for _ in range(LOOKS):
        time.sleep(LOOK_SECONDS)
        try:
            if options := purchase.options:
                found = market.bought(account, options.instance_type, options.offering)
            else:
                found = market.reservation(account, purchase.reservation)
                is_longer = found and market.end_with_extensions(account, found) >= purchase.offer.ends
                found = found if is_longer else None
            if found:
                return str(found["CapacityReservationId"])
        except (NotCheckedError, RequestError):
            continue
    return ""


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
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def hold(number: int, _: object) -> None:
        pressed.append(number)
        say("The purchase is finished first.")

    before = {number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if pressed:
        raise KeyboardInterrupt
