"""State and region of a stack, for commands: from a file, from standard input, or from Pulumi."""

import os
import sys
from pathlib import Path

from trainium_eks.client.failure import UsageError
from trainium_eks.operate.cleanup.state import StackState, StateError
from trainium_eks.plan.recording.project import InvalidConfigError, ProjectError, load_project

STDIN = Path("-")


def load(stack: str, given: Path | None, project: Path | None, otherwise: str) -> StackState:
    """Return the state of a stack: of a file of ``pulumi stack export``, of :data:`STDIN`, or asked of Pulumi for None.

    ``otherwise`` is a hint for the message when Pulumi does not answer.
    """
    try:
        if given == STDIN:
            return StackState.parse(sys.stdin.read(), "standard input")
        if given is not None:
            return StackState.parse(given.read_text(encoding="utf-8"), str(given))
    except OSError as error:
        raise UsageError(f"cannot read {given}: {error.strerror}") from None
    except (StateError, UnicodeDecodeError) as error:
        raise UsageError(str(error)) from None
    try:
        return StackState.ask(stack, project or Path())
    except StateError as error:
        raise UsageError(
            f"{error}.\n  Export the state where it is (pulumi stack export --stack {stack} --file state.json) "
            f"and give it with --state state.json{otherwise}",
        ) from None


def region(state: StackState | None, given: str | None, project: Path | None, stack: str) -> str:
    """Return the region: the given one, else that of the state, of the config or of AWS' environment variables."""
    found = given or (state.region if state else "") or _of_config(project, stack)
    found = found or os.environ.get("AWS_REGION", "") or os.environ.get("AWS_DEFAULT_REGION", "")
    if not found:
        raise UsageError("no region is known: name it with --region (us-west-2)")
    return found


def _of_config(project: Path | None, stack: str) -> str:
    """Return the region in the stack's file; empty without one, or where the file does not fit the project any more."""
    if project is None:
        return ""
    try:
        settings = load_project(project).stack(stack)
    except (ProjectError, InvalidConfigError):
        return ""
    return next((value for key, value in settings.config.items() if key.endswith(":region")), "")
