"""The instance types for Karpenter's kwok provider on the local cloud: the catalogue, in the provider's format.

On AWS Karpenter asks EC2 for types, prices and zones. Here they come from the catalogue. A type without a known price
is left out: it could not be compared with others.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainium_eks.local.nodes.node_pools import DEFAULT_ROOT_GIB, zone_name
from trainium_eks.model.catalogue.instances import Catalogue, InstanceType
from trainium_eks.model.catalogue.regions import default_zones

CAPACITY_TYPES = ("on-demand", "spot")
"""The catalogue's ways of use with the same name in Karpenter.

Its name for a Capacity Block is ``reserved``, which needs the reservation's id, and nothing here has one.
"""

_OVERHEAD_MILLICPU, _OVERHEAD_MIB = 100, 10
"""The provider's fixed deduction from each type for the kubelet (kwok/cloudprovider/helpers.go).

The catalogue's figures are without the kubelet's share already.
"""

_NAME = re.compile(r"(?P<family>(?P<category>[a-z]+)(?P<generation>\d+)[a-z0-9-]*)\.(?P<size>[a-z0-9-]+)")


def instance_types(catalogue: Catalogue, region: str, zone_ids: Collection[str]) -> list[dict[str, Any]]:
    """Return the content of the file for ``--instance-types-file-path``.

    Without zones of the stack's subnets, all zones of the region are meant.
    """
    found = (_instance_type(catalogue, each, region, zone_ids) for each in catalogue.values())
    return [each for each in found if each["offerings"]]


def _instance_type(catalogue: Catalogue, kind: InstanceType, region: str, zone_ids: Collection[str]) -> dict[str, Any]:
    # As on AWS: Karpenter's table has no huge pages, and its nodes reserve none (karpenter-provider-aws#3315).
    allocatable = {key: value for key, value in catalogue.allocatable(kind.name).items() if "hugepages" not in key}
    resources = {
        **allocatable,
        "cpu": f"{kind.allocatable_millicpu + _OVERHEAD_MILLICPU}m",
        "memory": f"{kind.allocatable_memory_mib + _OVERHEAD_MIB}Mi",
        "ephemeral-storage": f"{DEFAULT_ROOT_GIB}Gi",
    }
    return {
        "name": kind.name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": resources,
        "offerings": list(_offerings(kind, region, zone_ids)),
    }


def _offerings(kind: InstanceType, region: str, zone_ids: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield an offering for each zone and way of use. Spot has the list price: its real price is not known here."""
    if kind.hourly_usd is None:
        return
    offered = kind.zones.get(region) or default_zones(region)
    for zone_id in offered:
        if zone_ids and zone_id not in zone_ids:
            continue
        for capacity_type in CAPACITY_TYPES:
            if capacity_type in kind.usage:
                labels = {
                    **_labels(kind),
                    "karpenter.sh/capacity-type": capacity_type,
                    "topology.kubernetes.io/region": region,
                    "topology.kubernetes.io/zone": zone_name(region, zone_id),
                    "topology.k8s.aws/zone-id": zone_id,
                }
                requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
                yield {"Price": kind.hourly_usd, "Available": True, "Requirements": requirements}


def _labels(kind: InstanceType) -> Mapping[str, str]:
    """Return Karpenter's labels on AWS by which node pools choose types (its documentation, well-known labels)."""
    parts = _NAME.fullmatch(kind.name)
    named = {f"karpenter.k8s.aws/instance-{part}": value for part, value in parts.groupdict().items()} if parts else {}
    return {
        **named,
        "karpenter.k8s.aws/instance-cpu": str(kind.vcpus),
        "karpenter.k8s.aws/instance-memory": str(kind.memory_gib * 1024),
    }
