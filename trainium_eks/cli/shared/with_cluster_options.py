"""The options that every command of a researcher has."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from trainium_eks.cli.shared.options import Directory, NoColor, Stack
from trainium_eks.cli.shared.options_class import OptionsClass
from trainium_eks.client.cluster_options import ClusterOptions

__all__ = ["Directory", "Json", "Kubeconfig", "Namespace", "NoColor", "Outputs", "Stack", "with_cluster_options"]

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


def _options(
    stack: Stack = "",
    namespace: Namespace = None,
    outputs: Outputs = None,
    kubeconfig: Kubeconfig = None,
    as_json: Json = False,
    no_color: NoColor = False,
    directory: Directory = None,
) -> ClusterOptions:
    return ClusterOptions(stack, namespace, outputs, kubeconfig, directory, as_json=as_json, no_color=no_color)


_PARAMETERS = inspect.signature(_options).parameters


def with_cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of its parameter ``cluster``, last in its help."""
    own: list[inspect.Parameter] = []
    classes: dict[str, OptionsClass] = {}
    for each in inspect.signature(command).parameters.values():
        if each.name == "cluster":
            continue
        found = OptionsClass.of(each.annotation)
        if found is None:
            own.append(each)
        else:
            classes[each.name] = found
            own += found.parameters()

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        cluster = _options(**{name: given.pop(name) for name in _PARAMETERS})
        made = {name: each.take(given) for name, each in classes.items()}
        command(**made, **given, cluster=cluster)

    with_options.__signature__ = inspect.Signature([*own, *_PARAMETERS.values()])  # type: ignore[attr-defined]
    return with_options
