"""Commands whose options are the fields of a dataclass, each annotated with an :class:`~.options.Option`."""

import functools
import inspect
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import typer

from trainium_eks.jobs.objects.options import Option, words


class Fixed:
    """Fields that a command sets itself and has no option for: ``Annotated[TrainOptions, Fixed(precompile=True)]``."""

    def __init__(self, **values: object) -> None:
        """Take the values by the fields' names."""
        self.values = values


class OptionsClass:
    """A dataclass whose fields are a command's options."""

    def __init__(self, kind: type, fixed: Mapping[str, object]) -> None:
        """Take the dataclass, and the values that the command sets itself by the names of their fields."""
        self.kind = kind
        self._options = [field for field in fields(kind) if field.name not in fixed]
        self._fixed = fixed

    @classmethod
    def of(cls, annotation: object) -> "OptionsClass | None":
        """Return the options class in a parameter's annotation; None for an option or argument of its own."""
        kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        if not (isinstance(kind, type) and is_dataclass(kind)):
            return None
        return cls(
            kind, {name: value for note in notes if isinstance(note, Fixed) for name, value in note.values.items()}
        )

    def parameters(self) -> list[inspect.Parameter]:
        """Return the options as parameters for typer, in the fields' order."""
        return [_parameter(field) for field in self._options]

    def take(self, given: dict[str, Any]) -> Any:
        """Return the dataclass made of the parsed options, and take those out of ``given``.

        Args:
            given: a command's arguments by name.
        """
        values = {}
        for field in self._options:
            value = given.pop(field.name)
            values[field.name] = tuple(value or ()) if field.default == () else value
        return self.kind(**values, **self._fixed)


@functools.cache  # commands share a class
def _parameter(field: Field[Any]) -> inspect.Parameter:
    """Return an option as typer reads it: words of a ``Literal`` as text, which the command checks itself."""
    kind, option = get_args(field.type)
    assert isinstance(option, Option), f"{field.name} has no Option"
    default = field.default
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
