"""``trn orphans``: what a stack left in the account."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainium_eks.cli.environment.check import check
from trainium_eks.cli.shared import output, recording, stack_state
from trainium_eks.cli.shared.failure import FAILED, Failure
from trainium_eks.plan.graph import SCHEMA_VERSION

if TYPE_CHECKING:
    from trainium_eks.operate.cleanup.left_over import Result


@dataclass(frozen=True)
class OrphansOptions:
    """The options of one call."""

    stack: str
    state: Path | None = None
    cluster: str | None = None
    region: str | None = None
    as_json: bool = False
    no_color: bool = False
    directory: Path | None = None


@dataclass(frozen=True)
class Orphans:
    """What was looked for, where, and what there is."""

    subject: str
    """``dev``, or the cluster's name."""
    region: str
    result: "Result"

    @property
    def clean(self) -> bool:
        """Whether nothing is left, as far as everything was looked at."""
        return not self.result.found and not self.result.unseen

    def to_json(self) -> dict[str, Any]:
        """For tools."""
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


def run(asked: OrphansOptions) -> int:
    """Shows what is left; the exit code."""
    try:
        found = look(asked)
        if asked.as_json:
            output.write_json(found.to_json())
        else:
            from trainium_eks.cli.environment.cleanup import render_orphans

            render_orphans.show(found, no_color=asked.no_color)
    except Failure as failure:
        return output.tell(failure, as_json=asked.as_json)
    return 0 if found.clean else FAILED


def look(asked: OrphansOptions) -> Orphans:
    """Searches the account.

    Raises:
        Failure: no state or no region is known.
    """
    from trainium_eks.aws.account import Account
    from trainium_eks.operate.cleanup import orphans
    from trainium_eks.operate.cleanup.marks import Marks

    project = _project(asked)
    if asked.cluster is not None:
        state = stack_state.load(asked.stack, asked.state, project, "") if asked.state is not None else None
        marks = Marks(cluster=asked.cluster)
    else:
        otherwise = ",\n  or look for what belongs to one cluster: trn orphans --cluster NAME --region REGION"
        state = stack_state.load(asked.stack, asked.state, project, otherwise)
        marks = Marks(stack=asked.stack)
    region = stack_state.region(state, asked.region, project, asked.stack)
    return Orphans(asked.cluster or asked.stack, region, orphans.look(check.signed_in(Account(region)), marks, state))


def _project(asked: OrphansOptions) -> Path | None:
    """The project directory; None where everything that it would tell is given."""
    if asked.directory is None and (asked.cluster is not None or asked.state is not None):
        try:
            return recording.find_project(None)
        except Failure:
            return None
    return recording.find_project(asked.directory)
