"""Imports without modules that the imported code needs in rare functions alone; those are imported when one is called.

For packages of others, which import at their top: code of this package imports what it needs, and splits modules."""

import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """A module, or a name of one, that is imported when a function calls it or takes a name from it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        return _Later(path) if sys.modules.get(self.__name__) is self else pkgutil.resolve_name(path)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return pkgutil.resolve_name(self.__name__)(*args, **options)

    def __or__(self, other: object) -> object:
        return object  # a union in the annotation of a function

    __ror__ = __or__


@contextmanager
def imported_late(*names: str) -> Iterator[None]:
    """Give the imports inside stand-ins of these modules, where they are not loaded. A name is for calls, and for what
    functions take from it: no base class, and no value. A package goes before modules of it."""
    absent = {
        name: _Later(name)
        for name in names
        if name not in sys.modules and not any(name.startswith(f"{each}.") for each in names if each in sys.modules)
    }
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
