"""Floors of the fabric test (``trn fabric``) for each instance type.

A floor finds broken hardware and praises none: a fixed share of the type's line rate, and a generous latency. Both are
this project's choice; AWS publishes no such number. Line rates are EC2's (DescribeInstanceTypes,
``NetworkPerformance``; a test holds each against moto's copy).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from trainium_eks.model.catalogue.instances import InstanceType

LINE_RATES: Mapping[str, int] = MappingProxyType(
    {
        "trn1.32xlarge": 800,
        "trn1n.32xlarge": 1600,
        "trn2.3xlarge": 200,
        "trn2.48xlarge": 3200,
        "trn2u.48xlarge": 3200,
        "p4d.24xlarge": 400,
        "p4de.24xlarge": 400,
        "p5.4xlarge": 100,
        "p5.48xlarge": 3200,
        "p5e.48xlarge": 3200,
        "p5en.48xlarge": 3200,
        "p6-b200.48xlarge": 3200,
        "p6-b300.48xlarge": 6400,
    }
)
"""EFA line rate of one node by type, Gbit/s. A type of the config that is not here is measured and not judged."""

SHARE = 0.5
"""Share of the line rate that the bus bandwidth must reach. One broken interface of two, or TCP in place of EFA, falls
below; a sound fabric stays above."""
LATENCY_SECONDS = 0.005
"""Allowance for each collective of any size: decides for sizes up to some MiB."""

WRITE_SHARE = 0.5
"""Share of the file system's sustained write rate that all nodes together must reach."""
WRITE_PER_NODE = 100.0
"""The most that is expected of a node's single stream, MB/s."""
FILES_PER_SECOND = 50.0
"""Files that a node must make, look at and delete in a second."""


@dataclass(frozen=True)
class FabricFloor:
    """Longest time of a collective: latency and bus bandwidth."""

    gigabytes_per_second: float
    latency_seconds: float


LOCAL = FabricFloor(0.02, 0.5)
"""Floor on the local cloud, where processes of one busy machine talk over gloo: it shows that the judgement works."""

LOCAL_ARGUMENTS = ("--max-bytes", str(4 << 20), "--probe-bytes", str(8 << 20), "--stage-seconds", "120")
"""Arguments of the gang's script for a small test, on one machine."""


def floor_of(instance: InstanceType) -> FabricFloor | None:
    """Return the floor of a type; None for a type without EFA or without a known line rate."""
    rate = LINE_RATES.get(instance.name)
    return FabricFloor(SHARE * rate / 8, LATENCY_SECONDS) if rate and instance.has_efa else None


def expected_node(instance: InstanceType, efa: int, *, is_local: bool) -> dict[str, Any]:
    """Return the expectation of a node for the gang's script, as plain data. On the local cloud nodes are simulated:
    floors are judged there, devices, EFA and lockable memory are not."""
    found: dict[str, Any] = {"instanceType": instance.name}
    floor = LOCAL if is_local else floor_of(instance)
    if floor is not None:
        found["floor"] = asdict(floor)
    if is_local:
        return found
    if instance.accelerators:
        found["devices"] = instance.accelerators
        found["deviceTool"] = "neuron-ls" if instance.family == "neuron" else "nvidia-smi"
        found["cores"] = instance.logical_neuron_cores or instance.accelerators
    if instance.has_efa:
        found |= {"efa": efa, "memlock": True}
    return found
