"""Writes ``provider/arguments.py`` and its schema: the args models as TypedDicts for Pulumi's component provider host.

The host's analyzer reads fewer types than type checkers do, so ``components/_dicts.py`` cannot serve it: the analyzer
needs enums in place of literals, one type in place of a union of models, and takes no resources.

python docs/provider_arguments.py          writes both
"""

import functools
import inspect
import json
import re
import subprocess
import sys
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pulumi
import typed_dicts
from pydantic.alias_generators import to_camel

import components
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.config_model import ConfigModel, OutputLike

if typing.TYPE_CHECKING:
    from provider.host import TrainiumProvider

ROOT = Path(__file__).resolve().parent.parent
ARGUMENTS = ROOT / "provider" / "arguments.py"
SCHEMA = ROOT / "tests" / "provider_schema.json"

_HEAD = '''"""The components' args as Pulumi's analyzer reads them. Written by docs/provider_arguments.py."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NotRequired, TypedDict

import pulumi
'''

_LEFT_OUT = (pulumi.Resource, Catalogue)
"""Types of fields that no other language can give. A hosted component is complete once its outputs are known, so that
nobody has to name resources to wait for; own instance types come by the stack's config."""


@dataclass
class _Written:
    """The classes written so far, by name."""

    classes: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, body: str) -> str:
        """Add a class; return its name.

        Raises:
            TypeError: for a name that has another body already: both would be one type in the schema.
        """
        if self.classes.setdefault(name, body) != body:
            raise TypeError(f"two types are called {name}: rename one in the models, or in docs/provider_arguments.py")
        return name


def arguments() -> str:
    """Return the text of ``provider/arguments.py``."""
    written = _Written()
    args = {name: _model(model, written) for name, model in components_with_args()}
    listed = "".join(f'    "{name}": {each},\n' for name, each in args.items())
    table = f'ARGS: Mapping[str, type] = {{\n{listed}}}\n"""Component to its args: all that the provider serves."""\n'
    return "\n\n".join([_HEAD, *written.classes.values(), table])


def components_with_args() -> Iterator[tuple[str, type[ConfigModel]]]:
    """Yield each public component's name and the model of its args."""
    for name in components.__all__:
        if f"{name}Args" in components.__all__:
            yield name, getattr(components, f"{name}Args")
    yield "TrainingStack", StackConfig


def _model(model: type[ConfigModel], written: _Written) -> str:
    items = model.model_fields.items()
    fields = {name: (each.annotation, each.is_required(), each.description) for name, each in items}
    return _typed_dict(model.__name__, model.__doc__ or "", fields, written)


def _union(name: str, models: tuple[type[ConfigModel], ...], written: _Written) -> str:
    """Write one type for a union of models, with the fields of all; the field ``type`` names the model."""
    fields: dict[str, tuple[Any, bool, str | None]] = {}
    kinds = [get_args(each.model_fields["type"].annotation)[0] for each in models]
    for kind, model in zip(kinds, models, strict=True):
        for key, each in model.model_fields.items():
            where = "" if all(key in other.model_fields for other in models) else f"Of ``{kind}``: "
            earlier = fields.get(key, (None, False, ""))[2]
            own = " ".join(f"{where}{each.description}".split()) if each.description else ""
            text = "\n".join(filter(None, [earlier, own]))
            fields[key] = (each.annotation, False, text)
    fields["type"] = (Literal[tuple(kinds)], True, "Which of them.")
    texts = (" ".join((each.__doc__ or "").split()) for each in models)
    about = [f"``{kind}``: {text}" for kind, text in zip(kinds, texts, strict=True)]
    return _typed_dict(name, "\n".join([f"One of {len(models)} kinds.", "", *about]), fields, written)


def _typed_dict(name: str, about: str, fields: Mapping[str, tuple[Any, bool, str | None]], written: _Written) -> str:
    lines = [f"class {name}(TypedDict):", _doc(about), ""]
    for key, (annotation, required, text) in fields.items():
        type_ = _type(annotation, f"{name}Type" if key == "type" else to_camel(key), written, required=required)
        if type_:
            lines.append(f"    {to_camel(key)}: {type_ if required else f'NotRequired[{type_}]'}")
            lines += [_doc(text)] if text else []
    return written.add(name, "\n".join(lines) + "\n")


