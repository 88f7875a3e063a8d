"""Limits that a field declares in its type, checked in one place for the stack's config and for components' args.

``retention_days: Annotated[StrictInt, Bounds(1, 365, "days")]`` is all that a section declares: :func:`of_places`
refuses other values, ``docs/config.md`` shows the limit, and the tests try both sides of it. A list of plain values
takes each value once, without any declaration.
"""

import functools
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from trainium_eks.model.validation.config_model import ConfigModel
from trainium_eks.model.validation.problems import Problem, join, join_key, nearest_number


@dataclass(frozen=True)
class Bounds:
    """Bounds of a number, both included."""

    low: float
    high: float = math.inf
    unit: str = ""
    """``days``, ``GiB``; empty for a plain number."""
    why: str = ""
    """Source of the bounds, as a clause (``EKS updates at most 100 nodes at a time``)."""
    above: bool = False
    """True excludes ``low`` itself."""

    @property
    def allowed(self) -> str:
        """The bounds in words: ``1 to 365 days``, ``0 or more``, ``more than 0 minutes``."""
        unit = f" {self.unit}" if self.unit else ""
        if self.above:
            return f"more than {_number(self.low)}{unit}"
        if self.high == math.inf:
            return f"{_number(self.low)}{unit.removesuffix('s') if self.low == 1 else unit} or more"
        return f"{_number(self.low)} to {_number(self.high)}{unit}"

    def problem(self, path: str, value: float) -> Problem | None:
        """Return the problem of the number, or None; infinity and nan are within no bounds."""
        within = self.low < value if self.above else self.low <= value
        if within and value <= self.high and value != math.inf:
            return None
        good = None if self.above or not math.isfinite(value) else min(max(value, self.low), self.high)
        reason = f"it must be {self.allowed}{f': {self.why}' if self.why else ''}"
        fix = "" if good is not None else f"give {self.allowed}"
        return Problem(path, reason, fix, value=value, allowed=(self.allowed,), good=_whole(good))


@dataclass(frozen=True)
class Choices:
    """Numbers that a service takes, and no others."""

    values: tuple[int, ...]
    unit: str
    who: str
    """Service that offers the choices, with its verb: ``CloudWatch Logs offers``."""

    @property
    def allowed(self) -> str:
        """The choices in words."""
        return f"{', '.join(map(str, self.values))} {self.unit}"

    def problem(self, path: str, value: int) -> Problem | None:
        """Return the problem of the number, with the nearest choice, or None."""
        if value in self.values:
            return None
        allowed = tuple(map(str, self.values))
        reason = f"it is none of the numbers of {self.unit} that {self.who}"
        return Problem(path, reason, value=value, allowed=allowed, good=nearest_number(value, self.values))


@dataclass(frozen=True)
class Entries:
    """Bounds of the number of a list's entries, both included."""

    low: int
    high: float
    why: str
    """Source of the bounds, as a clause."""
    fix: str
    """Remedy for a list that is too short or too long."""

    @property
    def allowed(self) -> str:
        """The bounds in words: ``1 to 10 entries``."""
        return Bounds(self.low, self.high, "entries").allowed if self.low else f"at most {self.high:g} entries"

    def problem(self, path: str, value: tuple[object, ...]) -> Problem | None:
        """Return the problems of the length of the list."""
        if self.low <= len(value) <= self.high:
            return None
        reason = f"the list has {len(value)} entries, and it must have {self.allowed}: {self.why}"
        return Problem(path, reason, self.fix, allowed=(self.allowed,))


@dataclass(frozen=True)
class Length:
    """Bound of the number of a text's characters."""

    high: int
    who: str
    """Service with the bound: ``FSx``."""

    @property
    def allowed(self) -> str:
        """The bound in words."""
        return f"at most {self.high} characters"

    def problem(self, path: str, value: str) -> Problem | None:
        """Return the problems of the length of the text."""
        if len(value) <= self.high:
            return None
        reason = f"the text has {len(value)} characters, and {self.who} takes {self.allowed}"
        return Problem(path, reason, f"shorten it by {len(value) - self.high}", allowed=(self.allowed,))


@dataclass(frozen=True)
class Form:
    """Form of a text that one function validates: an id, an ARN, a region's name."""

    judge: Callable[[str, str], Sequence[Problem]]
    """A function of :mod:`trainium_eks.model.validation.formats`, called with path and value."""
    allowed: str = ""
    """The form in words, for documents; empty where the field's description has it."""

    def problem(self, path: str, value: str) -> Problem | None:
        """Return the first problem of the text, or None."""
        return next(iter(self.judge(path, value)), None)


Limit = Bounds | Choices | Entries | Form | Length

OUTPUT_AS_TEXT = ("Calling __str__ on an Output", "Calling [toString] on an [Output")
"""How a text begins that Pulumi's SDKs for Python and Node give for an Output in an f-string or a template (pulumi,
``sdk/python/lib/pulumi/output.py`` and ``sdk/nodejs/output.ts``)."""

