"""Inputs that a resource type takes, by its SDK class.

Pulumi's Python SDKs refuse a wrong keyword and pass a wrong key inside a nested dictionary on to the provider, which
refuses it during ``up`` at the earliest. Here it is refused when the program is recorded.
"""

import importlib
import sys
import threading
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from trainium_eks.model.validation.problems import nearest
from trainium_eks.plan import sdk
from trainium_eks.plan.graph import UNKNOWN

_SCALARS = (str, int, float, bool)

# Registrations come from many threads, and two first uses of one lazily imported SDK module can meet in the middle.
_LOOKING_UP = threading.RLock()


@cache
def resource_class(type_: str) -> type | None:
    """Return the SDK's class of a resource type, or None when no imported SDK has one (custom Kubernetes resources)."""
    package, module, name = [*type_.split(":", 2), "", ""][:3]
    provider = (package, module) == ("pulumi", "providers")
    found = sdk.provider_class(name) if provider else sdk.resource_class(package, module, type_)
    return _load(*found) if found else None


@cache
def input_types(type_: str) -> Mapping[str, type] | None:
    """Return input name (camelCase) to its Python type, or None when the type has no typed class."""
    cls = resource_class(type_)
    if cls is None:
        return None
    module = sys.modules[cls.__module__]
    # `BucketVersioningArgs` is a nested type of Bucket: when the name is taken, a resource's args end in `InitArgs`.
    for name in (f"{cls.__name__}InitArgs", f"{cls.__name__}Args"):
        args = getattr(module, name, None)
        if args is not None and sdk.is_input_type(args):
            return sdk.input_types(args)
    return None


def faults(type_: str, inputs: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each input, nested ones included, that the type does not take."""
    with _LOOKING_UP:
        known = input_types(type_)
        return list(_object_faults(known, inputs, "")) if known is not None else []


def _object_faults(known: Mapping[str, type], value: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        if name in known:
            yield from _value_faults(known[name], item, where)
            continue
        close = nearest(name, known)
        hint = f"did you mean {close!r}?" if close else f"it takes {', '.join(sorted(known)) or 'no input'}"
        yield f"{where}: there is no such input; {hint}"


def _value_faults(typ: Any, value: Any, path: str) -> Iterator[str]:
    if value is None or value == UNKNOWN:
        return
    if not isinstance(value, Mapping | list):
        return
    # One fitting form of an object is enough; a text or number is no form of an object.
    rounds = [list(_form_faults(form, value, path)) for form in forms(typ) if form not in _SCALARS]
    if rounds and all(rounds):
        yield from rounds[0]


def _form_faults(form: Any, value: Any, path: str) -> Iterator[str]:
    origin, arguments = typing.get_origin(form), typing.get_args(form)
    if isinstance(form, type) and sdk.is_input_type(form):
        if isinstance(value, Mapping):
            yield from _object_faults(sdk.input_types(form), value, path)
    elif origin is not None and arguments and issubclass(origin, Mapping):
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from _value_faults(arguments[-1], item, f"{path}.{key}")
    elif origin is not None and arguments and issubclass(origin, Sequence) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _value_faults(arguments[0], item, f"{path}[{index}]")


def forms(typ: Any) -> Iterator[Any]:
    """Yield the members of a union that describe the wire form: all but Outputs, awaitables and None."""
    if typing.get_origin(typ) in (typing.Union, types.UnionType):
        for member in typing.get_args(typ):
            yield from forms(member)
        return
    name = getattr(typing.get_origin(typ) or typ, "__name__", "")
    if name not in ("Awaitable", "Output", "NoneType"):
        yield typ


def _load(module: str, name: str) -> type | None:
    found = getattr(importlib.import_module(module), name, None)
    return found if isinstance(found, type) else None
