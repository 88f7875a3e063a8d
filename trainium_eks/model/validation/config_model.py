"""The base of every args and config model, and the :class:`Problem` for each of pydantic's errors.

Models check names, types and required fields. The ``validate`` functions beside them check values, because they read
more than one field and name a fix.
"""

import ast
import contextlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeVar, get_origin, runtime_checkable

import pydantic
from pydantic.alias_generators import to_camel

from trainium_eks.model.sizing.quantities import quantity
from trainium_eks.model.validation import other_names
from trainium_eks.model.validation.problems import Problem, Value, join, join_key, nearest, snake

S = TypeVar("S", bound="ConfigModel")
T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class OutputLike(Protocol[T_co]):
    """A value that is known only when other resources exist: Pulumi's ``Output``, which this package does not import.

    Never truth-test, compare, hash or print one. Validators read plain values alone.
    """

    def apply(self, func: Callable[[T_co], Any], /) -> Any:
        """Return the result of ``func`` on the value, once it is known."""
        ...


OutputText = str | OutputLike[str]
"""Text that is a value and no structure: it decides neither names nor the number of resources."""


class ConfigModel(pydantic.BaseModel):
    """Plain, frozen data. A misspelt name is refused; 3.0 is 3; 2.5 and true are not whole numbers.

    Names are ``snake_case`` in Python and ``camelCase`` in config files; both are accepted.
    """

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    later_in: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Fields that must be known at once, each with the field that takes an Output in its place, and how."""

    _validated: bool = pydantic.PrivateAttr(default=False)
    """Whether a validator has found nothing to refuse: the data is frozen, so it is not validated again."""

    def unused(self) -> Collection[str]:
        """Return the fields that mean nothing beside the values of others: their own values are not judged."""
        return ()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return pydantic's copy; a copy with other values is not marked as validated."""
        copied = super().model_copy(update=update, deep=deep)
        copied._validated = self._validated and not update
        return copied


