"""A resource that a stack left in the account, the marks by which it is the stack's (its tags, name, cluster or VPC),
and the place where the searches look for such resources."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trainium_eks.aws.account import Account
from trainium_eks.aws.tags import cluster_of
from trainium_eks.model.catalogue import prices
from trainium_eks.model.finding import Finding, Status

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


FREE = 0.0
"""Price of a resource that costs nothing by itself."""


@dataclass(frozen=True)
class LeftOver:
    """A resource in the account that carries the stack's marks."""

    kind: str
    name: str
    why: str
    """Mark by which it counts as the stack's."""
    hourly_usd: float | None
    """USD an hour; None where no price is known."""
    commands: tuple[str, ...]
    """Commands that remove it, in order."""
    names: tuple[str, ...] = ()
    """Names and ids under which the state may hold it."""
    owners: tuple[str, ...] = ()
    """Names of its makers: while the state holds one of them, it is in use."""
    goes_with: tuple[str, ...] = ()
    """Names of resources that take it along when they are removed."""
    note: str = ""
    """Remark that a reader must know before removing it."""
    live: bool = False
    """Whether it is a cluster in service."""
    race: str = ""
    """Why AWS leaves it although its maker was deleted in order; empty for no known race."""

    def finding(self, *, removable: bool) -> Finding:
        """Return the leftover as a finding: its price, its mark and its note, with the commands as data."""
        text = "; ".join(part for part in (self._price(), self.why, self.race, self.note) if part)
        data = {
            "kind": self.kind,
            "name": self.name,
            "why": self.why,
            "hourlyUsd": None if self.hourly_usd is None else round(self.hourly_usd, 4),
            "commands": list(self.commands) if removable else [],
            "note": self.note,
            "race": self.race,
        }
        return Finding(Status.FAIL, self.name, text, id=f"{self.kind}/{self.name}", data=data)

    def _price(self) -> str:
        if self.hourly_usd is None:
            return "price not known"
        if self.hourly_usd >= 0.01:
            return f"${self.hourly_usd:,.2f} an hour"
        return f"${self.hourly_usd * prices.HOURS_PER_MONTH:,.2f} a month" if self.hourly_usd else "free"


@dataclass(frozen=True)
class Where:
    """The account and the marks that a search looks for."""

    account: Account
    marks: Marks

    def command(self, service: str, *words: str) -> str:
        """Return a command of the AWS CLI, quoted for a shell."""
        return shlex.join(["aws", service, *words, "--region", self.account.region])


def monthly(usd: float) -> float:
    """Return the hourly price for a price by the month."""
    return usd / prices.HOURS_PER_MONTH