def _type(annotation: Any, name: str, written: _Written, *, inside: bool = False, required: bool = False) -> str:
    """Return a field's type for the analyzer; empty for one of :data:`_LEFT_OUT`.

    Args:
        annotation: the type in the model.
        name: the field's name in camelCase, after which an enum or a union is called.
        written: takes the classes that the type needs.
        inside: whether the type stands in a sequence or mapping, where the host cannot read enums.
        required: whether the field must be given.
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0], name, written, inside=inside)
    if origin in (typing.Union, types.UnionType):
        arms = tuple(each for each in inner if each is not type(None))
        plain = tuple(each for each in arms if get_origin(each) not in (pulumi.Output, OutputLike))
        if len(plain) > 1:
            return _union(f"{name[0].upper()}{name[1:]}", plain, written)
        type_ = _type(plain[0], name, written, inside=inside)
        # The host cannot read an Output of a whole number (pulumi 3.272: map_input_properties).
        return type_ if plain == arms else f"pulumi.Input[{'float' if type_ == 'int' else type_}]"
    if origin is Literal:
        return "str" if inside else _enum(f"{name[0].upper()}{name[1:]}", inner, written)
    if origin is tuple or (origin and issubclass(origin, Mapping)):
        item = _type(inner[origin is not tuple], name, written, inside=True)
        if required and item in written.classes:
            # The SDK for Go lacks the type of an object that is nowhere optional or an input (CLI 3.260).
            item = f"pulumi.Input[{item}]"
        return item and (f"Sequence[{item}]" if origin is tuple else f"Mapping[str, {item}]")
    if inspect.isclass(annotation) and issubclass(annotation, _LEFT_OUT):
        return ""
    if inspect.isclass(annotation) and issubclass(annotation, ConfigModel):
        return _model(annotation, written)
    if annotation in (Any, str, int, float, bool):
        return "Any" if annotation is Any else str(annotation.__name__)
    raise TypeError(f"{annotation} has no written form yet: add one to docs/provider_arguments.py")


def _enum(name: str, values: tuple[str, ...], written: _Written) -> str:
    """Write an enum with members like ``OnDemand``: from ``ON_DEMAND`` some languages make ``O_N_DEMAND``."""
    spelled = ("".join(part.capitalize() for part in re.split("[-_]", value)) for value in values)
    # `None` is a keyword of Python.
    names = ("Nothing" if each == "None" else each for each in spelled)
    members = "".join(f'    {each} = "{value}"\n' for each, value in zip(names, values, strict=True))
    return written.add(name, f'class {name}(StrEnum):\n    """Allowed values."""\n\n{members}')


def _doc(text: str) -> str:
    lines = [part for line in inspect.cleandoc(text).splitlines() for part in (textwrap.wrap(line, 112) or [""])]
    closing = '\n"""' if len(lines) > 1 else '"""'
    return textwrap.indent("\n".join(['"""' + lines[0], *lines[1:]]) + closing, "    ")


@functools.cache
def served() -> "TrainiumProvider":
    """Return the provider; the analysis of its components takes seconds."""
    from provider.host import TrainiumProvider  # it reads the args, which may not be written yet

    return TrainiumProvider()


def schema() -> str:
    """Return the provider's schema as JSON, as the analyzer of this interpreter's Pulumi makes it."""
    return json.dumps(json.loads(served().schema or ""), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def stale() -> list[Path]:
    """Return the files that are not as they would be written."""
    same = typed_dicts._tree(ARGUMENTS.read_text()) == typed_dicts._tree(arguments())
    return [*([] if same else [ARGUMENTS]), *([] if SCHEMA.read_text() == schema() else [SCHEMA])]


def write() -> None:
    """Write both files."""
    ARGUMENTS.write_text(arguments())
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(ARGUMENTS)], check=False)
    SCHEMA.write_text(schema())


if __name__ == "__main__":
    write()
