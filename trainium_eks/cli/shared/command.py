"""Base of all commands: the choice of the stack, its display, and the example in the help."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from trainium_eks.client.project import find_project

STACK_VARIABLE = "TRN_STACK"
"""Environment variable with the stack of commands that are given no ``--stack``."""

ENVIRONMENT, JOBS, IMAGES, LOCAL = "Environment", "Jobs", "Images", "Local"
"""Headings of the commands in ``trn --help``, as in the README."""

EXIT_CODES = (
    "Exit codes: 0 all is well; 1 something was found, or failed; 2 wrong usage, or something that the command needs "
    "is missing (a tool, credentials, a stack); 130 interrupted."
)


class App(typer.Typer):
    """A typer app: every command has an example and shows its stack."""

    def __init__(
        self, *, otherwise: str = "dev", panel: str | None = None, asks_cloud: bool = True, **options: Any
    ) -> None:
        """Make an app with the default stack of its commands, and their heading in the help. ``asks_cloud``: whether
        they ask a running cloud, so that of several one must be named."""
        super().__init__(add_completion=False, pretty_exceptions_enable=False, **options)
        self._otherwise = otherwise
        self._panel = panel
        self._asks_cloud = asks_cloud

    def command(  # type: ignore[override]
        self, name: str | None = None, *, example: str, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return typer's decorator of a command, whose help ends with an example."""
        kind = type("Command", (_Command,), {"otherwise": self._otherwise, "asks_cloud": self._asks_cloud})
        epilog = f"Example: {example}"
        return super().command(name, cls=kind, epilog=epilog, rich_help_panel=self._panel, **options)


class _Command(TyperCommand):
    """A command that knows its stack before it runs."""

    otherwise = "dev"
    asks_cloud = True

    def invoke(self, ctx: Any) -> Any:
        """Choose the stack, say on standard error which it is and why, and run the command."""
        given = ctx.params
        if given.get("stack") is not None and not given.get("outputs"):
            given["stack"], why = choose(
                given["stack"], given.get("directory"), self.otherwise, asks_cloud=self.asks_cloud
            )
            ctx.obj = why
            if not given.get("as_json"):
                typer.echo(f"Stack {given['stack']} ({why})", err=True)
        return super().invoke(ctx)


RUNS_HERE = "its local cloud runs here; --stack names another"
"""Reason for the stack of the local cloud that runs."""


def choose(given: str, directory: Path | None, otherwise: str, *, asks_cloud: bool = True) -> tuple[str, str]:
    """Return the stack of a command and the reason for the choice.

    ``--stack``, else the environment variable ``TRN_STACK``, else the local cloud that runs in the project, else
    ``otherwise``. A command that asks no cloud takes that, too, where several run."""
    if given:
        return given, "--stack"
    if named := os.environ.get(STACK_VARIABLE, ""):
        return named, STACK_VARIABLE
    running = _local_clouds(directory)
    if len(running) > 1 and asks_cloud:
        raise typer.BadParameter(
            f"local clouds of several stacks run here: name {' or '.join(running)}", param_hint="--stack"
        )
    if len(running) == 1:
        return running[0], RUNS_HERE
    return otherwise, f"the default; --stack or {STACK_VARIABLE} names another"


def _local_clouds(directory: Path | None) -> list[str]:
    """Return the project's stacks with a running local cloud; read no processes where none has been made."""
    from trainium_eks.client.failure import CommandError
    from trainium_eks.local.paths import Paths

    try:
        project = find_project(directory)
    except CommandError:
        return []  # the command itself says so
    made = [each.parent.name for each in sorted(project.glob(f".local/*/{Paths(Path()).settings.name}"))]
    if not made:
        return []
    from trainium_eks.local.control_plane import processes

    return [stack for stack in made if processes.running(Paths.of(project, stack))]
