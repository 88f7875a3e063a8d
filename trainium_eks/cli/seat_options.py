"""The options that every command of a researcher has."""

from pathlib import Path
from typing import Annotated

import typer

from trainium_eks.cli.local_app import Directory, NoColor, Stack

__all__ = ["Directory", "Json", "Kubeconfig", "Namespace", "NoColor", "Outputs", "Stack"]

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Your team's namespace; default: the stack's first.")
]
Outputs = Annotated[
    Path | None,
    typer.Option("--outputs", help="JSON file with the stack's outputs; default: ask the local cloud or pulumi."),
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Use this file, not the kubeconfig in the outputs.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
