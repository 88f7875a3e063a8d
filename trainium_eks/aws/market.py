"""What EC2 sells: Capacity Blocks and their extensions, placement scores of Spot, and purchases.

Does I/O, by boto3, with the caller's credentials. Only :func:`purchase` costs money.
Reservations are EC2's own documents (``CapacityReservation`` of its API).
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from trainium_eks.aws import sessions
from trainium_eks.aws.account import Account, NoCredentialsError, NotCheckedError, RequestError
from trainium_eks.aws.tags import tags_of
from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.sizing.capacity_plan import Offer

Reservation = Mapping[str, Any]

OFFERING_TAG = "trainium-eks/offering"
"""Tag of a bought reservation with the offering that was asked for: EC2's purchase takes no client token."""

ULTRASERVERS = {"trn2u.48xlarge": "u-trn2x64"}
"""Instance type to the UltraServer that EC2 sells it in (Neuron documentation, Trn2 architecture)."""

OVER = ("expired", "cancelled", "cancelling", "failed", "payment-failed", "unsupported", "unavailable")
"""States of a reservation without capacity (EC2's CapacityReservationState)."""

_SEARCH_DAYS = 7
"""Days of starts in one question: EC2 answers with the few offers that it recommends for the dates."""

_AT_ONCE = 32

_UNCLEAR = ("", "InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable")
"""Error codes that do not say whether a request was served; empty where no answer came."""


def offers(
    account: Account, regions: Sequence[str], kind: InstanceType, nodes: int, days: Iterable[int], *between: datetime
) -> tuple[list[Offer], dict[str, str]]:
    """Return the blocks of these durations that start between two times in the regions, each once, and why a region
    could not be asked, or not for all.

    NoCredentialsError: no region takes the credentials.
    """
    refused: dict[str, Exception] = {}
    what: dict[str, Any] = {"InstanceType": kind.name, "InstanceCount": nodes}
    if each_server := kind.ultraserver_nodes:
        what = {"UltraserverType": ULTRASERVERS.get(kind.name, kind.name), "UltraserverCount": nodes // each_server}

    def ask(region: str, duration: int, start: datetime) -> list[Offer]:
        if region in refused:
            return []
        until = min(start + timedelta(days=max(duration, _SEARCH_DAYS)), between[1])
        # All end at 11:30, so that a block lasts a day more at most.
        range_ = {"StartDateRange": start, "EndDateRange": until + timedelta(days=duration + 1)}
        request = {**what, **range_, "CapacityDurationHours": duration * 24}
        operation, key = "describe_capacity_block_offerings", "CapacityBlockOfferings"
        try:
            answer = account.pages("ec2", operation, key, region=region, **request)
            return [_offer(account, region, each, kind, duration) for each in answer if _is_plain(each)]
        except (NotCheckedError, RequestError) as error:
            refused[region] = error
            return []

    questions = []
    for duration in days:
        start = between[0]
        while start < between[1]:
            questions += [(region, duration, start) for region in regions]
            start += timedelta(days=max(duration, _SEARCH_DAYS))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda question: ask(*question), questions)
        dearest_first = sorted((each for part in answers for each in part), key=lambda each: -each.usd)
    lacking = [each for each in refused.values() if isinstance(each, NoCredentialsError)]
    if lacking and len(lacking) == len(regions):
        raise lacking[0]
    maybe = {True: "; or the region is not enabled in this account", False: ""}
    found = {(each.zone, each.starts, each.ends): each for each in dearest_first}
    return list(found.values()), {name: f"{error}{maybe[error in lacking]}" for name, error in refused.items()}


def _is_plain(answer: Mapping[str, Any]) -> bool:
    """Return whether an offer is one reservation, in USD: each segment of an offer becomes a reservation."""
    return len(answer.get("CapacityBlockOfferingSegments") or ()) < 2 and answer.get("CurrencyCode", "USD") == "USD"


def _offer(account: Account, region: str, answer: Mapping[str, Any], kind: InstanceType, days: int) -> Offer:
    [segment] = answer.get("CapacityBlockOfferingSegments") or [{}]
    name, zone = answer.get("AvailabilityZone", ""), segment.get("AvailabilityZoneId", "")
    with suppress(NotCheckedError, RequestError):
        zone = zone or account.once(f"zones {region}", lambda: _zone_ids(account, region)).get(name, "")
    nodes = answer.get("InstanceCount") or answer.get("UltraserverCount", 0) * kind.ultraserver_nodes
    times = answer["StartDate"], answer["EndDate"]
    return Offer(answer["CapacityBlockOfferingId"], region, zone or name, *times, nodes, _price(answer), days)


def _price(answer: Mapping[str, Any]) -> Decimal:
    """Return a price in cents where EC2 writes it with further zeros (``11520.0000``)."""
    usd = Decimal(answer["UpfrontFee"])
    return cents if (cents := usd.quantize(Decimal("0.01"))) == usd else usd


