"""Annotations that this library writes on jobs and pods."""

from typing import Literal

MACHINE_PATH = "trainium-eks.local/machine-path"
"""Annotation of a pod: a path of the machine that its containers may read even where a directory of their own, such as
``/tmp``, hides it."""

Annotation = Literal[
    "world-size",
    "nodes",
    "image",
    "script",
    "cache-key",
    "capacity-block",
    "capacity-block-ends",
    "capacity-block-group",
    "launcher",
]


def annotation(name: Annotation) -> str:
    """Key of an annotation that ``trn`` writes on its jobs; plain TorchX jobs lack them.

    ``launcher`` is ``torchrun`` or ``gang`` (the standard library's), the others have the values of their names.
    """
    return f"trainium-eks/{name}"
