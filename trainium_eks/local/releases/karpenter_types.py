"""What Karpenter's kwok provider may buy on the local cloud: the catalogue, in the form that it reads.

On AWS Karpenter asks EC2 for types, prices and zones. Here they are the catalogue's. A type without a known price is
left out: nothing could be compared with it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainium_eks.local.nodes.node_pools import DEFAULT_ROOT_GIB, zone_name
from trainium_eks.model.catalogue.instances import Catalogue, InstanceType
from trainium_eks.model.catalogue.regions import default_zones

CAPACITY_TYPES = ("on-demand", "spot")
"""Those of the catalogue's ways of use that Karpenter calls the same. It calls a Capacity Block's ``reserved`` and
needs the reservation's id, which nothing here has."""

_OVERHEAD_MILLICPU, _OVERHEAD_MIB = 100, 10
"""What the provider takes off each type for the kubelet, whatever it is told (kwok/cloudprovider/helpers.go). The
catalogue's figures are without the kubelet's share already."""

_NAME = re.compile(r"(?P<family>(?P<category>[a-z]+)(?P<generation>\d+)[a-z0-9-]*)\.(?P<size>[a-z0-9-]+)")


def instance_types(catalogue: Catalogue, region: str, zone_ids: Collection[str]) -> list[dict[str, Any]]:
    """The content of the file for ``--instance-types-file-path``.

    Args:
        catalogue: the types.
        region: of the stack.
        zone_ids: of the stack's subnets, ``usw2-az4``; all zones of the region when empty.
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
    """One for each zone and way of use. Spot has the list price: its own changes all the time and is not known here."""
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
    """Labels of Karpenter for AWS that node pools commonly choose types by (its documentation, well-known labels)."""
    parts = _NAME.fullmatch(kind.name)
    named = {f"karpenter.k8s.aws/instance-{part}": value for part, value in parts.groupdict().items()} if parts else {}
    return {
        **named,
        "karpenter.k8s.aws/instance-cpu": str(kind.vcpus),
        "karpenter.k8s.aws/instance-memory": str(kind.memory_gib * 1024),
    }