def docstrings(model: type[ConfigModel]) -> dict[str, str]:
    """Return the docstring of each field that has one. Pydantic's ``use_attribute_docstrings`` would read the source of
    every model at its import, a third of the import's time."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if not issubclass(each, ConfigModel):
            continue
        with contextlib.suppress(OSError):  # made by a function
            (made,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            assert isinstance(made, ast.ClassDef)
            for field, text in itertools.pairwise(made.body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as about)):
                        found[name] = inspect.cleandoc(about)
    return found


def _whole(value: object) -> object:
    if isinstance(value, bool | str):
        raise ValueError("it must be a whole number")
    return value


def _amount(value: object) -> object:
    text = isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d*)?", value)
    if isinstance(value, bool) or not (text or isinstance(value, int | float)):
        raise ValueError("it must be a number")
    return value


def _word(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


StrictInt = Annotated[int, pydantic.BeforeValidator(_whole)]
"""An integer. Other languages and YAML send 3 as 3.0, which is accepted; 2.5, true and "3" are not."""

LooseFloat = Annotated[float, pydantic.BeforeValidator(_amount)]
"""A number, whole or not. ``pulumi config set --path`` stores 2.5 as text, which is accepted."""

StrictBool = Annotated[bool, pydantic.Field(strict=True)]
"""true or false, and not a word that looks like it."""

LooseStr = Annotated[str, pydantic.BeforeValidator(_word)]
"""Text that may look like a number (a tag's value, an account id): ``pulumi config set --path`` stores digits as a
number and ``true`` as a boolean, even if text is meant."""


def mark_validated(data: S) -> S:
    """Return the same data, marked as validated by the caller, or made of validated data."""
    data._validated = True
    return data


def is_validated(data: ConfigModel) -> bool:
    """Return whether data was marked by :func:`mark_validated`."""
    return data._validated


class ConfigModelError(ValueError):
    """Data that is malformed for its model. ``problems`` has one entry for each fault."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        said = ("; ".join(filter(None, (problem.reason, problem.fix))) for problem in self.problems)
        super().__init__(
            "; ".join(f"{problem.path}: {text}" for problem, text in zip(self.problems, said, strict=True))
        )


def read(spec: type[S], data: S | Mapping[str, Any], path: str = "", extra: Literal["ignore"] | None = None) -> S:
    """Return ``data`` as an instance of ``spec``; ``extra="ignore"`` leaves out names that it does not have.
    ConfigModelError has every fault, each under ``path``."""
    if isinstance(data, spec):
        return data
    if not isinstance(data, Mapping):
        fields = tuple(f"`{field}`" for field in sorted(spec.model_fields))
        reason = f"it must be an object with the fields of {spec.__name__}, not {_kind(data)}"
        raise ConfigModelError([Problem(path, reason, "write names with values", allowed=fields)])
    try:
        return spec.model_validate(data, extra=extra)
    except pydantic.ValidationError as error:
        raise ConfigModelError(_problems(spec, error, path)) from None


def _problems(spec: type[ConfigModel], error: pydantic.ValidationError, path: str) -> list[Problem]:
    found: dict[str, Problem] = {}
    for fault in error.errors(include_url=False):
        where, owner = _walk(spec, fault["loc"], path)
        context = fault.get("ctx", {})
        match fault["type"]:
            case "extra_forbidden":
                problem = _unknown_name(where, owner, str(fault["loc"][-1]), spec)
            case "missing":
                problem = _missing(where, owner, str(fault["loc"][-1]))
            case "literal_error":
                problem = _not_among(where, fault.get("input"), str(context.get("expected", "")), owner)
            case "union_tag_invalid":
                problem = _not_among(join(where, "type"), context.get("tag"), str(context.get("expected_tags", "")))
            case "union_tag_not_found":
                field = next(step for step in reversed(fault["loc"]) if isinstance(step, str))
                problem = _no_tag(where, fault.get("input"), _tags(owner, field))
            case _ if isinstance(fault.get("input"), OutputLike):
                problem = _too_late(where, owner)
            case kind:
                problem = _wrong_type(where, kind, str(fault["msg"]), fault.get("input"))
        # A union reports one fault for each of its arms: the first is the plain value's, which people mean.
        found.setdefault(problem.path, problem)
    # A name of another tool in the place of a required one is one fault.
    meant = {
        join(path.rpartition(".")[0], field)
        for path, each in found.items()
        for field in re.findall(r"(?:name it|give) `(\w+)`", each.fix)
    }
    return [each for path, each in found.items() if path not in meant or not each.reason.startswith(_MISSING)]


_MISSING = "it is required and missing"
EXTRA = "it is an unknown name"
"""How the reason of such a name begins."""


def _too_late(path: str, owner: type[ConfigModel] | None) -> Problem:
    reason = "it is an Output, known only during an update; it decides what is built, so it must be known before"
    field = re.split(r"[.\[]", path)[-1 if path[-1:] != "]" else -2]
    instead = owner.later_in.get(field) if owner else None
    return Problem(path, reason, instead or "give the value itself, or take it from the stack's config")


def _unknown_name(path: str, owner: type[ConfigModel] | None, name: str, spec: type[ConfigModel]) -> Problem:
    if owner is None:
        return Problem(path, EXTRA, "remove it")
    tag = _tag(owner)
    home = f" with `type` {tag}" if tag else ""
    takes = tuple(f"`{field}`" for field in sorted(owner.model_fields))
    if _snake(name, owner) in owner.model_fields:
        return Problem(path, "it is given twice, in two spellings", "keep one of them")
    near = nearest(_snake(name), owner.model_fields, least=0.8)  # `volume_size` is not `min_size`
    fix = _known_as(owner, name) or ("" if tag else _elsewhere(spec, owner, name, path.rpartition(".")[0]))
    if not fix:
        fix = f"did you mean `{near}`?" if near else "remove it" if tag else "remove it, or name one of the allowed"
    return Problem(path, f"{EXTRA}{home}", fix if " " in fix else f"name it `{fix}`", allowed=takes)


def _known_as(model: type[ConfigModel], name: str) -> str:
    return other_names.known_as(_kin(model), model.model_fields, name)


def _kin(model: type[ConfigModel]) -> list[str]:
    return [each.__name__ for each in model.__mro__ if issubclass(each, ConfigModel)]


def _elsewhere(spec: type[ConfigModel], owner: type[ConfigModel], name: str, here: str) -> str:
    """Return the places of a name that belongs to other sections, those in the section ``here`` first; empty without
    one, and for a name that most have."""
    others = dict.fromkeys(each for each in (*sections(owner, here), *sections(spec)) if each[1] is not owner)
    known = [(path, ours) for path, model in others if (ours := _known_as(model, name))]
    if not known or len(known) >= _MANY or len(name) < _TELLING:
        return ""
    places = list(dict.fromkeys(f"`{join(path, ours)}`" for path, ours in known if " " not in ours))
    path, ours = known[0]
    if " " in ours:
        return f"in `{path}`, {ours}" if path else ours
    return f"it belongs into {' or '.join(places[:2])}"


_MANY, _TELLING = 7, 4


def _missing(path: str, owner: type[ConfigModel] | None, name: str) -> Problem:
    field = owner.model_fields.get(_snake(name, owner)) if owner else None
    about = _first_sentence(docstrings(owner).get(_snake(name, owner), "")) if owner else ""
    reason = f"{_MISSING} ({about})" if about else _MISSING
    placeholder = f"<{_snake(name).replace('_', ' ')}>"
    many = field is not None and getattr(field.annotation, "__origin__", None) is tuple
    return Problem(path, reason, good=(placeholder,) if many else placeholder)


def _not_among(path: str, value: object, expected: str, owner: type[ConfigModel] | None = None) -> Problem:
    allowed = tuple(re.findall(r"'([^']*)'", expected)) or (expected,)
    fix = other_names.value_known_as(_kin(owner), path.rpartition(".")[2], value) if owner else ""
    good = nearest(value, allowed) if isinstance(value, str) and not fix else None
    return Problem(path, f"it must be one of the allowed words, not {_kind(value)}", fix, allowed=allowed, good=good)


def _no_tag(path: str, value: object, tags: tuple[str, ...]) -> Problem:
    if not isinstance(value, Mapping):
        reason = f"it must be an object with `type`, not {_kind(value)}"
        return Problem(path, reason, f"write it as {{type: {tags[0]}}}", allowed=tags)
    reason = "it is required and missing: it says which fields follow"
    return Problem(join(path, "type"), reason, allowed=tags, good=next(iter(tags), None))


_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "finite_number": "a whole number",
    "tuple_type": "a list",
    "dict_type": "an object (names with values)",
    "mapping_type": "an object (names with values)",
    "model_type": "an object (names with values)",
    "model_attributes_type": "an object (names with values)",
}

