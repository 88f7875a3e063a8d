"""The base of every args and config model, and how a shape error becomes a :class:`Problem`.

Models check shape only (names, types, required or not). Whether a value makes sense is judged by the
``problems`` functions beside them, because those can see more than one field and can say what to do.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic.alias_generators import to_camel

from trainium_eks.model.problems import Problem, join, nearest

S = TypeVar("S", bound="Shape")


class Shape(pydantic.BaseModel):
    """Plain, frozen data. A misspelt name is refused; 3.0 is 3; 2.5 and true are no whole numbers.

    Names are ``snake_case`` in Python and ``camelCase`` in config files; both are taken.
    """

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


def _whole(value: object) -> object:
    if isinstance(value, bool | str):
        raise ValueError("expected a whole number")
    return value


Whole = Annotated[int, pydantic.BeforeValidator(_whole)]
"""An integer. Other languages and YAML send 3 as 3.0, which is taken; 2.5, true and "3" are not."""

Flag = Annotated[bool, pydantic.Field(strict=True)]
"""true or false, and not a word that looks like it."""


class ShapeError(ValueError):
    """The data does not have the model's shape. ``problems`` has one entry for each fault."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.path}: {problem.reason}" for problem in self.problems))


def read(spec: type[S], data: S | Mapping[str, Any], path: str = "") -> S:
    """``data`` as an instance of ``spec``.

    Raises:
        ShapeError: with every fault, each under ``path``.
    """
    if isinstance(data, spec):
        return data
    if not isinstance(data, Mapping):
        raise ShapeError([Problem(path, f"expected an object with the fields of {spec.__name__}, got {_kind(data)}")])
    try:
        return spec.model_validate(data)
    except pydantic.ValidationError as error:
        raise ShapeError(_problems(spec, error, path)) from None


def _problems(spec: type[Shape], error: pydantic.ValidationError, path: str) -> list[Problem]:
    found: dict[str, Problem] = {}
    for fault in error.errors(include_url=False):
        where, owner = _walk(spec, fault["loc"], path)
        kind = fault["type"]
        if kind == "extra_forbidden":
            name = str(fault["loc"][-1])
            takes = sorted(owner.model_fields) if owner else []
            guess = nearest(_snake(name), takes)
            problem = Problem(
                where,
                f"unknown name; allowed here: {', '.join(takes)}" if takes else "unknown name",
                f"did you mean {guess}?" if guess else "remove it",
            )
        elif kind == "missing":
            problem = Problem(where, "required and missing")
        else:
            message = str(fault["msg"]).removeprefix("Value error, ")
            problem = Problem(where, f"{message[0].lower()}{message[1:]}, got {_kind(fault.get('input'))}")
        # A union reports one fault for each of its arms: the first is the plain value's, which people mean.
        found.setdefault(where, problem)
    return list(found.values())


def _walk(spec: type[Shape], loc: tuple[int | str, ...], path: str) -> tuple[str, type[Shape] | None]:
    """The path of a pydantic location in Python spelling, and the model that holds its last step.

    Pydantic's locations also name the arm of a union that was tried (``str``, ``is-instance[Output]``, a
    discriminator's value): those steps say nothing to a reader and are left out.
    """
    owners: tuple[type[Shape], ...] = (spec,)
    holder: type[Shape] | None = spec
    for step in loc:
        if isinstance(step, int):
            path = join(path, step)
            continue
        tagged = [owner for owner in owners if len(owners) > 1 and _tag(owner) == step]
        if tagged:
            owners = tuple(tagged)
            holder = owners[0]
            continue
        holder = owners[0] if owners else None
        field = next((owner.model_fields[_snake(step)] for owner in owners if _snake(step) in owner.model_fields), None)
        if field is not None:
            path = join(path, _snake(step))
            owners = tuple(_models_in(field.annotation))
        elif not _is_union_arm(step):
            path = join(path, step)
            owners = ()
    return path, holder


def _is_union_arm(step: str) -> bool:
    return "[" in step or step in {"str", "int", "bool", "float"} or step.startswith("function-")


def _tag(model: type[Shape]) -> str | None:
    """The value of ``type`` that selects a model in a tagged union."""
    field = model.model_fields.get("type")
    return field.default if field is not None and isinstance(field.default, str) else None


def _models_in(annotation: Any) -> Iterator[type[Shape]]:
    """Every Shape that a field's type mentions: ``tuple[NodeGroup, ...]``, ``Storage | None``, a tagged union."""
    if isinstance(annotation, type) and issubclass(annotation, Shape):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models_in(part)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _kind(value: object) -> str:
    """The value as it may be shown: never the content of an object, which may hold an Output or a secret."""
    if value is None or isinstance(value, str | int | float | bool):
        return repr(value)
    return f"a {type(value).__name__}"
