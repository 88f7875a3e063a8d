"""``trn check``: a test of quotas, capacity and rights on AWS before an ``up`` begins."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainium_eks.cli.shared import output, recording
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.project import check_stack, find_project

if TYPE_CHECKING:
    from trainium_eks.aws.account import Account
    from trainium_eks.operate.preflight.run import Preflight
    from trainium_eks.plan.graph import Graph


@dataclass(frozen=True)
class CheckOptions:
    """The options of one call."""

    stack: str
    as_json: bool = False
    no_color: bool = False
    directory: Path | None = None


def run(asked: CheckOptions) -> int:
    """Show the findings on AWS; return the exit code: 0, 1 when something fails, 2 when nothing could be asked."""
    project = find_project(asked.directory)
    check_stack(project, asked.stack)
    found = look(recording.record(project, asked.stack), quiet=asked.as_json)
    if asked.as_json:
        output.write_json(found.to_json())
    else:
        from trainium_eks.cli.environment.check import render_check

        render_check.show(found, no_color=asked.no_color)
    if not found.account:
        return WRONG_USAGE  # no credentials: nothing was asked, so nothing is well
    return FAILED if found.failed else 0


def look(graph: "Graph", *, quiet: bool = False) -> "Preflight":
    """Check a recorded program against AWS.

    Args:
        graph: recorded program.
        quiet: show no spinner.

    Raises:
        Failure: the program names no region.
    """
    from trainium_eks.operate.preflight import run as preflight

    try:
        if quiet or not sys.stderr.isatty():
            return preflight.look(graph)
        from rich.console import Console

        with Console(stderr=True).status(f"Asking AWS about {graph.stack}"):
            return preflight.look(graph)
    except ValueError as error:
        raise Failure(WRONG_USAGE, str(error)) from None


def signed_in(account: "Account") -> "Account":
    """Return the account, unless there are no credentials for it.

    Raises:
        Failure: there are none, or AWS does not take them.
    """
    from trainium_eks.aws.account import NoCredentials, NotChecked, RequestError

    try:
        account.caller()
    except NoCredentials as error:
        raise Failure(WRONG_USAGE, str(error)) from None
    except (NotChecked, RequestError):
        pass  # each finding repeats the error
    return account
