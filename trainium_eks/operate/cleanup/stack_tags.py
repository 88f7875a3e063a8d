"""Marks by which an AWS resource is recognised as a stack's: its tags, its name, its cluster, its VPC."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trainium_eks.aws.tags import cluster_of

PARTS = (
    *("autoscaler", "budget", "cluster", "fsx", "gpu", "grafana", "idle", "images", "karpenter", "key", "logs"),
    *("metrics", "network", "neuron", "volcano", "volumes"),
)
"""Parts that follow ``trn-<stack>-`` in names, by the components of a stack. Without them `trn-dev-` would also begin
the names of a stack `dev-2`."""

_FOLDERS = ("/aws/eks/", "/aws/fsx/", "/aws/containerinsights/", "/trainium-eks/", "alias/", "eks-cluster-sg-")
"""Prefixes that services put before a name."""


@dataclass(frozen=True)
class Marks:
    """The marks of a stack's resources, or of one cluster's."""

    stack: str = ""
    """Empty when only a cluster is known."""
    cluster: str = ""
    """Empty when all clusters of the stack are meant."""
    vpcs: frozenset[str] = frozenset()

    @property
    def prefix(self) -> str:
        """Return the prefix of the names."""
        return f"trn-{self.stack}-" if self.stack else self.cluster

    def with_vpcs(self, vpcs: Iterable[str]) -> "Marks":
        """Return the same marks with the VPCs that the stack made."""
        return replace(self, vpcs=frozenset(vpcs))

    def is_cluster(self, name: str) -> bool:
        """Return whether a cluster's name is the given cluster's, or one of the stack's, which Pulumi ends with seven
        digits."""
        if self.cluster:
            return name == self.cluster
        return re.fullmatch(rf"trn-{re.escape(self.stack)}-cluster-eks-[0-9a-f]{{7}}", name) is not None

    def why(self, name: str, tags: Mapping[str, str], vpc: str = "") -> str:
        """Return the mark by which a resource with that name, if it has one, is the stack's; empty when it is not."""
        if cluster := cluster_of(tags):
            return f"of the cluster {cluster}" if self.is_cluster(cluster) else ""
        if self.cluster:
            inside = next((each for each in (name, tags.get("Name", "")) if self._of_cluster(each)), "")
            return f"named like the cluster {self.cluster}" if inside else ""
        own, managed = tags.get("Environment"), tags.get("ManagedBy") == "pulumi"
        named = any(_bare(each).startswith(self.prefix) for each in (name, tags.get("Name", "")))
        if own and managed:
            return f"tagged Environment={own}" if named and own == self.stack else ""
        if vpc and vpc in self.vpcs:
            return f"in the stack's VPC {vpc}"
        return f"named {self.prefix}…" if named and self._known_part(name or tags.get("Name", "")) else ""

    def _of_cluster(self, name: str) -> bool:
        bare = _bare(name)
        return bare == self.cluster or bare.startswith((f"{self.cluster}/", f"{self.cluster}-"))

    def _known_part(self, name: str) -> bool:
        rest = _bare(name).removeprefix(self.prefix)
        return rest.partition("-")[0].partition("/")[0] in PARTS


def _bare(name: str) -> str:
    return next((name.removeprefix(each) for each in _FOLDERS if name.startswith(each)), name)
