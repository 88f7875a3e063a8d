"""Which zones offer a type: EC2's DescribeInstanceTypeOfferings by zone id, as packaged by moto 5.2.5 (2026).

Offerings change; before buying, ask EC2: ``aws ec2 describe-instance-type-offerings --location-type
availability-zone-id``. Each entry maps a region to the last digits of its zone ids: ``{"us-west-2": "14"}`` is usw2-az1
and usw2-az4. Zone ids mean the same place in every account; names (``us-west-2a``) do not.
"""

from collections.abc import Mapping
from typing import Final

Zones = Mapping[str, str]
"""Region to last digits."""

_INF2: Final[Zones] = {
    "ap-northeast-1": "14",
    "ap-south-1": "13",
    "ap-southeast-1": "23",
    "ap-southeast-2": "13",
    "eu-central-1": "23",
    "eu-north-1": "12",
    "eu-west-1": "123",
    "eu-west-2": "2",
    "eu-west-3": "23",
    "sa-east-1": "3",
    "us-east-1": "2456",
    "us-east-2": "123",
    "us-west-2": "1234",
}

_M5: Final[Zones] = {
    **dict.fromkeys(("af-south-1", "ap-east-1", "ap-northeast-3", "ap-south-1", "ap-south-2", "ap-southeast-1"), "123"),
    **dict.fromkeys(("ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ca-west-1", "eu-central-1"), "123"),
    **dict.fromkeys(("eu-central-2", "eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2"), "123"),
    **dict.fromkeys(("eu-west-3", "il-central-1", "me-central-1", "me-south-1", "sa-east-1", "us-east-2"), "123"),
    "ap-northeast-1": "124",
    "ap-northeast-2": "1234",
    "ca-central-1": "124",
    "us-east-1": "12456",
    "us-west-1": "13",
    "us-west-2": "1234",
}
_M6I: Final[Zones] = {
    **{region: zones for region, zones in _M5.items() if region not in ("ap-southeast-4", "eu-south-2")},
    "ap-southeast-5": "123",
}
_M7I: Final[Zones] = {
    **{region: zones for region, zones in _M5.items() if region not in ("ca-west-1", "me-south-1")},
    "ap-southeast-5": "123",
    "eu-west-2": "1234",
}
_C6I: Final[Zones] = {
    region: zones for region, zones in _M6I.items() if region not in ("ap-southeast-3", "eu-central-2", "me-central-1")
}
_C7I: Final[Zones] = {**_M7I, "ca-west-1": "12", "il-central-1": "13"}
_R6I: Final[Zones] = {region: zones for region, zones in _M6I.items() if region != "ap-southeast-3"}
_R7I: Final[Zones] = {
    region: zones
    for region, zones in _M7I.items()
    if region not in ("af-south-1", "ap-east-1", "eu-central-2", "il-central-1", "me-central-1")
}
_CPU_FAMILIES: Final[Mapping[str, Zones]] = {
    "c5": _M5, "c6i": _C6I, "c7i": _C7I, "m5": _M5, "m6i": _M6I, "m7i": _M7I, "r5": _M5, "r6i": _R6I, "r7i": _R7I,
}  # fmt: skip
"""A family's sizes are offered in the same zones."""

ZONES: Final[Mapping[str, Zones]] = {
    "trn1.2xlarge": {"us-east-1": "56", "us-east-2": "3", "us-west-2": "14"},
    "trn1.32xlarge": {
        "ap-south-1": "2",
        "ap-southeast-2": "12",
        "ap-southeast-4": "1",
        "us-east-1": "456",
        "us-east-2": "3",
        "us-west-2": "14",
    },
    "trn1n.32xlarge": {"us-east-1": "6", "us-east-2": "3", "us-west-2": "4"},
    "trn2.3xlarge": {"ap-south-2": "123", "ap-southeast-4": "3", "sa-east-1": "123"},
    "trn2.48xlarge": {"ap-south-2": "123", "us-east-2": "123"},
    "trn2u.48xlarge": {"ap-south-2": "123"},
    "inf2.xlarge": {**_INF2, "ap-northeast-2": "123"},
    "inf2.8xlarge": _INF2,
    "inf2.24xlarge": _INF2,
    "inf2.48xlarge": _INF2,
    "p4d.24xlarge": {
        "ap-northeast-1": "14",
        "ap-northeast-2": "24",
        "ap-south-1": "123",
        "ap-southeast-2": "12",
        "ca-central-1": "12",
        "eu-central-1": "123",
        "eu-north-1": "3",
        "eu-west-1": "2",
        "eu-west-2": "23",
        "sa-east-1": "13",
        "us-east-1": "1246",
        "us-east-2": "123",
        "us-west-2": "1234",
    },
    "p4de.24xlarge": {
        "ap-northeast-1": "14",
        "ap-southeast-1": "23",
        "eu-central-1": "12",
        "il-central-1": "123",
        "us-east-1": "46",
        "us-west-2": "123",
    },
    "p5.4xlarge": {
        "ap-northeast-1": "1",
        "ap-south-1": "123",
        "ap-southeast-2": "3",
        "ap-southeast-3": "1",
        "eu-north-1": "123",
        "eu-west-2": "123",
        "sa-east-1": "3",
        "us-east-1": "123456",
        "us-east-2": "123",
        "us-west-2": "1234",
    },
    "p5.48xlarge": {
        "ap-northeast-1": "14",
        "ap-northeast-2": "1",
        "ap-south-1": "123",
        "ap-southeast-2": "123",
        "ap-southeast-3": "1",
        "ca-central-1": "4",
        "eu-north-1": "123",
        "eu-west-2": "123",
        "sa-east-1": "3",
        "us-east-1": "123456",
        "us-east-2": "123",
        "us-west-1": "13",
        "us-west-2": "1234",
    },
    "p5e.48xlarge": {
        "ap-southeast-2": "3",
        "ap-southeast-3": "13",
        "eu-north-1": "1",
        "eu-west-2": "2",
        "sa-east-1": "23",
        "us-east-2": "123",
        "us-west-2": "3",
    },
    "p5en.48xlarge": {
        "ap-northeast-1": "4",
        "ap-northeast-2": "1",
        "ap-south-1": "13",
        "ap-southeast-3": "23",
        "eu-north-1": "13",
        "eu-south-2": "12",
        "me-central-1": "13",
        "us-east-1": "26",
        "us-east-2": "123",
        "us-west-1": "3",
        "us-west-2": "234",
    },
    "p6-b200.48xlarge": {
        "ap-south-1": "2",
        "ap-south-2": "2",
        "eu-north-1": "2",
        "eu-west-3": "1",
        "us-east-1": "6",
        "us-east-2": "123",
        "us-west-2": "124",
    },
    "p6-b300.48xlarge": {
        "ap-northeast-2": "3",
        "ap-south-2": "13",
        "ap-southeast-3": "123",
        "sa-east-1": "23",
        "us-east-1": "26",
        "us-west-2": "12",
    },
    **{
        f"{family}.{size}": zones
        for family, zones in _CPU_FAMILIES.items()
        for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge")
        if f"{family}.{size}" != "c5.8xlarge"
    },
}
"""Type to zones."""
