"""The places of the local cloud's files: one directory for each stack, binaries in the user's cache."""

from dataclasses import dataclass
from pathlib import Path


class _Below:
    """A file or directory below the root."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: "Paths", _owner: type["Paths"] | None = None) -> Path:
        return paths.root / self._name


@dataclass(frozen=True)
class Paths:
    """The files of one stack's local cloud. Only its owner may read them: they hold private keys."""

    root: Path
    """``<project>/.local/<stack>``, absolute. Every process of the stack names it on its command line."""

    @staticmethod
    def of(project: Path, stack: str) -> "Paths":
        """Return the files of a stack of the project in that directory."""
        return Paths(project.resolve() / ".local" / stack)

    lock = _Below("lock")
    """File that is locked while a command changes the stack."""
    pki = _Below("pki")
    """The directory of certificates and keys."""
    logs = _Below("logs")
    """The directory of logs, one ``<process>.log`` each."""
    etcd = _Below("etcd")
    """The directory of etcd's data: all Kubernetes objects."""
    settings = _Below("control-plane.json")
    """The JSON file of the control plane's ports and versions."""
    kubeconfig = _Below("kubeconfig")
    """The administrator's kubeconfig, for people and for ``trn``."""
    pools = _Below("pools")
    """The directory of the node groups' settings, one JSON file each."""
    outputs = _Below("outputs.json")
    """The JSON file of the stack's outputs."""
    report = _Below("report.json")
    """The JSON file that lists the results of the last ``up``, with the releases that it did not install."""
    made = _Below("made.json")
    """The JSON file of the resources of the last ``up``, in the form of Pulumi's state; absent while ``up`` runs,
    and after a failure."""
    unfinished = _Below("unfinished.json")
    """The JSON file that replaces :attr:`made` while ``up`` runs, and after a failure."""
    pods = _Below("pods")
    """The directory of the pods that run here, with a directory named by uid for each."""
    kept = _Below("kept")
    """The directory of deleted pods' logs; see :mod:`trainium_eks.local.agent.log_retention`."""
    claims = _Below("claims")
    """The directory of claimed volumes: a directory for each namespace, with one for each claim."""
    volcano = _Below("volcano")
    """The directory of configuration and certificates of Volcano's processes."""

    def kubeconfig_of(self, namespace: str) -> Path:
        """Return the kubeconfig of a namespace's researchers."""
        return self.root / f"kubeconfig-{namespace}"
