"""Useful share of a training's time in a recorded program: each accelerator node group counts as one gang."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.model.catalogue import lustre
from trainium_eks.model.config.training import TrainingConfig
from trainium_eks.model.sizing import goodput
from trainium_eks.model.sizing.goodput import FailureRate, Goodput
from trainium_eks.model.validation import limits
from trainium_eks.model.validation.config_model import ConfigModelError, read
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types.resource_type import whole
from trainium_eks.plan.resource_types.rows import ec2, eks, fsx


@dataclass(frozen=True)
class Gang:
    """All nodes of a group, which train together."""

    group: str
    """Name of the node group's resource."""
    instance_type: str
    nodes: int
    rate: FailureRate
    expected: Goodput
    hourly_usd: float | None
    """On-Demand price of its instances; None when no price is known."""
    is_spot: bool = False
    """Whether EC2 may take its instances back; the rate does not count these interruptions."""

    @property
    def usd_per_useful_hour(self) -> float | None:
        """Price of its instances for a useful hour; None when no price is known."""
        return None if self.hourly_usd is None else self.expected.usd_per_useful_hour(self.hourly_usd)

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data; units are in the names."""
        run, useful = self.expected.run, self.usd_per_useful_hour
        return {
            "group": self.group,
            "instanceType": self.instance_type,
            "nodes": self.nodes,
            "failuresPerNodeYear": round(self.rate.per_node_year, 4),
            "failuresFrom": self.rate.source,
            "failuresAssumed": self.rate.is_assumed,
            "spotInterruptionsCounted": self.rate.is_configured or not self.is_spot,
            "secondsBetweenFaults": _finite(run.seconds_between_faults),
            "checkpointSeconds": round(run.checkpoint_seconds, 1),
            "besideSeconds": round(run.beside_seconds, 1),
            "intervalSeconds": self.expected.interval_seconds,
            "downSeconds": round(run.down_seconds, 1),
            "restartSeconds": round(run.restart_seconds, 1),
            "usefulFraction": round(self.expected.useful_fraction, 4),
            "usdPerUsefulHour": None if useful is None else _finite(useful),
        }


@dataclass(frozen=True)
class Training:
    """Expected goodput of gangs that save on the shared file system."""

    state_gigabytes: float
    megabytes_per_second: float
    gangs: tuple[Gang, ...]

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data."""
        return {
            "checkpointGigabytes": self.state_gigabytes,
            "writeMegabytesPerSecond": round(self.megabytes_per_second, 1),
            "gangs": [gang.to_json() for gang in self.gangs],
        }


def expect(graph: Graph) -> Training | None:
    """Return the expected goodput; None without accelerator nodes, or without a Lustre file system to save on."""
    megabytes = max((_megabytes_per_second(each) for each in graph.of_type(fsx.FILE_SYSTEM.token)), default=0.0)
    told = _training_config(graph)
    gangs = [
        gang
        for group in graph.of_type(eks.NODE_GROUP.token)
        if eks.is_accelerator_group(group) and megabytes
        for gang in _gangs(graph, group, told, megabytes)
    ]
    return Training(told.checkpoint_gigabytes, megabytes, tuple(gangs)) if gangs else None


def _gangs(graph: Graph, group: Resource, told: TrainingConfig, megabytes_per_second: float) -> Iterator[Gang]:
    """Yield the group at its desired and at its largest size, without sizes of 0."""
    name = ec2.instance_type(graph, group)
    instance = graph.catalogue.get(name)
    rate = goodput.failure_rate(instance.accelerator if instance else "", told.failures_per_node_year)
    capacity = group.inputs.get("capacityType")
    is_spot, is_block = capacity == "SPOT", capacity == "CAPACITY_BLOCK"
    price = graph.catalogue.price(name, "capacity-block" if is_block else "") if instance else None
    sizes = group.inputs.get("scalingConfig", {})
    for nodes in sorted({whole(sizes.get("desiredSize")), whole(sizes.get("maxSize"))} - {0}):
        run = goodput.run_on_lustre(nodes, rate.per_node_year, told.checkpoint_gigabytes, megabytes_per_second)
        hourly = price.hourly_usd * nodes if price else None
        yield Gang(group.name, name, nodes, rate, goodput.expect(run), hourly, is_spot)


def _training_config(graph: Graph) -> TrainingConfig:
    """Return the config's ``training`` section; the defaults when it is invalid, as in a foreign program."""
    section = graph.config.get("training")
    try:
        told = read(TrainingConfig, section) if isinstance(section, Mapping) else TrainingConfig()
    except ConfigModelError:
        return TrainingConfig()
    return TrainingConfig() if limits.of_places(limits.walk(told)) else told


def _megabytes_per_second(file_system: Resource) -> float:
    inputs = file_system.inputs
    return lustre.write_megabytes_per_second(
        whole(inputs.get("storageCapacity")),
        str(inputs.get("deploymentType", "")),
        whole(inputs.get("perUnitStorageThroughput")),
    )


def _finite(value: float) -> float | None:
    """Return a number for JSON, which has no infinity."""
    return None if value == float("inf") else round(value, 4)
