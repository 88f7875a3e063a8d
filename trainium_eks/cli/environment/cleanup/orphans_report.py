"""Result of a search for a stack's left-over resources, as data."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainium_eks.plan.graph import SCHEMA_VERSION

if TYPE_CHECKING:
    from trainium_eks.operate.cleanup.left_over import Result


@dataclass(frozen=True)
class Orphans:
    """Result of a search: its subject, its region, and the resources found."""

    subject: str
    """``dev``, or the cluster's name."""
    region: str
    result: "Result"

    @property
    def clean(self) -> bool:
        """Whether nothing is left and everything was looked at."""
        return not self.result.found and not self.result.unseen

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "subject": self.subject,
            "region": self.region,
            "comparedWithState": self.result.has_state,
            "stateIsEmpty": self.result.empty_state,
            "liveClusters": list(self.result.live),
            "pendingOperations": self.result.pending,
            "hourlyUsd": round(self.result.hourly_usd, 4),
            "unknownPrices": list(self.result.unknown),
            "found": [each.to_json() for each in self.result.found],
            "notLookedAt": [{"what": each.what, "reason": each.reason} for each in self.result.unseen],
        }
