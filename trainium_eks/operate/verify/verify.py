"""Verification: every check of a cluster against its stack's outputs, as one versioned model."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_eks.kube.cluster import Unread
from trainium_eks.operate.verify import made, nodes, scheduling, storage, topology, workloads
from trainium_eks.operate.verify.check import Check, CheckStatus, failed
from trainium_eks.operate.verify.examined import Examined
from trainium_eks.operate.verify.local_report import LocalReport

SCHEMA_VERSION = 1
"""Version of the JSON form; changes when a field is removed or changes meaning."""


@dataclass(frozen=True)
class Verification:
    """The result of all checks of a cluster."""

    stack: str
    """The stack; empty when only its outputs are known, from a file."""
    cluster: str
    """Name of the cluster."""
    server: str
    """URL of its API server."""
    local: LocalReport | None
    """The local cloud's report; None for a cluster on AWS."""
    checks: tuple[Check, ...]

    @property
    def failed(self) -> bool:
        """Return whether a check failed."""
        return any(check.status is CheckStatus.FAIL for check in self.checks)

    @property
    def summary(self) -> dict[str, int]:
        """Return the number of checks by status."""
        found = Counter(check.status for check in self.checks)
        return {
            "pass": found[CheckStatus.PASS],
            "fail": found[CheckStatus.FAIL],
            "notInstalled": found[CheckStatus.NOT_INSTALLED],
            "notApplicable": found[CheckStatus.NOT_APPLICABLE],
        }

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "stack": self.stack or None,
            "cluster": self.cluster,
            "local": self.local is not None,
            "server": self.server,
            "simulated": list(self.local.simulated) if self.local is not None else [],
            "checks": [check.to_json() for check in self.checks],
            "summary": self.summary,
        }


Section = tuple[str, str, Callable[[Examined], Iterable[Check]]]
"""First part of the ids, subject, and checks."""

SECTIONS: Sequence[Section] = (
    ("server", "versions", nodes.server),
    ("server", "local processes", workloads.processes),
    ("nodes", "nodes", nodes.counts),
    ("nodes", "labels", nodes.places),
    ("devices", "devices", nodes.devices),
    ("plugins", "plugins and add-ons", workloads.plugins),
    ("storage", "storage", storage.checks),
    ("volcano", "processes", workloads.volcano),
    ("volcano", "webhooks", scheduling.webhooks),
    ("topology", "HyperNodes", topology.hypernodes),
    ("topology", "switches", topology.switches),
    ("namespaces", "namespaces", scheduling.namespaces),
    ("queues", "queues", scheduling.queues),
    ("objects", "objects", made.checks),
)
"""All sections, in the order in which a cluster comes up: an early failure is the cause of later ones."""


def verify(examined: Examined, sections: Sequence[Section] = SECTIONS) -> tuple[Check, ...]:
    """Run the checks of these sections."""
    return tuple(check for section, subject, judge in sections for check in _judged(section, subject, judge, examined))


def _judged(
    section: str, subject: str, judge: Callable[[Examined], Iterable[Check]], examined: Examined
) -> list[Check]:
    """Return the checks of a section. A kind of object that could not be read becomes a failed check after the checks
    before it."""
    found: list[Check] = []
    try:
        for check in judge(examined):
            found.append(check)
    except Unread as error:
        remedy = f"your user needs the right to list them: kubectl auth can-i list {error.kind.lower()} -A"
        found.append(failed(f"{section}/unread", subject, str(error), remedy))
    return found
