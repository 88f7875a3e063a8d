"""``trn orphans``: the resources that a stack left in the account."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainium_eks.cli.environment import check
from trainium_eks.cli.environment.cleanup.orphans_report import Orphans
from trainium_eks.cli.shared import output, stack_state
from trainium_eks.client.failure import FAILED, Failure
from trainium_eks.client.project import find_project

if TYPE_CHECKING:
    pass


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


def run(asked: OrphansOptions) -> int:
    """Show the left-over resources; return the exit code."""
    found = look(asked)
    if asked.as_json:
        output.write_json(found.to_json())
    else:
        from trainium_eks.cli.environment.cleanup import render_orphans

        render_orphans.show(found, no_color=asked.no_color)
    return 0 if found.clean else FAILED


def look(asked: OrphansOptions) -> Orphans:
    """Search the account.

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
    """Return the project directory; None where there is none and the options make it needless."""
    if asked.directory is None and (asked.cluster is not None or asked.state is not None):
        try:
            return find_project(None)
        except Failure:
            return None
    return find_project(asked.directory)
