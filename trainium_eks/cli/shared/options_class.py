"""Commands whose options are the fields of a dataclass, each annotated with an :class:`~.options.Option`."""

import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from trainium_eks.jobs.objects.options import Option


class Fixed:
    """Fields that a command sets itself and has no option for: ``Annotated[TrainOptions, Fixed(precompile=True)]``."""

    def __init__(self, **values: object) -> None:
        """Take the values by the fields' names."""
        self.values = values


@dataclass(frozen=True)
class OptionsClass:
    """A dataclass whose fields are a command's options."""

    kind: type
    fixed: Mapping[str, object]

    @classmethod
    def of(cls, annotation: object) -> "OptionsClass | None":
        """Return the options class in a parameter's annotation; None for an option or argument of its own."""
        kind, *notes = get_args(annotation) if get_origin(annotation) is typing.Annotated else (annotation,)
        if not (isinstance(kind, type) and hasattr(kind, "__dataclass_fields__")):
            return None
        return cls(
            kind, {name: value for note in notes if isinstance(note, Fixed) for name, value in note.values.items()}
        )

    def parameters(self) -> list[inspect.Parameter]:
        """Return the options as parameters for typer, in the fields' order."""
        hints = get_type_hints(self.kind, include_extras=True)
        return [
            _parameter(field.name, hints[field.name], field.default)
            for field in fields(self.kind)
            if field.name not in self.fixed
        ]

    def take(self, given: dict[str, Any]) -> Any:
        """Return the dataclass made of the parsed options, and take those out of ``given``.

        Args:
            given: a command's arguments by name.
        """
        values = {field.name: given.pop(field.name) for field in fields(self.kind) if field.name not in self.fixed}
        lists = {field.name for field in fields(self.kind) if field.default == ()}
        made = {name: tuple(value or ()) if name in lists else value for name, value in values.items()}
        return self.kind(**made, **self.fixed)


def words(hint: object) -> tuple[str, ...]:
    """Return the words that a field of a ``Literal`` type allows; none for a field of another type.

    Args:
        hint: the field's type, without ``Annotated``: ``Literal["a", "b"]``, or that or None.
    """
    if get_origin(hint) is Literal:
        return tuple(word for word in get_args(hint) if word)
    return tuple(word for part in get_args(hint) if get_origin(part) is Literal for word in words(part))


def _parameter(name: str, hint: Any, default: object) -> inspect.Parameter:
    """Return an option as typer reads it: words of a ``Literal`` as text, which the command checks itself."""
    kind, option = get_args(hint)
    assert isinstance(option, Option), f"{name} has no Option"
    if words(kind):
        kind = str | None if types.NoneType in get_args(kind) else str
    if default == ():
        kind, default = list[str] | None, None
    info = (
        typer.Option(*option.names, help=option.about, metavar=option.metavar, rich_help_panel=option.panel)
        if option.names
        else typer.Argument(help=option.about, metavar=option.metavar, show_default=False)
    )
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=typing.Annotated[kind, info]
    )
