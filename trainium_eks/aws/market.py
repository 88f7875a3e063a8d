"""What EC2 sells: Capacity Blocks and their extensions, placement scores of Spot, and purchases.

Does I/O, by boto3, with the caller's credentials. Only :func:`purchase` and :func:`purchase_extension` cost money.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from trainium_eks.aws import sessions
from trainium_eks.aws.account import Account, NoCredentialsError, NotCheckedError, RequestError
from trainium_eks.aws.tags import tags_of
from trainium_eks.model.sizing.capacity_plan import Offer

OFFERING_TAG = "trainium-eks/offering"
"""Tag of a bought reservation with the offering that was asked for: EC2's purchase takes no client token."""

ULTRASERVER_TYPES = {"trn2u.48xlarge": "u-trn2x64"}
"""Instance type to the UltraServer that EC2 sells it in (Neuron documentation, Trn2 architecture)."""

OVER = ("expired", "cancelled", "cancelling", "failed", "payment-failed", "unsupported", "unavailable")
"""States of a reservation without capacity (EC2's CapacityReservationState)."""

_SEARCH_DAYS = 7
"""Days of starts in one question: EC2 answers with the few offers that it recommends for the dates."""

_AT_ONCE = 32

_EXTENSIONS = "CapacityBlockExtensions"

_UNCLEAR = ("InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable")
"""Errors of EC2 that do not say whether the request was served."""


@dataclass(frozen=True)
class Query:
    """The blocks to ask for."""

    instance_type: str
    nodes: int
    durations: tuple[int, ...]
    """Days."""
    earliest: datetime
    """First start."""
    last_start: datetime
    ultraserver_nodes: int = 0
    """Nodes of an UltraServer of the type; 0 for other types."""

    def parameters(self) -> dict[str, Any]:
        """Return the fields of EC2's request that all questions share."""
        if self.ultraserver_nodes:
            kind = ULTRASERVER_TYPES.get(self.instance_type, self.instance_type)
            return {"UltraserverType": kind, "UltraserverCount": math.ceil(self.nodes / self.ultraserver_nodes)}
        return {"InstanceType": self.instance_type, "InstanceCount": self.nodes}


@dataclass(frozen=True)
class Bought:
    """A Capacity Block of the account."""

    id: str
    """Reservation (``cr-…``)."""
    instance_type: str
    zone_id: str
    starts: datetime
    ends: datetime
    nodes: int
    state: str
    """As EC2 has it: ``payment-pending``, ``scheduled``, ``active``, …"""
    offering: str = ""
    """Value of :data:`OFFERING_TAG`."""


def offers(account: Account, regions: Iterable[str], query: Query) -> tuple[list[Offer], dict[str, str]]:
    """Return the offers of all regions, each once, and why a region could not be asked.

    NoCredentialsError: none of the regions takes the credentials.
    """
    refused: dict[str, Exception] = {}
    zones = {region: _Zones(account, region) for region in regions}
    questions = [(region, days, start, end) for region in zones for days, start, end in _windows(query)]

    def ask(region: str, days: int, start: datetime, end: datetime) -> list[Offer]:
        if region in refused:
            return []
        try:
            answer = account.pages(
                "ec2",
                "describe_capacity_block_offerings",
                "CapacityBlockOfferings",
                region=region,
                CapacityDurationHours=days * 24,
                StartDateRange=start,
                EndDateRange=end,
                **query.parameters(),
            )
            return [found for each in answer if (found := _offer(each, region, query, zones[region]))]
        except (NotCheckedError, RequestError) as error:
            refused[region] = error
            return []

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda each: ask(*each), questions))
    errors = list(refused.values())
    if errors and len(errors) == len(zones) and all(isinstance(each, NoCredentialsError) for each in errors):
        raise errors[0]
    found = {(each.region, each.zone_id, each.starts, each.ends): each for part in answers for each in part}
    return list(found.values()), {region: _reason(error) for region, error in refused.items()}


