"""Pulumi components that make an AWS account ready for distributed training with Amazon EKS.

Each loads on first use: a program with one component does not wait for the SDK modules of all others (1 s).
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

# Their list is the stub of this package, which `make docs` writes from the modules.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULE: Mapping[str, str] = {
    name: module
    for line in _STUB.splitlines()
    if line.startswith("from .")
    for _, module, _, name, *_ in (line.split(),)
}

__all__ = sorted(_MODULE)  # noqa: PLE0605 - type checkers read it in the stub


def __getattr__(name: str) -> object:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