_WORDS_FOR_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _wrong_type(path: str, kind: str, message: str, value: object) -> Problem:
    expected = _EXPECTED.get(kind)
    message = message.removeprefix("Value error, ")
    reason = f"it must be {expected}" if expected else f"{message[0].lower()}{message[1:]}"
    good: Value = None
    fix = ""
    if kind == "string_type" and isinstance(value, int | float):
        fix = f'write it in quotes: "{str(value).lower()}"'
    elif isinstance(value, str) and value.lower() in _WORDS_FOR_FLAGS and expected == "true or false":
        good = _WORDS_FOR_FLAGS[value.lower()]
    elif isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value) and "whole number" in reason:
        good = int(value)
    elif isinstance(value, str) and "whole number" in reason:
        good, fix = _without_unit(path, value)
    elif isinstance(value, float) and "whole number" in reason and abs(value) < 1e15:
        good = round(value)
    elif expected == "a list" and isinstance(value, str) and value:
        fix = f"write it as a list: [{value}]"
    if good is None and not fix:
        fix = f"write {expected}" if expected else "write it so"
    return Problem(path, f"{reason}, not {_kind(value)}", fix, good=good)


_UNITS = {"gib": ("Gi", "GiB"), "minutes": ("m", "min"), "hours": ("h",), "days": ("d", "days")}
"""Last word of a field's name to the units that people write behind its number."""


