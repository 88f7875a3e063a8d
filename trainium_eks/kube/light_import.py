"""The official Kubernetes client without its typed APIs (850 modules) and without the packages of its rare paths:
OpenID logins, proxies, dates of typed objects. They take a third of a second to import, and no code here uses them.
Other code of the process that does use them gets them at the first use."""

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

from trainium_eks.late_import import imported_late

_PACKAGES = ("kubernetes", "kubernetes.client", "kubernetes.client.models")
"""Packages whose ``__init__`` imports all their modules; a package after those that it is in."""

_LATE = (
    *("dateutil.parser", "multiprocessing.pool", "oauthlib", "oauthlib.oauth2", "requests.utils", "requests_oauthlib"),
    *("google.auth", "google.auth.transport", "google.auth.transport.requests"),
)
"""Modules of which the client's modules take names in functions alone. Google's logins are none of EKS."""

_LOADING = threading.RLock()
"""Held by the thread that runs an ``__init__``: other threads wait for its names, as with importlib's LazyLoader."""


class _Package(ModuleType):
    """A package that is there without its ``__init__``, which runs when a name is asked for that is no module of it."""

    _is_loading = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(name)
        if not name.startswith("__") and importlib.util.find_spec(f"{self.__name__}.{name}"):
            return importlib.import_module(f"{self.__name__}.{name}")
        with _LOADING:
            if not self._is_loading:
                self._is_loading = True
                spec: Any = self.__spec__
                spec.loader.exec_module(self)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def api_client() -> tuple[Any, Any, Any]:
    """Return the client's classes ``ApiClient`` and ``Configuration``, and its module ``kubernetes.config``."""
    with _LOADING:
        return _import()


def _import() -> tuple[Any, Any, Any]:
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
    with imported_late(*_LATE):
        for module, kind in (("api_client", "ApiClient"), ("configuration", "Configuration")):
            # ``kubernetes.config`` takes both from the package.
            setattr(client, kind, getattr(importlib.import_module(f"kubernetes.client.{module}"), kind))
        return client.ApiClient, client.Configuration, importlib.import_module("kubernetes.config")
