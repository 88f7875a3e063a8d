"""Regions: partition, zone ids, default zones, and the registry of EKS' images."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

ZONE_ID = re.compile(r"(?P<prefix>[a-z]{3,6}[0-9])-az[0-9]{1,2}")
"""Pattern of a zone id (``usw2-az4``). Local zones (``usw2-lax1-az1``) hold no control plane and do not match."""

EDGE_ZONE_ID = re.compile(r"[a-z]{3,6}[0-9]-([a-z]{3}[0-9]-az|wl[0-9]-[a-z0-9-]*wlz)[0-9]{1,2}")
"""Pattern of the id of a local zone, or of a Wavelength zone (``usw2-wl1-las-wlz1``; EC2 user guide, zones)."""


@dataclass(frozen=True)
class Region:
    """Facts about one region."""

    zone_prefix: str
    """Prefix of its zone ids (``usw2``)."""
    image_account: str
    """AWS account of the ECR registry with the images of EKS and of the EFA device plugin in this region."""
    default_zones: tuple[str, ...] = ()
    """Zones to build in when none are named, the accelerator zone first; empty where Trainium is not established."""


_COMMON_IMAGE_ACCOUNT = "602401143452"


def _regions() -> dict[str, Region]:
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as table:
        return {
            row["name"]: Region(row["zone_prefix"], row["image_account"], tuple(row["default_zones"].split()))
            for row in csv.DictReader(table)
        }


# The first default zone offers trn1.32xlarge and trn1n.32xlarge; neither refuses a control plane. The pairs come
# from data-on-eks' main.tf for us-west-2, us-east-1 and us-east-2. Image accounts: the EKS user guide's list of add-on
# image registries, held against eksctl's map of accounts. One account serves most regions, so a hard-coded
# account goes unnoticed until image pulls fail in a region with another account.
REGIONS: Mapping[str, Region] = MappingProxyType(_regions())
"""Known regions. Another region may still be right: AWS opens new ones."""

CONTROL_PLANE_REFUSED_ZONES: frozenset[str] = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
"""Zones in which EKS puts no control-plane interface (EKS user guide, network requirements). Nodes may run there."""


@dataclass(frozen=True)
class Partition:
    """A group of regions with separate accounts, ARNs and endpoints."""

    name: str
    """As ARNs have it: ``aws``, ``aws-cn``."""
    dns_suffix: str
    """The domain of its endpoints."""


_COMMERCIAL = Partition("aws", "amazonaws.com")

PARTITIONS: Mapping[str, Partition] = MappingProxyType(
    {
        "cn-": Partition("aws-cn", "amazonaws.com.cn"),
        "us-gov-": Partition("aws-us-gov", "amazonaws.com"),
        "us-iso-": Partition("aws-iso", "c2s.ic.gov"),
        "us-isob-": Partition("aws-iso-b", "sc2s.sgov.gov"),
        "eu-isoe-": Partition("aws-iso-e", "cloud.adc-e.uk"),
        "us-isof-": Partition("aws-iso-f", "csp.hci.ic.gov"),
        "eusc-": Partition("aws-eusc", "amazonaws.eu"),
    }
)
"""Prefix of the regions of each partition (botocore's partitions.json); all others are commercial regions."""

_GRAFANA = frozenset(
    (
        *("ap-northeast-1", "ap-northeast-2", "ap-southeast-1", "ap-southeast-2", "eu-central-1", "eu-west-1"),
        *("eu-west-2", "us-east-1", "us-east-2", "us-gov-east-1", "us-gov-west-1", "us-west-2"),
    )
)
_LACKING: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "amp": frozenset({"cn-north-1", "cn-northwest-1"}),
        # GovCloud is billed through a commercial account.
        "budgets": frozenset({"us-gov-east-1", "us-gov-west-1"}),
        "grafana": frozenset(REGIONS) - _GRAFANA,
    }
)
"""Services that some of the known regions lack (botocore's endpoints.json, by botocore's name of the service)."""


def lacks(service: str, region: str) -> bool:
    """Return whether a known region has no endpoint of ``amp``, ``budgets`` or ``grafana``."""
    return region in _LACKING[service]


_REGION = re.compile(r"(af|ap|ca|cn|eu|eusc|il|me|mx|sa|us)(-(gov|iso[a-z]?|de))?-[a-z]+-[0-9]")
_DIRECTIONS = re.compile(r"(north|south|east|west|central|northeast|northwest|southeast|southwest)")


def may_be_new(region: str) -> bool:
    """Return whether an unknown region has a region's form of name: AWS opens new regions, and some are not public."""
    return _REGION.fullmatch(region) is not None and _DIRECTIONS.fullmatch(region.split("-")[-2]) is not None


def partition(region: str) -> str:
    """Return the partition in the region's ARNs: ``aws``, ``aws-cn`` and so on."""
    return _partition(region).name


def dns_suffix(region: str) -> str:
    """Return the domain of the region's endpoints: ``amazonaws.com``, in China ``amazonaws.com.cn``."""
    return _partition(region).dns_suffix


def _partition(region: str) -> Partition:
    return next((found for start, found in PARTITIONS.items() if region.startswith(start)), _COMMERCIAL)


def default_zones(region: str) -> tuple[str, ...]:
    """Return two zone ids, the accelerator zone first; empty when the region has no default and zones must be named."""
    return REGIONS[region].default_zones if region in REGIONS else ()


def region_zone_prefix(region: str) -> str:
    """Return the prefix of the region's zone ids (``usw2``), or an empty text for an unknown region."""
    return REGIONS[region].zone_prefix if region in REGIONS else ""


def zone_belongs(zone_id: str, region: str) -> bool | None:
    """Return whether a zone id belongs to a region. None when the region is unknown; False for a text that is no zone
    id."""
    match = ZONE_ID.fullmatch(zone_id)
    if match is None:
        return False
    return match["prefix"] == REGIONS[region].zone_prefix if region in REGIONS else None


def eks_image_registry(region: str) -> str:
    """Return the registry with the EFA device plugin's image (``602401143452.dkr.ecr.us-west-2.amazonaws.com``).

    An unknown region gets the account that serves most regions, in its own region.
    """
    account = REGIONS[region].image_account if region in REGIONS else _COMMON_IMAGE_ACCOUNT
    return f"{account}.dkr.ecr.{region}.{dns_suffix(region)}"
