"""On-Demand prices of instance types, from AWS' price list."""

from collections.abc import Mapping
from typing import Any

from trainium_eks.aws.account import Account, NotChecked
from trainium_eks.model.catalogue.instances import Price
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json

ENDPOINT = "us-east-1"
"""Region that answers for all of the partition (AWS Price List Query API has an endpoint in few)."""


def on_demand(account: Account, instance_type: str) -> Price | None:
    """Return the Linux On-Demand list price of a type in the account's region; None where the list has none, as of
    types that EC2 sells in Capacity Blocks alone.

    Raises:
        NotChecked, RequestError: as of the account.
    """
    if account.partition != "aws":
        raise NotChecked(f"the price list of the partition {account.partition} is not asked: its money is another")
    wanted = {
        "regionCode": account.region,
        "instanceType": instance_type,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    answer = account.call(
        "pricing",
        "get_products",
        region=ENDPOINT,
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()],
    )
    try:
        found = [price for entry in answer["PriceList"] if (price := _price(parse_json(entry), account.region))]
    except MISSHAPEN as error:
        raise NotChecked(
            f"the price list answers for {instance_type} in another form than expected: {error!r}"
        ) from None
    return max(found, key=lambda price: (price.date, price.hourly_usd), default=None)


def _price(entry: Mapping[str, Any], region: str) -> Price | None:
    """Return the hourly price of one product; None for a product that is part of another, or is not sold by the
    hour."""
    for term in entry.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            hourly = float(dimension["pricePerUnit"].get("USD", 0))
            if dimension["unit"] == "Hrs" and hourly:
                return Price(hourly, str(entry.get("publicationDate") or term["effectiveDate"])[:10], region)
    return None
