"""Base of all commands: the choice of the stack, its display, and the example in the help."""

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from trainium_eks.cli import notice_of_loading
from trainium_eks.client.failure import CommandError
from trainium_eks.client.notices import begin
from trainium_eks.client.project import find_project
from trainium_eks.late_import import imported_late
from trainium_eks.local.paths import Paths

STACK_VARIABLE = "TRN_STACK"
"""Environment variable with the stack of commands that are given no ``--stack``."""

ENVIRONMENT, JOBS, IMAGES, LOCAL = "Environment", "Jobs", "Images", "Local"
"""Headings of the commands in ``trn --help``, as in the README."""

EXIT_CODES = (
    "Exit codes: 0 all is well; 1 something was found, or failed; 2 wrong usage, or something that the command needs "
    "is missing (a tool, credentials, a stack); 130 interrupted."
)


def _load_help() -> None:
    """Import typer's help, without the modules that it has for the Markdown and tracebacks of others."""
    # Where another version of typer uses them at its import, it imports itself again, with them.
    with contextlib.suppress(Exception), imported_late("rich.markdown", "rich.traceback"):
        importlib.import_module("typer.rich_utils")


class Entry(NamedTuple):
    """A command of a group that is not imported yet."""

    module: str
    """Module of ``trainium_eks.cli`` with the command as ``app``: ``jobs.train``."""
    about: str
    """Its line in the group's help."""
    panel: str | None = None
    """Its heading there."""


class LazyGroup(TyperGroup):
    """A group that imports a command when it is called; its help needs the entries alone."""

    entries: Mapping[str, Entry] = {}

    def __init__(self, *, entries: Mapping[str, Entry] | None = None, **options: Any) -> None:
        """Make a group of entries, by the names of their commands; None for those of the class."""
        super().__init__(**options)
        self.entries = entries or self.entries
        self._imported: dict[str, Any] = {}
        for name, each in self.entries.items():
            self.add_command(TyperCommand(name, short_help=each.about, rich_help_panel=each.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the called command, imported."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, self.load(name) if name and found else None, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        _load_help()
        super().format_help(ctx, formatter)

    def load(self, name: str) -> Any:
        """Return a command, imported."""
        if name not in self._imported:
            with notice_of_loading():
                app = importlib.import_module(f"trainium_eks.cli.{self.entries[name].module}").app
            self._imported[name] = app if isinstance(app, TyperGroup) else typer.main.get_command(app)
            self._imported[name].name = name
        return self._imported[name]


class App(typer.Typer):
    """A typer app: every command has an example and shows its stack."""

    def __init__(self, *, otherwise: str = "dev", asks_cloud: bool = True, **options: Any) -> None:
        """Make an app with the default stack of its commands. ``asks_cloud``: whether they ask a running cloud, so that
        of several one must be named."""
        super().__init__(add_completion=False, pretty_exceptions_enable=False, **options)
        self._otherwise = otherwise
        self._asks_cloud = asks_cloud

    def command(  # type: ignore[override]
        self, name: str | None = None, *, example: str, begins: str | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return typer's decorator of a command, whose help ends with an example. ``begins`` says at a terminal what
        takes seconds at first; None where it reads the stack's outputs or is quick, empty where it says that itself."""
        facts = {"otherwise": self._otherwise, "asks_cloud": self._asks_cloud, "begins": begins}
        kind = type("Command", (_Command,), facts)
        epilog = f"Example: {example}"
        return super().command(name, cls=kind, epilog=epilog, **options)


class _Command(TyperCommand):
    """A command that knows its stack before it runs."""

    otherwise = "dev"
    asks_cloud = True
    begins: str | None = None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        _load_help()
        super().format_help(ctx, formatter)

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
        reads = f"reading {given.get('stack') or 'the stack'} and its cluster" if "outputs" in given else ""
        begin(reads if self.begins is None else self.begins)
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
    try:
        project = find_project(directory)
    except CommandError:
        return []  # the command itself reports it
    made = [each.parent.name for each in sorted(project.glob(f".local/*/{Paths(Path()).settings.name}"))]
    if not made:
        return []
    from trainium_eks.local.control_plane import processes

    return [stack for stack in made if processes.running(Paths.of(project, stack))]