def _without_unit(path: str, text: str) -> tuple[int | None, str]:
    """Return the number of a text with the field's own unit (``100Gi`` for ``root_volume_gib``); or the line for a
    quantity of Kubernetes (``64Gi`` of memory, in bytes), where a value may still be one to warn of."""
    number = re.fullmatch(r"(\d{1,18}) ?([A-Za-z]+)", text)
    if number and number[2] in _UNITS.get(path.rpartition("_")[2], ()):
        return int(number[1]), ""
    kind = re.search(r"(cpu|memory|ephemeral-storage)\W*$", path)
    amount = quantity(text) if kind else None
    whole = kind is not None and amount is not None and amount == amount.to_integral_value()
    return None, f"write it as {kind[1]}: {amount:f}" if kind and whole else ""


def _walk(spec: type[ConfigModel], loc: tuple[int | str, ...], path: str) -> tuple[str, type[ConfigModel] | None]:
    """Return the path of a pydantic location in Python spelling, and the model with its last step.

    Pydantic's locations also name the arm of a union that was tried (``str``, ``is-instance[Output]``, a
    discriminator's value): those steps mean nothing to a reader and are left out.
    """
    owners: tuple[type[ConfigModel], ...] = (spec,)
    holder: type[ConfigModel] | None = spec
    keyed = False  # whether the next step is a key of a mapping to models
    for step in loc:
        if isinstance(step, int):
            path = join(path, step)
            continue
        tagged = [owner for owner in owners if len(owners) > 1 and _tag(owner) == step]
        if tagged:
            owners = tuple(tagged)
            holder = owners[0]
            continue
        if keyed:
            path, keyed = join_key(path, step), False
            continue
        holder = owners[0] if owners else None
        own = next((_snake(step, owner) for owner in owners if _snake(step, owner) in owner.model_fields), None)
        if own is not None and holder is not None:
            path = join(path, own)
            annotation = holder.model_fields[own].annotation
            owners = tuple(_models_in(annotation))
            keyed = bool(owners) and get_origin(annotation) is dict
        elif not _is_union_arm(step):
            # A name that no model has, or a mapping's own key: shown as it was written.
            path = join_key(path, step) if not owners else join(path, _snake(step))
            owners = ()
    return path, holder


def _is_union_arm(step: str) -> bool:
    return "[" in step or step in {"str", "int", "bool", "float"} or step.startswith("function-")


def _tag(model: type[ConfigModel]) -> str | None:
    """Return the value of ``type`` that selects a model in a tagged union."""
    field = model.model_fields.get("type")
    return field.default if field is not None and isinstance(field.default, str) else None


def _tags(owner: type[ConfigModel] | None, name: str) -> tuple[str, ...]:
    """Return the values of ``type`` that a tagged union's field takes."""
    field = owner.model_fields.get(_snake(name, owner)) if owner else None
    models = _models_in(field.annotation) if field else ()
    return tuple(tag for model in models if (tag := _tag(model)))


def sections(model: type[ConfigModel], path: str = "") -> list[tuple[str, type[ConfigModel]]]:
    """Return the path (``node_groups[]``) and the model of each section, the model itself first, outer ones before
    inner ones."""
    found = [(path, model)]
    for name, field in model.model_fields.items():
        origin = get_origin(field.annotation)
        entry = "[]" if origin is tuple else ".<name>" if origin is dict else ""
        found += (each for inner in _models_in(field.annotation) for each in sections(inner, join(path, name) + entry))
    return sorted(found, key=lambda each: each[0].count("."))


def _models_in(annotation: Any) -> Iterator[type[ConfigModel]]:
    """Yield every ConfigModel in a field's type: ``tuple[NodeGroup, ...]``, ``Storage | None``, a tagged union."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models_in(part)


def _snake(name: str, owner: type[ConfigModel] | None = None) -> str:
    """Return a field's Python name from either spelling; the owner's aliases resolve irregular names
    (``hugepages2Mi``)."""
    by_alias = {field.alias: own for own, field in owner.model_fields.items()} if owner else {}
    return by_alias.get(name) or snake(name).lstrip("_")


def _first_sentence(text: str) -> str:
    return re.split(r"[.;:](?:\s|$)", " ".join(text.replace("``", "").split()))[0]


def _kind(value: object) -> str:
    """Return the value for a message: never the content of an object, which may hold an Output or a secret."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return f"a {type(value).__name__}"
