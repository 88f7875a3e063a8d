"""Examined: a cluster, its stack's outputs, and the limits of a local cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainium_eks.kube.cluster import Cluster, Object
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.operate.verify.local_report import LocalReport


@dataclass(frozen=True)
class Examined:
    """The input of every check."""

    outputs: StackOutputs
    """The stack's outputs."""
    cluster: Cluster
    """The cluster's objects."""
    local: LocalReport | None = None
    """The local cloud's report; None on AWS, where everything must be there."""

    @property
    def deploy(self) -> str:
        """Return the command that creates missing resources."""
        return "pulumi up" if self.local is None else "trn local up"

    @property
    def restore(self) -> str:
        """Return the command that undoes manual changes."""
        return "pulumi up --refresh" if self.local is None else "trn local up"

    def nodes_with(self, resource: str) -> Sequence[Object]:
        """Return the nodes of the groups that offer a resource (``vpc.amazonaws.com/efa``)."""
        groups = [group for group in self.outputs.node_groups if resource in group.resources]
        return [node for group in groups for node in self.cluster.nodes_of(group.eks_name)]
