"""The places of the local cloud's files: one directory for each stack, binaries in the user's cache."""

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
        """Return the files of a stack of the project in that directory."""
        return Paths(project.resolve() / ".local" / stack)

    @property
    def lock(self) -> Path:
        """Return the file that is locked while a command changes the stack."""
        return self.root / "lock"

    @property
    def pki(self) -> Path:
        """Return the directory of certificates and keys."""
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        """Return the directory of logs, one ``<process>.log`` each."""
        return self.root / "logs"

    @property
    def etcd(self) -> Path:
        """Return the directory of etcd's data: all Kubernetes objects."""
        return self.root / "etcd"

    @property
    def settings(self) -> Path:
        """Return the JSON file of the control plane's ports and versions."""
        return self.root / "control-plane.json"

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig, for people and for ``trn``."""
        return self.root / "kubeconfig"

    def kubeconfig_of(self, namespace: str) -> Path:
        """Return the kubeconfig of a namespace's researchers."""
        return self.root / f"kubeconfig-{namespace}"

    @property
    def pools(self) -> Path:
        """Return the directory of the node groups' settings, one JSON file each."""
        return self.root / "pools"

    @property
    def outputs(self) -> Path:
        """Return the JSON file of the stack's outputs."""
        return self.root / "outputs.json"

    @property
    def report(self) -> Path:
        """Return the JSON file that lists the results of the last ``up``, with the releases that it did not install."""
        return self.root / "report.json"

    @property
    def made(self) -> Path:
        """Return the JSON file of the resources of the last ``up``, in the form of Pulumi's state; absent while ``up``
        runs, and after a failure."""
        return self.root / "made.json"

    @property
    def unfinished(self) -> Path:
        """Return the JSON file that replaces :attr:`made` while ``up`` runs, and after a failure."""
        return self.root / "unfinished.json"

    @property
    def pods(self) -> Path:
        """Return the directory of the pods that run here, with a directory named by uid for each."""
        return self.root / "pods"

    @property
    def kept(self) -> Path:
        """Return the directory of deleted pods' logs; see :mod:`trainium_eks.local.agent.log_retention`."""
        return self.root / "kept"

    @property
    def claims(self) -> Path:
        """Return the directory of claimed volumes: a directory for each namespace, with one for each claim."""
        return self.root / "claims"

    @property
    def volcano(self) -> Path:
        """Return the directory of configuration and certificates of Volcano's processes."""
        return self.root / "volcano"