OUTPUT_FAULT = "it holds an Output that was made text (an f-string, `+` or `str()`), which says nothing of its value"
OUTPUT_FIX = 'give the Output itself, or a text around it: pulumi.Output.format("{0}-data", value)'


@dataclass(frozen=True)
class LimitedValue:
    """A field's value, or an entry of it, and the limits that its type declares."""

    path: str
    value: Any
    limits: tuple[Limit, ...] = ()


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in a value with its path: of models, mappings and lists, free-form values and keys too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, ConfigModel):
        for name in vars(value):
            yield from texts(getattr(value, name), join(path, name))
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield path, str(key)
            yield from texts(below, join_key(path, str(key)))
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            yield from texts(entry, join(path, index))


def outputs_as_text(value: Any) -> list[Problem]:
    """Return the texts of a value that were made from an Output without waiting for it."""
    return [
        Problem(path, OUTPUT_FAULT, OUTPUT_FIX)
        for path, text in texts(value)
        if any(each in text for each in OUTPUT_AS_TEXT)
    ]


def of_places(places: Iterable[LimitedValue]) -> list[Problem]:
    """Return every value that is outside of its declared limits, and every repeated entry of a list."""
    return [problem for place in places for problem in _of_place(place)]


def walk(data: ConfigModel, path: str = "") -> Iterator[LimitedValue]:
    """Yield every value that the models declare, outer ones first. Free-form mappings (chart values) are left out, and
    so are fields without a value (malformed ones, too) and fields that other fields make useless."""
    for name in (each for each in type(data).model_fields if each in vars(data) and each not in data.unused()):
        yield from walk_field(type(data), name, getattr(data, name), path)


def walk_field(spec: type[ConfigModel], name: str, value: Any, path: str = "") -> Iterator[LimitedValue]:
    """Yield the value of one field of a model, and the values in it."""
    yield from _places(value, join(path, name), *declared(spec)[name])


@functools.cache
def declared(spec: type[ConfigModel]) -> Mapping[str, tuple[tuple[Limit, ...], Any]]:
    """Return the limits and the type of each field of a model."""
    return {
        name: ((*_limits(field.metadata), *limits_in(field.annotation)), field.annotation)
        for name, field in spec.model_fields.items()
    }


def in_words(spec: type[ConfigModel], name: str) -> str:
    """Return a field's limits as sentences behind its description; empty without limits."""
    own, annotation = declared(spec)[name]
    return "".join(f" Allowed: {each.allowed}." for each in (*own, *entry_of(annotation)[0]) if each.allowed)


def limits_in(annotation: Any) -> tuple[Limit, ...]:
    """Return the limits of a type: of ``Annotated`` itself, or of an arm of a union (``Days | None``)."""
    if get_origin(annotation) is Annotated:
        return _limits(get_args(annotation)[1:])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(limit for arm in get_args(annotation) for limit in limits_in(arm))
    return ()


def entry_of(annotation: Any) -> tuple[tuple[Limit, ...], Any]:
    """Return the limits and the type of a list's entries, or of a mapping's values."""
    kinds = [each for each in (annotation, *get_args(annotation)) if get_origin(each) in (tuple, dict)]
    if not kinds:
        return (), None
    inner = get_args(kinds[0])[0 if get_origin(kinds[0]) is tuple else 1]
    return limits_in(inner), inner


def _limits(metadata: Iterable[object]) -> tuple[Limit, ...]:
    return tuple(each for each in metadata if isinstance(each, Limit))


def _places(value: Any, path: str, limits: tuple[Limit, ...], annotation: Any) -> Iterator[LimitedValue]:
    if isinstance(value, ConfigModel):
        yield from walk(value, path)
        return
    yield LimitedValue(path, value, limits)
    of_entries, inner = entry_of(annotation)
    if isinstance(value, tuple):
        for index, entry in enumerate(value):
            yield from _places(entry, join(path, index), of_entries, inner)
    elif isinstance(value, Mapping) and inner is not Any:
        for key, entry in value.items():
            yield from _places(entry, join_key(path, key), of_entries, inner)


def _of_place(place: LimitedValue) -> Iterator[Problem]:
    value = place.value
    if isinstance(value, int | float | str | tuple):  # an Output is known later, and None is no value
        for limit in place.limits:
            found = limit.problem(place.path, value)  # type: ignore[arg-type]
            if found is not None:
                yield found
    if isinstance(value, tuple):
        yield from _repeated(place.path, value)


def _repeated(path: str, entries: tuple[object, ...]) -> Iterator[Problem]:
    first: dict[object, int] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, str | int):
            continue
        if entry in first:
            reason = f"it is in the list already, as entry {first[entry] + 1}"
            yield Problem(join(path, index), reason, "name each once", value=entry)
        first.setdefault(entry, index)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _whole(value: float | None) -> int | float | None:
    return int(value) if value is not None and value == int(value) else value
