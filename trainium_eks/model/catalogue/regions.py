"""Regions: partition, zone ids, default zones, and the registry of EKS' images."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ZONE_ID = re.compile(r"(?P<prefix>[a-z]{3,6}[0-9])-az[0-9]{1,2}")
"""Pattern of a zone id (``usw2-az4``). Local zones (``usw2-lax1-az1``) hold no control plane and do not match."""


@dataclass(frozen=True)
class Region:
    """Facts about one region."""

    zone_prefix: str
    """Prefix of its zone ids (``usw2``)."""
    image_account: str
    """AWS account of the ECR registry with the images of EKS and of the EFA device plugin in this region."""
    default_zones: tuple[str, ...] = ()
    """Zones to build in when none are named, the accelerator zone first; empty where Trainium is not established."""


# The first default zone offers trn1.32xlarge and trn1n.32xlarge; neither refuses a control plane. The pairs come
# from data-on-eks' main.tf for us-west-2, us-east-1 and us-east-2. Image accounts: the EKS user guide's list of add-on
# image registries, held against eksctl's map of accounts. One account serves most regions, so a hard-coded
# account goes unnoticed until image pulls fail in a region with another account.
_COMMON_IMAGE_ACCOUNT = "602401143452"

REGIONS: Mapping[str, Region] = MappingProxyType(
    {
        "af-south-1": Region("afs1", "877085696533"),
        "ap-east-1": Region("ape1", "800184023465"),
        "ap-east-2": Region("ape2", "533267051163"),
        "ap-northeast-1": Region("apne1", _COMMON_IMAGE_ACCOUNT),
        "ap-northeast-2": Region("apne2", _COMMON_IMAGE_ACCOUNT),
        "ap-northeast-3": Region("apne3", _COMMON_IMAGE_ACCOUNT),
        "ap-south-1": Region("aps1", _COMMON_IMAGE_ACCOUNT),
        "ap-south-2": Region("aps2", "900889452093"),
        "ap-southeast-1": Region("apse1", _COMMON_IMAGE_ACCOUNT),
        "ap-southeast-2": Region("apse2", _COMMON_IMAGE_ACCOUNT),
        "ap-southeast-3": Region("apse3", "296578399912"),
        "ap-southeast-4": Region("apse4", "491585149902"),
        "ap-southeast-5": Region("apse5", "151610086707"),
        "ap-southeast-6": Region("apse6", "333609536671"),
        "ap-southeast-7": Region("apse7", "121268973566"),
        "ca-central-1": Region("cac1", _COMMON_IMAGE_ACCOUNT),
        "ca-west-1": Region("caw1", "761377655185"),
        "cn-north-1": Region("cnn1", "918309763551"),
        "cn-northwest-1": Region("cnnw1", "961992271922"),
        "eu-central-1": Region("euc1", _COMMON_IMAGE_ACCOUNT),
        "eu-central-2": Region("euc2", "900612956339"),
        "eu-north-1": Region("eun1", _COMMON_IMAGE_ACCOUNT),
        "eu-south-1": Region("eus1", "590381155156"),
        "eu-south-2": Region("eus2", "455263428931"),
        "eu-west-1": Region("euw1", _COMMON_IMAGE_ACCOUNT),
        "eu-west-2": Region("euw2", _COMMON_IMAGE_ACCOUNT),
        "eu-west-3": Region("euw3", _COMMON_IMAGE_ACCOUNT),
        "il-central-1": Region("ilc1", "066635153087"),
        "me-central-1": Region("mec1", "759879836304"),
        "me-south-1": Region("mes1", "558608220178"),
        "mx-central-1": Region("mxc1", "730335286997"),
        "sa-east-1": Region("sae1", _COMMON_IMAGE_ACCOUNT),
        "us-east-1": Region("use1", _COMMON_IMAGE_ACCOUNT, ("use1-az6", "use1-az5")),
        "us-east-2": Region("use2", _COMMON_IMAGE_ACCOUNT, ("use2-az3", "use2-az1")),
        "us-gov-east-1": Region("usge1", "151742754352"),
        "us-gov-west-1": Region("usgw1", "013241004608"),
        "us-west-1": Region("usw1", _COMMON_IMAGE_ACCOUNT),
        "us-west-2": Region("usw2", _COMMON_IMAGE_ACCOUNT, ("usw2-az4", "usw2-az1")),
    }
)
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
