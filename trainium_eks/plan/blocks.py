"""Calendar of the Capacity Blocks that a program's config gives with their times."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainium_eks.model.catalogue import versions
from trainium_eks.model.config.capacity import block_times
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.sizing.block_times import BlockTimes
from trainium_eks.model.validation.config_model import read
from trainium_eks.model.validation.formats import utc_text
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import items, mapping


@dataclass(frozen=True)
class PlannedBlock:
    """One block, and the node group that grows with it."""

    group: str
    """Name of the node group in the config."""
    instance_type: str
    times: BlockTimes
    has_begun: bool
    """Whether its start is past, so that no scheduled action is made for it."""
    usd: float | None
    """Public price of all its nodes from start to end, USD; None where the catalogue has no price of blocks."""

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data."""
        moments = {"starts": self.times.starts, "drains": self.times.drains, "ends": self.times.ends}
        return {
            "group": self.group,
            "instanceType": self.instance_type,
            **{name: utc_text(moment) for name, moment in moments.items()},
            "nodes": self.times.nodes,
            "usd": self.usd,
        }


def calendar(graph: Graph) -> tuple[PlannedBlock, ...]:
    """Return the blocks, the first to start first; none of another program's config."""
    return tuple(sorted(_blocks(graph), key=lambda each: (each.times.starts, each.group)))


def _blocks(graph: Graph) -> Iterator[PlannedBlock]:
    now = versions.now()
    for entry in map(mapping, items(graph.config.get("nodeGroups"))):
        try:
            group = read(NodeGroupConfig, dict(entry))
            instance = graph.catalogue.get(group.instance_type)
            times = block_times(group.capacity, instance)
        except ValueError:  # a config that the program refuses
            continue
        if times is not None:
            hours = (times.ends - times.starts).total_seconds() / 3600 * times.nodes
            price = instance.block_hourly_usd if instance else None
            usd = None if price is None else round(price * hours, 2)
            has_begun = all(each.key != "start" for each in times.actions(now))
            yield PlannedBlock(group.name, group.instance_type, times, has_begun, usd)
