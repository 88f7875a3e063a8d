"""The options that every command of a researcher has, and options that are the fields of a dataclass, each annotated
with an :class:`~trainium_eks.jobs.objects.options.Option`."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import typer

from trainium_eks.cli.shared.options import Directory, NoColor, Stack
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.jobs.objects.options import Option, words

__all__ = ["Directory", "Job", "Json", "Kubeconfig", "Namespace", "NoColor", "Outputs", "Stack", "with_cluster_options"]

Job = Annotated[str, typer.Argument(help="Name of the job, as `trn jobs` shows it.", show_default=False)]
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


def cluster_options_without(*left_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of its parameter ``cluster``, last in its help, but for some
    that it has no use for, and an option for each field of a parameter that is a dataclass."""
    shared = [each for name, each in _PARAMETERS.items() if name not in left_out]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        own: list[inspect.Parameter] = []
        classes: dict[str, type] = {}
        for each in inspect.signature(command).parameters.values():
            if isinstance(each.annotation, type) and is_dataclass(each.annotation) and each.name != "cluster":
                classes[each.name] = each.annotation
                own += map(_parameter, fields(each.annotation))
            elif each.name != "cluster":
                own.append(each)

        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            cluster = _options(**{each.name: given.pop(each.name) for each in shared})
            made = {name: _made(kind, given) for name, kind in classes.items()}
            command(**made, **given, cluster=cluster)

        with_options.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        return with_options

    return decorated


with_cluster_options = cluster_options_without()
"""Decorator that gives a command all options of its parameter ``cluster``, last in its help."""


def _made(kind: Any, given: dict[str, Any]) -> Any:
    """Return the dataclass made of the parsed options, and take those out of ``given``."""
    values = {}
    for field in fields(kind):
        value = given.pop(field.name)
        values[field.name] = tuple(value or ()) if field.default == () else value
    return kind(**values)


def _parameter(field: Field[Any]) -> inspect.Parameter:
    """Return an option as typer reads it: words of a ``Literal`` as text, which the command checks itself."""
    kind, option = get_args(field.type)
    assert isinstance(option, Option), f"{field.name} has no Option"
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if words(kind):
        kind = str | None if NoneType in get_args(kind) else str
    if default == ():
        kind, default = list[str] | None, None
    info = (
        typer.Option(*option.names, help=option.about, metavar=option.metavar, rich_help_panel=option.panel)
        if option.names
        else typer.Argument(help=option.about, metavar=option.metavar, show_default=False)
    )
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(field.name, place, default=default, annotation=Annotated[kind, info])
