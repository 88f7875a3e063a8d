"""The commands and their options. Each command's work is in a module of its own, imported when it runs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="trn",
    help="Plan and run training environments on AWS Trainium with Amazon EKS.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Operation(StrEnum):
    """What `trn deploy` does."""

    preview = "preview"
    up = "up"
    destroy = "destroy"


Stack = Annotated[str, typer.Option("--stack", "-s", help="Environment: reads Pulumi.<stack>.yaml.")]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory", "-C", help="Project directory; default: the nearest one with a Pulumi.yaml, here or above."
    ),
]


def _show_version(asked: bool) -> None:
    if asked:
        from trainium_eks import __version__

        typer.echo(f"trn {__version__}")
        raise typer.Exit


@app.callback()
def trn(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Plan and run training environments on AWS Trainium with Amazon EKS."""
    del version  # its callback has acted


@app.command()
def plan(
    stack: Stack = "dev",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON and nothing else.")] = False,
    save: Annotated[Path | None, typer.Option("--save", help="Also write the plan's JSON to this file.")] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Show what changes since a saved plan (a file) or a git commit.")
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text; NO_COLOR does the same.")] = False,
    directory: Directory = None,
) -> None:
    """Show the whole plan of an environment: resources, cost, time to ready, rules. Contacts nothing.

    Exit code: 0; 1 for a failed rule, a wrong edge or an invalid config; 2 for wrong usage.
    """
    from trainium_eks.cli import plan as command

    asked = command.Request(stack, as_json=as_json, save=save, against=against, no_color=no_color, directory=directory)
    raise typer.Exit(command.run(asked))


@app.command(context_settings={"ignore_unknown_options": True})
def deploy(
    operation: Annotated[Operation, typer.Argument(help="preview, up or destroy.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Further arguments for pulumi, after --.")] = None,
    stack: Stack = "dev",
    directory: Directory = None,
) -> None:
    """Run the real `pulumi`, after checking what it needs and saying what the environment costs."""
    from trainium_eks.cli import plan as command

    raise typer.Exit(command.deploy(operation.value, stack, directory, arguments or []))
