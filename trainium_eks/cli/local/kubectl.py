"""``trn local kubectl``: kubectl of the right version, against the local cluster."""

import os
import sys
from typing import Annotated

import typer

from trainium_eks.cli.local import target
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.options import Directory, Stack
from trainium_eks.client import kubeconfig_variable
from trainium_eks.local import toolchain
from trainium_eks.local.control_plane.ports import Settings
from trainium_eks.model.catalogue.versions import KUBERNETES

app = App(otherwise="local")


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
    file = target.kubeconfig_of(stack, directory)
    environment = {**os.environ}
    files = kubeconfig_variable.list_files()
    # The variable is left unchanged: kubectl reads several files itself.
    if not files or kubeconfig_variable.other_server(
        kubeconfig_variable.merge_files(files), file.read_text(encoding="utf-8")
    ):
        environment[kubeconfig_variable.VARIABLE] = str(file)
    minor = Settings.load(target.paths_of(stack, directory)).kubernetes or KUBERNETES
    programs = toolchain.provide(*toolchain.kubernetes(minor), progress=lambda line: typer.echo(line, err=True))
    sys.stdout.flush()
    os.execve(str(programs["kubectl"].path), ["kubectl", *(arguments or [])], environment)
