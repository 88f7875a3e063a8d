"""Writes two files for type checkers: ``components/_dicts.py`` and ``components/__init__.pyi``.

The first has a TypedDict for each args model, so that ``Network("n", {"cidr_block": ...})`` is checked as
``NetworkArgs(cidr_block=...)`` is. The second is the stub of the package: the one list of its public names.

python docs/typed_dicts.py          writes both
"""

import ast
import inspect
import subprocess
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import config_tables
import pulumi

from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.config_model import ConfigModel, OutputLike

ROOT = Path(__file__).resolve().parent.parent
DICTS = ROOT / "components" / "_dicts.py"
STUB = ROOT / "components" / "__init__.pyi"

_DICTS_HEAD = '''"""The args models as TypedDicts. Written by docs/typed_dicts.py (make docs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import pulumi

if TYPE_CHECKING:
{imports}
else:

    def __getattr__(name: str) -> object:
        """A component that is new has its TypedDict once this file is written anew, for which it is imported."""
        if name.endswith("Dict"):
            return Mapping[str, Any]
        raise AttributeError(name)
'''

_OTHERS = (
    ("_args", "ArgumentError"),
    ("_kubeconfig", "eks_kubeconfig"),
    ("_stack_config", "default_tags"),
    ("_stack_config", "read_config"),
    ("_stack_config", "read_output"),
)
"""Module and name of what is public beside components and their args."""

_STUB_HEAD = """# The public names for type checkers. Written by docs/typed_dicts.py (make docs).

"""


def dicts() -> str:
    """The text of ``components/_dicts.py``."""
    models = list(_models())
    known: set[type] = set()
    bodies = [_typed_dict(model, known) for model in models]
    named: dict[str, set[str]] = {}
    for each in known:
        named.setdefault(each.__module__, set()).add(each.__name__)
    imports = [f"    from {module} import {', '.join(sorted(names))}" for module, names in sorted(named.items())]
    return _DICTS_HEAD.replace("{imports}", "\n".join(imports)) + "".join(f"\n\n{body}" for body in bodies)


def stub() -> str:
    """Return the text of ``components/__init__.pyi``."""
    found = list(_public())
    lines = [f"from .{module} import {name} as {name}\n" for module, name in found]
    listed = "".join(f'    "{name}",\n' for name in sorted(name for _, name in found))
    return f"{_STUB_HEAD}{''.join(lines)}\n__all__ = [\n{listed}]\n"


def _public() -> Iterator[tuple[str, str]]:
    """Yield module and name of each public name: the components of public modules, their args, and :data:`_OTHERS`."""
    yield from _OTHERS
    for path in sorted(STUB.parent.glob("[!_]*.py")):
        classes = {each.name: each for each in ast.parse(path.read_text()).body if isinstance(each, ast.ClassDef)}
        made = {name for name, each in classes.items() if "ComponentResource" in map(_last, each.bases)}
        yield from ((path.stem, name) for name in sorted({*made, *(f"{each}Args" for each in made)} & classes.keys()))


def _last(base: ast.expr) -> str:
    return ast.unparse(base).rpartition(".")[2]


def _models() -> Iterator[type[ConfigModel]]:
    """The args of the components, the stack's config, and every model inside or above them; those first."""
    seen: dict[type[ConfigModel], None] = {}

    def visit(model: type[ConfigModel]) -> None:
        for base in _bases(model):
            visit(base)
        for field in model.model_fields.values():
            for inner in config_tables.models(field.annotation):
                if inner not in seen:
                    visit(inner)
        seen.setdefault(model)

    exported = (
        getattr(import_module(f"components.{module}"), name) for module, name in sorted(_public(), key=itemgetter(1))
    )
    for model in (*(each for each in exported if inspect.isclass(each) and issubclass(each, ConfigModel)), StackConfig):
        visit(model)
    return iter(seen)


def _typed_dict(model: type[ConfigModel], known: set[type]) -> str:
    bases = _bases(model)
    inherited = {name for base in bases for name in base.model_fields}
    lines = [f"class {model.__name__}Dict({', '.join(f'{base.__name__}Dict' for base in bases) or 'TypedDict'}):"]
    for name, field in model.model_fields.items():
        written = _written(field.annotation, known)
        # Which arm of a union it is, a dictionary must say.
        required = field.is_required() or (name == "type" and get_origin(field.annotation) is Literal)
        if name not in inherited:
            lines.append(f"    {name}: {written if required else f'NotRequired[{written}]'}")
    return "\n".join(lines if len(lines) > 1 else [*lines, "    pass"]) + "\n"


def _bases(model: type[ConfigModel]) -> list[type[ConfigModel]]:
    """Return the models whose fields it has; none if it changes one of them, which a TypedDict cannot."""
    bases = [base for base in model.__bases__ if issubclass(base, ConfigModel) and base.model_fields]
    for base in bases:
        for name, field in base.model_fields.items():
            own = model.model_fields[name]
            if (own.annotation, own.is_required()) != (field.annotation, field.is_required()):
                return []
    return bases


def _written(annotation: Any, known: set[type]) -> str:
    """A field's type as a caller may give it: any sequence for a tuple, a dictionary for a model."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "None"
    if annotation is Any:
        return "Any"
    if origin is Annotated:
        return _written(arguments[0], known)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(_written(each, known) for each in arguments))
    if origin is Literal:
        return f"Literal[{', '.join(repr(each) for each in arguments)}]".replace("'", '"')
    if origin is tuple:
        return f"Sequence[{_written(arguments[0], known)}]"
    if origin is not None and issubclass(origin, Mapping):
        return f"Mapping[{', '.join(_written(each, known) for each in arguments)}]"
    if origin is pulumi.Output or origin is OutputLike:
        return f"pulumi.Output[{_written(arguments[0], known)}]"
    if origin is not None:
        raise TypeError(f"{annotation} has no written form yet: add one to docs/typed_dicts.py")
    if inspect.isclass(annotation) and issubclass(annotation, ConfigModel):
        known.add(annotation)
        return f"{annotation.__name__} | {annotation.__name__}Dict"
    if annotation.__module__ == "builtins":
        return str(annotation.__name__)
    if annotation.__module__.startswith("pulumi."):
        return f"pulumi.{annotation.__name__}"
    known.add(annotation)
    return str(annotation.__name__)


def write() -> None:
    """Writes both files."""
    DICTS.write_text(dicts())
    STUB.write_text(stub())
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(DICTS)], check=False)


def stale() -> list[Path]:
    """The files that are not what would be written, however they are laid out."""
    pairs = ((DICTS, dicts()), (STUB, stub()))
    return [path for path, text in pairs if not path.is_file() or _tree(path.read_text()) != _tree(text)]


def _tree(text: str) -> str:
    return ast.dump(ast.parse(text))


if __name__ == "__main__":
    write()
