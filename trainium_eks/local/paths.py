"""Where the local cloud keeps what it knows: everything of a stack in one directory, binaries in the user's cache."""

from dataclasses import dataclass
from pathlib import Path

from trainium_eks.fetched import cache

__all__ = ["Paths", "cache"]


@dataclass(frozen=True)
class Paths:
    """The files of one stack's local cloud. Only its owner may read them: they hold private keys."""

    root: Path
    """``<project>/.local/<stack>``, absolute. Every process of the stack names it on its command line."""

    @staticmethod
    def of(project: Path, stack: str) -> "Paths":
        """The files of a stack of the project in that directory."""
        return Paths(project.resolve() / ".local" / stack)

    @property
    def lock(self) -> Path:
        """Held by whoever changes anything here."""
        return self.root / "lock"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        """One ``<process>.log`` each."""
        return self.root / "logs"

    @property
    def etcd(self) -> Path:
        """etcd's data: all Kubernetes objects."""
        return self.root / "etcd"

    @property
    def settings(self) -> Path:
        """Ports and versions of the control plane, JSON."""
        return self.root / "control-plane.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, for people and for ``trn``."""
        return self.root / "kubeconfig"

    def kubeconfig_of(self, namespace: str) -> Path:
        """A researcher's, of that namespace."""
        return self.root / f"kubeconfig-{namespace}"

    @property
    def ledger(self) -> Path:
        """What was made, one JSON line for each change."""
        return self.root / "ledger.jsonl"

    @property
    def pools(self) -> Path:
        """What the nodes of each group are made from, one JSON file each."""
        return self.root / "pools"

    @property
    def outputs(self) -> Path:
        """The stack's outputs, JSON."""
        return self.root / "outputs.json"

    @property
    def report(self) -> Path:
        """What the last ``up`` did and did not install, JSON."""
        return self.root / "report.json"

    @property
    def pods(self) -> Path:
        """Pods that run here, a directory each, named by its uid."""
        return self.root / "pods"

    @property
    def kept(self) -> Path:
        """What pods wrote that are gone; see :mod:`trainium_eks.local.agent.log_retention`."""
        return self.root / "kept"

    @property
    def claims(self) -> Path:
        """Content of the volumes that pods claim: a directory for each namespace, with one for each claim."""
        return self.root / "claims"

    @property
    def volcano(self) -> Path:
        """Configuration and certificates of Volcano's processes."""
        return self.root / "volcano"
