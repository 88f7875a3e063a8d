"""``trn local exec``: a command in a container that runs on this machine."""

from typing import Annotated

import typer

from trainium_eks.cli.local.target import paths_of
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.options import Directory, Stack
from trainium_eks.client.failure import UsageError
from trainium_eks.local.runtime import exec_command

app = App(otherwise="local")


@app.command(
    "exec",
    context_settings={"ignore_unknown_options": True},
    example="trn local exec bert-tiny-trainer-0-0 -- ls /data",
)
def execute(
    pod: Annotated[str, typer.Argument(help="Name of a pod with a local/ image.")],
    command: Annotated[list[str] | None, typer.Argument(help="Command, after --.")] = None,
    container: Annotated[str | None, typer.Option("--container", "-c", help="Container; default: the first.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace; needed where several pods have the name.")
    ] = None,
    stack: Stack = "",
    directory: Directory = None,
) -> None:
    """Run a command in a pod that runs on this machine: `trn local exec POD -- ls /data`.

    On a terminal the command has a terminal, too. Exit code: the command's.
    """
    if not command:
        raise UsageError(f"give a command to run. For a shell: trn local exec {pod} -- sh")
    found = exec_command.find(paths_of(stack, directory), pod, namespace, container)
    raise typer.Exit(exec_command.run(found, command))