def _windows(query: Query) -> Iterable[tuple[int, datetime, datetime]]:
    """Yield the questions: a duration, the first start and the last end."""
    for days in query.durations:
        start = query.earliest
        while start < query.last_start:
            until = min(start + timedelta(days=max(days, _SEARCH_DAYS)), query.last_start)
            # A block of a day that starts at once ends at 11:30 of the next day but one at the latest.
            yield days, start, until + timedelta(days=days + 1)
            start = until


def _reason(error: Exception) -> str:
    if isinstance(error, NoCredentialsError):
        return f"{error}; or the region is not enabled in this account"
    return str(error)


class _Zones:
    """Ids of a region's zones by name, asked for where an offer names none."""

    def __init__(self, account: Account, region: str) -> None:
        self._account, self._region = account, region

    def id_of(self, name: str) -> str:
        """Return a zone's id; its name where EC2 does not give the id."""
        ask = lambda: self._account.call("ec2", "describe_availability_zones", region=self._region)  # noqa: E731
        try:
            answer = self._account.once(f"zones of {self._region}", ask)
        except (NotCheckedError, RequestError):
            return name
        ids = {each["ZoneName"]: each["ZoneId"] for each in answer["AvailabilityZones"]}
        return str(ids.get(name, name))


def _offer(answer: Mapping[str, Any], region: str, query: Query, zones: _Zones) -> Offer | None:
    """Return one offer; None for one of several segments, which become several reservations, perhaps in several
    zones, and for one in another currency."""
    segments = answer.get("CapacityBlockOfferingSegments") or []
    if len(segments) > 1 or answer.get("CurrencyCode", "USD") != "USD":
        return None
    zone = next((each["AvailabilityZoneId"] for each in segments if each.get("AvailabilityZoneId")), "")
    nodes = answer.get("InstanceCount") or answer.get("UltraserverCount", 0) * query.ultraserver_nodes
    return Offer(
        id=answer["CapacityBlockOfferingId"],
        region=region,
        zone_id=zone or zones.id_of(answer.get("AvailabilityZone", "")),
        starts=answer["StartDate"],
        ends=answer["EndDate"],
        usd=Decimal(answer["UpfrontFee"]),
        nodes=nodes,
    )


def spot_scores(account: Account, regions: Iterable[str], instance_type: str, nodes: int) -> tuple[dict[str, int], str]:
    """Return the placement score of each zone, 1 to 10, for all nodes in that zone, and why there is none; of one type
    EC2's scores are low (EC2 API, GetSpotPlacementScores)."""
    names, scores = list(regions), dict[str, int]()
    try:
        for first in range(0, len(names), 10):  # EC2 takes ten regions
            for each in account.pages(
                "ec2",
                "get_spot_placement_scores",
                "SpotPlacementScores",
                region=names[0],
                InstanceTypes=[instance_type],
                TargetCapacity=nodes,
                TargetCapacityUnitType="units",
                SingleAvailabilityZone=True,
                RegionNames=names[first : first + 10],
            ):
                scores[each["AvailabilityZoneId"]] = each["Score"]
    except (NotCheckedError, RequestError) as error:
        return scores, str(error)
    return scores, ""


# --- what is bought -------------------------------------------------------------------------------------------------


def bought_block(account: Account, reservation: str) -> Bought | None:
    """Return a Capacity Block of the account by its reservation; None for none."""
    answer = account.find(
        "ec2",
        "describe_capacity_reservations",
        absent=r"InvalidCapacityReservationId\..*",
        CapacityReservationIds=[reservation],
    )
    return next((_bought(each) for each in (answer or {}).get("CapacityReservations", ())), None)


def bought_offer(account: Account, instance_type: str, offering: str) -> Bought | None:
    """Return the block that was bought by an offering; None when it was not, or its payment failed."""
    listed = account.pages(
        "ec2",
        "describe_capacity_reservations",
        "CapacityReservations",
        Filters=[{"Name": "instance-type", "Values": [instance_type]}],
    )
    blocks = (_bought(each) for each in listed if each.get("ReservationType") == "capacity-block")
    return next((each for each in blocks if each.offering == offering and each.state not in OVER), None)


