"""The components' args as types that Pulumi's analyzer reads, made from the models.

The analyzer reads fewer types than type checkers do, so ``components/_dicts.py`` cannot serve it: it needs enums in
place of literals, one type in place of a union of models, and takes no resources.
"""

import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_args, get_origin

import pulumi
from pydantic.alias_generators import to_camel

import components
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.config_model import ConfigModel, OutputLike, docstrings

_LEFT_OUT = (pulumi.Resource, Catalogue)
"""Types of fields that no other language can give. A hosted component is complete once its outputs are known, so that
nobody has to name resources to wait for; own instance types come by the stack's config."""

# Types that type checkers must not read: what they hold is known at run time alone.
_INPUT: Any = pulumi.Input
_SEQUENCE: Any = Sequence
_MAPPING: Any = Mapping

_Fields = Mapping[str, tuple[Any, bool, str | None]]
"""Field to its type in the model, whether it must be given, and its text."""


def components_with_args() -> Iterator[tuple[str, type[ConfigModel]]]:
    """Yield each public component's name and the model of its args."""
    for name in components.__all__:
        if f"{name}Args" in components.__all__:
            yield name, getattr(components, f"{name}Args")
    yield "TrainingStack", StackConfig


class ArgumentTypes:
    """The types of all components' args."""

    def __init__(self) -> None:
        self.texts: dict[str, dict[str, str]] = {}
        """Type to its fields, by their names in Python, and their texts."""
        self._made: dict[str, tuple[object, Any]] = {}
        self.args: dict[str, type] = {name: self._model(model) for name, model in components_with_args()}
        """Component to its args: all that the provider serves."""

    def _add(self, name: str, content: object, made: Any, about: str) -> Any:
        """Return the type of a name, the one made before where it is the same. TypeError: the name has another content
        already, and both would be one type in the schema."""
        made.__doc__ = _wrapped(about)
        known, first = self._made.setdefault(name, (content, made))
        if known != content:
            raise TypeError(f"two types are called {name}: rename one in the models, or in provider/arguments.py")
        return first

    def _model(self, model: type[ConfigModel]) -> Any:
        items, about = model.model_fields.items(), docstrings(model)
        fields = {name: (each.annotation, each.is_required(), about.get(name)) for name, each in items}
        return self._typed_dict(model.__name__, model.__doc__ or "", fields)

    def _union(self, name: str, models: Sequence[type[ConfigModel]]) -> Any:
        """Return one type for a union of models, with the fields of all; the field ``type`` names the model."""
        fields: dict[str, tuple[Any, bool, str | None]] = {}
        kinds = [get_args(each.model_fields["type"].annotation)[0] for each in models]
        for kind, model in zip(kinds, models, strict=True):
            about_fields = docstrings(model)
            for key, each in model.model_fields.items():
                where = "" if all(key in other.model_fields for other in models) else f"Of ``{kind}``: "
                earlier = fields.get(key, (None, False, ""))[2]
                own = " ".join(f"{where}{about_fields[key]}".split()) if key in about_fields else ""
                fields[key] = (each.annotation, False, "\n".join(filter(None, [earlier, own])))
        fields["type"] = (Literal[tuple(kinds)], True, "Which of them.")
        texts = (" ".join((each.__doc__ or "").split()) for each in models)
        about = [f"``{kind}``: {text}" for kind, text in zip(kinds, texts, strict=True)]
        return self._typed_dict(name, "\n".join([f"One of {len(models)} kinds.", "", *about]), fields)

    def _typed_dict(self, name: str, about: str, fields: _Fields) -> Any:
        made: dict[str, Any] = {}
        texts: dict[str, str] = {}
        for key, (annotation, required, text) in fields.items():
            called = f"{name}Type" if key == "type" else to_camel(key)
            type_ = self._type(annotation, f"{called[0].upper()}{called[1:]}", required=required)
            if type_ is not None:
                made[to_camel(key)] = type_ if required else NotRequired[type_]
                texts |= {to_camel(key): _wrapped(text)} if text else {}
        self.texts[name] = texts
        return self._add(name, (made, texts), TypedDict(name, made), about)  # type: ignore[operator]

    def _type(self, annotation: Any, name: str, *, inside: bool = False, required: bool = False) -> Any:
        """Return a field's type for the analyzer; None for one of :data:`_LEFT_OUT`. ``name`` is for an enum or a union
        that the field needs; ``inside`` a sequence or mapping the host cannot read enums."""
        origin, inner = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self._type(inner[0], name, inside=inside)
        if origin in (typing.Union, types.UnionType):
            arms = tuple(each for each in inner if each is not type(None))
            plain = tuple(each for each in arms if get_origin(each) not in (pulumi.Output, OutputLike))
            if len(plain) > 1:
                return self._union(name, plain)
            type_ = self._type(plain[0], name, inside=inside)
            # The host cannot read an Output of a whole number (pulumi 3.272: map_input_properties).
            return type_ if plain == arms else _INPUT[float if type_ is int else type_]
        if origin is Literal:
            return str if inside else self._enum(name, inner)
        if origin is tuple or (origin and issubclass(origin, Mapping)):
            item = self._type(inner[origin is not tuple], name, inside=True)
            if required and getattr(item, "__name__", "") in self._made:
                # The SDK for Go lacks the type of an object that is nowhere optional or an input (CLI 3.260).
                item = _INPUT[item]
            return item and (_SEQUENCE[item] if origin is tuple else _MAPPING[str, item])
        if inspect.isclass(annotation) and issubclass(annotation, _LEFT_OUT):
            return None
        if inspect.isclass(annotation) and issubclass(annotation, ConfigModel):
            return self._model(annotation)
        if annotation in (Any, str, int, float, bool):
            return annotation
        raise TypeError(f"{annotation} has no type for other languages yet: add one to provider/arguments.py")

    def _enum(self, name: str, values: tuple[str, ...]) -> Any:
        """Return an enum with members like ``OnDemand``: from ``ON_DEMAND`` some languages make ``O_N_DEMAND``."""
        spelled = ("".join(part.capitalize() for part in re.split("[-_]", value)) for value in values)
        # `None` is a keyword of Python.
        members = {"Nothing" if each == "None" else each: value for each, value in zip(spelled, values, strict=True)}
        return self._add(name, members, StrEnum(name, members), "Allowed values.")


def _wrapped(text: str) -> str:
    lines = [part for line in inspect.cleandoc(text).splitlines() for part in (textwrap.wrap(line, 112) or [""])]
    return "\n".join(lines)
