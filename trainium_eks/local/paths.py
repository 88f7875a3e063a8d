"""Where the local cloud keeps what it knows: everything of a stack in one directory, binaries in the user's cache."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


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
    def outputs(self) -> Path:
        """The stack's outputs, JSON."""
        return self.root / "outputs.json"

    @property
    def report(self) -> Path:
        """What the last ``up`` did and did not install, JSON."""
        return self.root / "report.json"

    @property
    def volcano(self) -> Path:
        """Configuration and certificates of Volcano's processes."""
        return self.root / "volcano"


def cache(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's cache directory for binaries and charts, which several clones share.

    ``TRN_CACHE`` when set; otherwise ``trainium-eks`` where the platform keeps caches (``~/.cache`` and
    ``XDG_CACHE_HOME``, ``~/Library/Caches``).
    """
    if chosen := environment.get("TRN_CACHE"):
        return Path(chosen).expanduser().absolute()
    # Here, for whoever only asks where a stack's files are may not have what the local cloud needs.
    import platformdirs

    return platformdirs.user_cache_path("trainium-eks", appauthor=False)
