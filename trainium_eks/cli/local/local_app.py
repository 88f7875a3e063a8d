"""The commands of ``trn local`` and their options. The work is in :mod:`trainium_eks.cli.local.local`."""

from pathlib import Path
from typing import Annotated

import typer

from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.options import Directory, NoColor, Stack

app = App(
    otherwise="local",
    help="The whole stack on this machine: a real Kubernetes, a simulated AWS.",
    no_args_is_help=True,
)

images_app = App(help="Environments for pods that run: images `local/…`.")
app.add_typer(images_app, name="images", invoke_without_command=True)


@app.command(example="trn local up --nodes 4")
def up(
    stack: Stack = "",
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=0, max=5000, help="Nodes of the first node group; default: the config.")
    ] = None,
    no_color: NoColor = False,
    directory: Directory = None,
) -> None:
    """Start Kubernetes here and deploy the stack's program to it. Can be repeated at any time.

    Exit code: 0; 1 when something failed; 2 for wrong usage.
    """
    from trainium_eks.cli.local import local

    raise typer.Exit(local.up(local.Target(stack, directory, no_color=no_color), nodes))


@app.command(example="trn local down")
def down(stack: Stack = "", no_color: NoColor = False, directory: Directory = None) -> None:
    """Stop the stack's processes and remove everything that belongs to it; cached programs and charts stay."""
    from trainium_eks.cli.local import local

    raise typer.Exit(local.down(local.Target(stack, directory, no_color=no_color)))


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    example="trn local kubectl get nodes",
)
def kubectl(
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments for kubectl: get nodes.")] = None,
    stack: Stack = "",
    directory: Directory = None,
) -> None:
    """Run kubectl against the local cluster: `trn local kubectl get nodes`. Options of trn come first."""
    from trainium_eks.cli.local import local

    raise typer.Exit(local.kubectl(local.Target(stack, directory), arguments or []))


@app.command(example="trn local logs kube-apiserver --follow")
def logs(
    process: Annotated[str | None, typer.Argument(help="kube-apiserver, etcd, kwok, …; default: list them.")] = None,
    stack: Stack = "",
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines, from the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
    directory: Directory = None,
) -> None:
    """Show the log of a process."""
    from trainium_eks.cli.local import local

    raise typer.Exit(local.logs(local.Target(stack, directory), process, lines=lines, follow=follow))


@app.command(
    "exec",
    context_settings={"ignore_unknown_options": True},
    example="trn local exec bert-tiny-trainer-0-0 -- ls /data",
)
def execute(
    pod: Annotated[str, typer.Argument(help="Name of a pod with a local/ image.")],
    command: Annotated[list[str] | None, typer.Argument(help="What to run, after --.")] = None,
    container: Annotated[str | None, typer.Option("--container", "-c", help="Default: the pod's first.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Of the pod; needed where several pods have the name.")
    ] = None,
    stack: Stack = "",
    directory: Directory = None,
) -> None:
    """Run a command in a pod that runs on this machine: `trn local exec POD -- ls /data`.

    On a terminal the command has a terminal, too. Exit code: the command's.
    """
    from trainium_eks.cli.local import local, local_exec

    target = local.Target(stack, directory)
    raise typer.Exit(local_exec.run(target, pod, namespace, container, command or []))


@images_app.callback()
def images(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON and nothing else.")] = False,
) -> None:
    """List the images that pods of local clouds can have; they are shared by all stacks of this user."""
    if context.invoked_subcommand is None:
        from trainium_eks.cli.local import local_images

        raise typer.Exit(local_images.show(as_json=as_json))


@images_app.command("list", example="trn local images list")
def list_images(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON and nothing else.")] = False,
) -> None:
    """List the images that pods of local clouds can have."""
    from trainium_eks.cli.local import local_images

    raise typer.Exit(local_images.show(as_json=as_json))


@images_app.command("make", example="trn local images make torch")
def make_image(
    name: Annotated[str, typer.Argument(help="`torch`, or any name together with --requirements.")],
    requirements: Annotated[
        Path | None, typer.Option("--requirements", "-r", metavar="FILE", help="A requirements file of pip.")
    ] = None,
) -> None:
    """Make an image: a virtual environment in the cache, with the packages of the requirements file."""
    from trainium_eks.cli.local import local_images

    raise typer.Exit(local_images.make(name, requirements))


@images_app.command("path", example="trn local images path torch")
def image_path(name: Annotated[str, typer.Argument(help="Its name, with `:<tag>` a certain one.")]) -> None:
    """Print an image's directory: its programs, `python` first among them, are in `bin` there."""
    from trainium_eks.cli.local import local_images

    raise typer.Exit(local_images.path(name))


@images_app.command("remove", example="trn local images remove torch")
def remove_image(name: Annotated[str, typer.Argument(help="Its name, with `:<tag>` only that one.")]) -> None:
    """Remove an image from the cache."""
    from trainium_eks.cli.local import local_images

    raise typer.Exit(local_images.remove(name))