def _zone_ids(account: Account, region: str) -> dict[str, str]:
    answer = account.call("ec2", "describe_availability_zones", region=region)
    return {each["ZoneName"]: each["ZoneId"] for each in answer["AvailabilityZones"]}


def spot_scores(account: Account, regions: list[str], instance_type: str, nodes: int) -> tuple[dict[str, int], str]:
    """Return the placement score of each zone, 1 to 10, for all nodes in that zone, and why there is none. EC2 scores
    one type low (EC2 API, GetSpotPlacementScores)."""
    scores: dict[str, int] = {}
    what = {"InstanceTypes": [instance_type], "TargetCapacity": nodes, "TargetCapacityUnitType": "units"}
    try:
        for first in range(0, len(regions), 10):  # EC2 takes ten
            asked = {**what, "RegionNames": regions[first : first + 10], "SingleAvailabilityZone": True}
            pages = account.pages("ec2", "get_spot_placement_scores", "SpotPlacementScores", region=regions[0], **asked)
            scores |= {each["AvailabilityZoneId"]: each["Score"] for each in pages}
    except (NotCheckedError, RequestError) as error:
        return scores, str(error)
    return scores, ""


# --- what is bought -------------------------------------------------------------------------------------------------


def reservation(account: Account, id_: str) -> Reservation | None:
    """Return a reservation of the account; None for none."""
    operation, absent = "describe_capacity_reservations", r"InvalidCapacityReservationId\..*"
    answer = account.find("ec2", operation, absent=absent, CapacityReservationIds=[id_])
    return next(iter((answer or {}).get("CapacityReservations", ())), None)


def bought(account: Account, instance_type: str, offering: str) -> Reservation | None:
    """Return the reservation that was bought by an offering; None when it was not, or its payment failed."""
    filters = [{"Name": "instance-type", "Values": [instance_type]}]
    listed = account.pages("ec2", "describe_capacity_reservations", "CapacityReservations", Filters=filters)
    named = (each for each in listed if tags_of(each.get("Tags", ())).get(OFFERING_TAG) == offering)
    return next((each for each in named if each["State"] not in OVER), None)


def end_with_extensions(account: Account, block: Reservation) -> datetime:
    """Return the end of a block with all extensions that were bought, those that are being paid, too."""
    operation, key = "describe_capacity_block_extension_history", "CapacityBlockExtensions"
    listed = account.pages("ec2", operation, key, CapacityReservationIds=[block["CapacityReservationId"]])
    paid = [each for each in listed if each.get("CapacityBlockExtensionStatus") != "payment-failed"]
    end: datetime = max([block["EndDate"], *(each["CapacityBlockExtensionEndDate"] for each in paid)])
    return end


def extension_offers(account: Account, id_: str, days: int) -> list[Offer]:
    """Return EC2's offers to extend a block, with the extension's own start and end."""
    operation, key = "describe_capacity_block_extension_offerings", "CapacityBlockExtensionOfferings"
    asked: dict[str, Any] = {"CapacityReservationId": id_, "CapacityBlockExtensionDurationHours": days * 24}
    found = []
    for each in filter(_is_plain, account.pages("ec2", operation, key, **asked)):
        times = each["CapacityBlockExtensionStartDate"], each["CapacityBlockExtensionEndDate"]
        place = account.region, each.get("AvailabilityZoneId", "")
        offering, nodes = each["CapacityBlockExtensionOfferingId"], each.get("InstanceCount", 0)
        found.append(Offer(offering, *place, *times, nodes, _price(each), days))
    return found


class NotKnownError(sessions.AwsError):
    """It is not known whether EC2 has sold what it was asked for."""


def purchase(region: str, offering: str, tags: Mapping[str, str], *, extended: str = "", dry_run: bool) -> str:
    """Buy a Capacity Block, or with ``extended`` more time for that reservation; return the reservation. EC2 is asked
    once. With ``dry_run`` it is asked only whether the caller may, and the answer is empty.

    NotAllowedError without the right; AwsError when EC2 refuses; NotKnownError when no answer came: :func:`bought` and
    :func:`end_with_extensions` find it then.
    """
    named = [{"Key": key, "Value": value} for key, value in tags.items()]
    operation = "purchase_capacity_block"
    request: dict[str, Any] = {"CapacityBlockOfferingId": offering, "InstancePlatform": "Linux/UNIX"}
    request["TagSpecifications"] = [{"ResourceType": "capacity-reservation", "Tags": named}]
    if extended:
        operation = "purchase_capacity_block_extension"
        request = {"CapacityBlockExtensionOfferingId": offering, "CapacityReservationId": extended}
    try:
        with sessions.saying("buy it"):
            answer = getattr(sessions.client("ec2", region, attempts=1), operation)(**request, DryRun=dry_run)
            return extended or str(answer["CapacityReservation"]["CapacityReservationId"])
    except sessions.CannotAskError:
        raise
    except sessions.AwsError as error:
        if error.code == "DryRunOperation":
            return ""
        if not dry_run and error.code in _UNCLEAR:
            raise NotKnownError(str(error), error.code) from None
        raise
