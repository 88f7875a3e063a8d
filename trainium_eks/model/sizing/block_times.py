"""Times of a Capacity Block: when its nodes start and are drained, and by which scheduled actions.

EC2 and EKS user guides, Capacity Blocks: EKS scales a managed node group on a block down to no node 40 minutes before
the block ends, by a scheduled action of its own; EC2 begins to end instances 30 minutes before, those of UltraServers
60 minutes before. So the start is missing, and the drain of UltraServers.
"""

import datetime
from dataclasses import dataclass

LARGEST_BLOCK = 64
"""Instances in one Capacity Block (EC2 user guide)."""

ENDS_CONFIG_MAP = "capacity-blocks"
"""ConfigMap of each team's namespace with the end of each group's block, RFC 3339, under the group's name."""

EKS_DRAIN = datetime.timedelta(minutes=40)
"""Time from EKS' scale-down to the end of the block."""

ULTRASERVER_DRAIN = datetime.timedelta(minutes=75)
"""Time from the stack's scale-down of UltraServers to the end: a quarter of an hour, the drain of a node, before EC2
begins."""

NOTICE = datetime.timedelta(minutes=2)
"""Least time from a run of the program to a scheduled action that it makes: Auto Scaling refuses one in the past."""


@dataclass(frozen=True)
class ScheduledSize:
    """One scheduled action of a node group."""

    key: str
    """``start`` or ``drain``."""
    at: datetime.datetime
    """When it runs; Auto Scaling removes it then."""
    nodes: int
    """Desired size from then on."""


@dataclass(frozen=True)
class BlockTimes:
    """A Capacity Block's start, end and nodes."""

    starts: datetime.datetime
    """Start, in UTC."""
    ends: datetime.datetime
    """End, in UTC."""
    nodes: int
    """Nodes that start with it."""
    is_ultraserver: bool = False
    """Whether they are nodes of UltraServers."""

    @property
    def drains(self) -> datetime.datetime:
        """When its nodes are drained: no new pod starts on them from then on."""
        return self.ends - (ULTRASERVER_DRAIN if self.is_ultraserver else EKS_DRAIN)

    def actions(self, now: datetime.datetime) -> tuple[ScheduledSize, ...]:
        """Return the scheduled actions that Auto Scaling takes now: those at least :data:`NOTICE` ahead."""
        wanted = [ScheduledSize("start", self.starts, self.nodes)]
        wanted += [ScheduledSize("drain", self.drains, 0)] if self.is_ultraserver else []
        return tuple(each for each in wanted if each.at - now > NOTICE)

    def first_size(self, now: datetime.datetime) -> int:
        """Return the desired size of a group that is made now: all nodes within the block, for which no scheduled
        action can be made, and none before and after."""
        is_scheduled = any(each.key == "start" for each in self.actions(now))
        return 0 if is_scheduled or now >= self.drains else self.nodes
