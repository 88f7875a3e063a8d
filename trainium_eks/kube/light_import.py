"""The official Kubernetes client without its typed APIs: 850 modules, which take a quarter of a second to import and
which no code here uses. Other code of the process that does use them gets them at the first use."""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_PACKAGES = ("kubernetes", "kubernetes.client", "kubernetes.client.models")
"""Packages whose ``__init__`` imports all their modules; a package after those that it is in."""


class _Package(ModuleType):
    """A package that is there without its ``__init__``, which runs when a name is asked for that is no module of it."""

    def __getattr__(self, name: str) -> Any:
        assert self.__spec__ is not None
        if name != "__all__":
            if name.startswith("__"):
                raise AttributeError(name)
            if importlib.util.find_spec(f"{self.__name__}.{name}"):
                return importlib.import_module(f"{self.__name__}.{name}")
        self.__class__ = ModuleType  # type: ignore[assignment]  # nothing is asked for any more
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def api_client() -> tuple[Any, Any, Any]:
    """Return the client's classes ``ApiClient`` and ``Configuration``, and its module ``kubernetes.config``."""
    for name in _PACKAGES:
        if name in sys.modules:
            continue
        spec = importlib.util.find_spec(name)
        assert spec is not None
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _Package
        sys.modules[name] = package
        above, _, own = name.rpartition(".")
        if above:
            setattr(sys.modules[above], own, package)
    client = sys.modules["kubernetes.client"]
    for module, kind in (("api_client", "ApiClient"), ("configuration", "Configuration")):
        # ``kubernetes.config`` takes both from the package.
        setattr(client, kind, getattr(importlib.import_module(f"kubernetes.client.{module}"), kind))
    return client.ApiClient, client.Configuration, importlib.import_module("kubernetes.config")
