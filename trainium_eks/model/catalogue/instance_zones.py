"""Which zones offer a type: EC2's DescribeInstanceTypeOfferings by zone id, as packaged by moto 5.2.5 (2026).

Offerings change; before buying, ask EC2: ``aws ec2 describe-instance-type-offerings --location-type
availability-zone-id``. ``instance_zones.csv`` has the regions of each type with accelerators and of each family of CPU
types, whose sizes are offered in the same zones, with the last digits of the zone ids: ``us-west-2:14`` is usw2-az1 and
usw2-az4. Zone ids mean the same place in every account; names (``us-west-2a``) do not.
"""

import csv
from collections.abc import Iterator
from pathlib import Path


def _zones() -> Iterator[tuple[str, dict[str, str]]]:
    with Path(__file__).with_name("instance_zones.csv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            for name in row["types"].split():
                yield name, dict(each.split(":") for each in row["zones"].split())


ZONES = dict(_zones())
"""Type, or family, to the last digits of the zone ids in each region."""
