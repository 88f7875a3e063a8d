"""Input of the checks: a cluster, its stack's outputs, and the limits of a local cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainium_eks.kube.cluster import Cluster, Object
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.operate.cleanup.state import StateResource
from trainium_eks.operate.verify.local_report import LocalReport


@dataclass(frozen=True)
class ObjectComparison:
    """The comparison of a stack's objects with its cluster."""

    drifted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """``Kind namespace/name`` to its differences, a line each."""
    count: int = 0
    unread: Mapping[str, str] = field(default_factory=dict)
    """Objects, in words, that were not compared, to the reason."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Object of a Helm release to the command that sets it back on AWS, where an `up` does not look into releases."""
    groups: Sequence[StateResource] = ()
    """Node groups of the state."""
    huge_pages: Mapping[str, int] = field(default_factory=dict)
    """Name of a node group in EKS to the 2 MiB pages that its user data reserves on each node."""
    added: Mapping[str, str] = field(default_factory=dict)
    """``Kind namespace/name`` of objects beside the stack's that bear on a team, to what they say."""


@dataclass(frozen=True)
class CheckInput:
    """The input of every check."""

    outputs: StackOutputs
    cluster: Cluster
    local: LocalReport | None = None
    """The local cloud's report; None on AWS, where everything must be there."""
    made: ObjectComparison = ObjectComparison()
    """Empty where nothing was compared."""

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