def _bought(answer: Mapping[str, Any]) -> Bought:
    return Bought(
        id=answer["CapacityReservationId"],
        instance_type=answer.get("InstanceType", ""),
        zone_id=answer.get("AvailabilityZoneId", ""),
        starts=answer["StartDate"],
        ends=answer["EndDate"],
        nodes=answer.get("TotalInstanceCount", 0),
        state=answer.get("State", ""),
        offering=tags_of(answer.get("Tags", ())).get(OFFERING_TAG, ""),
    )


class NotKnownError(sessions.AwsError):
    """It is not known whether EC2 has done what it was asked for."""


def purchase(region: str, offering: str, tags: Mapping[str, str], *, dry_run: bool) -> Bought | None:
    """Buy a Capacity Block; with ``dry_run`` ask EC2 only whether the caller may, and return None.

    NotAllowedError without the right; AwsError when EC2 refuses; NotKnownError when no answer came: look then by
    :func:`bought_offer`. EC2 is asked once, because the request has no client token.
    """
    named = [{"Key": key, "Value": value} for key, value in tags.items()]
    answer = _buy(
        region,
        f"buy {offering}",
        lambda ec2: ec2.purchase_capacity_block(
            CapacityBlockOfferingId=offering,
            InstancePlatform="Linux/UNIX",
            TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": named}],
            DryRun=dry_run,
        ),
        dry_run=dry_run,
    )
    return None if answer is None else _bought(answer["CapacityReservation"])


def extension_offers(account: Account, reservation: str, days: int) -> list[Offer]:
    """Return what EC2 asks for a longer block; ``starts`` and ``ends`` are those of the extension."""
    listed = account.pages(
        "ec2",
        "describe_capacity_block_extension_offerings",
        "CapacityBlockExtensionOfferings",
        CapacityReservationId=reservation,
        CapacityBlockExtensionDurationHours=days * 24,
    )
    return [
        Offer(
            id=each["CapacityBlockExtensionOfferingId"],
            region=account.region,
            zone_id=each.get("AvailabilityZoneId", ""),
            starts=each["CapacityBlockExtensionStartDate"],
            ends=each["CapacityBlockExtensionEndDate"],
            usd=Decimal(each["UpfrontFee"]),
            nodes=each.get("InstanceCount", 0),
        )
        for each in listed
        if each.get("CurrencyCode", "USD") == "USD"
    ]


def bought_until(account: Account, block: Bought) -> datetime:
    """Return the end of a block with all extensions that were bought, those that are being paid too."""
    listed = account.pages(
        "ec2",
        "describe_capacity_block_extension_history",
        _EXTENSIONS,
        CapacityReservationIds=[block.id],
    )
    ends: list[datetime] = [
        each["CapacityBlockExtensionEndDate"]
        for each in listed
        if each.get("CapacityBlockExtensionStatus") != "payment-failed"
    ]
    return max([block.ends, *ends])


def purchase_extension(region: str, reservation: str, offering: str, *, dry_run: bool) -> datetime | None:
    """Buy an extension and return the block's new end; errors and ``dry_run`` as of :func:`purchase`."""
    answer = _buy(
        region,
        f"extend {reservation}",
        lambda ec2: ec2.purchase_capacity_block_extension(
            CapacityBlockExtensionOfferingId=offering, CapacityReservationId=reservation, DryRun=dry_run
        ),
        dry_run=dry_run,
    )
    ends: list[datetime] = [each["CapacityBlockExtensionEndDate"] for each in (answer or {}).get(_EXTENSIONS, ())]
    return max(ends, default=None)


def _buy(region: str, what: str, ask: Callable[[Any], Any], *, dry_run: bool) -> Any:
    """Return EC2's answer to a purchase; None where it was a dry run that it would allow."""
    try:
        with sessions.saying(what):
            return ask(sessions.client("ec2", region, attempts=1))
    except sessions.CannotAskError:
        raise
    except sessions.AwsError as error:
        if error.code == "DryRunOperation":
            return None
        if not dry_run and (not error.code or error.code in _UNCLEAR):
            raise NotKnownError(f"{error}; it is not known whether it was bought", error.code) from None
        raise
