"""Distributed training on AWS Trainium (and GPUs) with Amazon EKS, as Pulumi components.

``from trainium_eks import Network`` works in the repository, where the components are the sibling package
``components``, and from the wheel, where they are inside this package. They load on first use: the ``trn``
command must not pay for importing pulumi_aws (0.5 s).
"""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from components import *  # noqa: F403 (the public names are listed there, once)

__version__ = "0.1.0"


def _components() -> ModuleType:
    """Return the package of components that belongs to this package, or raise ImportError for another package of that
    name."""
    here = Path(__file__).resolve().parent
    if (here / "components").is_dir():
        return importlib.import_module("trainium_eks.components")
    module = importlib.import_module("components")
    wanted = here.parent / "components"
    found = [Path(place).resolve() for place in module.__path__]
    if wanted not in found:
        raise ImportError(f"'components' is {found[0]}, not {wanted}: another package of that name comes first")
    return module


def __getattr__(name: str) -> object:
    if name == "__all__":  # `from trainium_eks import *`
        return list(_components().__all__)
    # `from trainium_eks import fetched` asks here before it imports the module of that name.
    if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}") is not None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _components()
    if name not in module.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_components().__all__])
