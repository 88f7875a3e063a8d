"""Examined: a cluster, what its stack says of it, and what a local one cannot have."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainium_eks.kube.cluster import Cluster, Object
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.operate.verify.local_report import LocalReport


@dataclass(frozen=True)
class Examined:
    """What every check is given."""

    outputs: StackOutputs
    """What the stack says there is."""
    cluster: Cluster
    """What there is."""
    local: LocalReport | None = None
    """What the local cloud does not have; None on AWS, where everything must be there."""

    @property
    def deploy(self) -> str:
        """The command that makes what is missing."""
        return "pulumi up" if self.local is None else "trn local up"

    @property
    def restore(self) -> str:
        """The command that sets back what somebody changed by hand."""
        return "pulumi up --refresh" if self.local is None else "trn local up"

    def nodes_with(self, resource: str) -> Sequence[Object]:
        """The nodes of the groups whose nodes have a resource (``vpc.amazonaws.com/efa``)."""
        groups = [group for group in self.outputs.node_groups if resource in group.resources]
        return [node for group in groups for node in self.cluster.nodes_of(group.eks_name)]
