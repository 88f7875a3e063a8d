"""The outcome of an operation on a resource, and the error of the local cloud."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainium_eks.kube.errors import ClusterError


class Change(StrEnum):
    """The outcome for one resource."""

    CREATED = "created"
    UPDATED = "updated"
    REPLACED = "replaced"
    SAME = "same"
    DELETED = "deleted"
    KEPT = "kept"
    """It has left the program and stays, as its options say."""


@dataclass(frozen=True)
class ApplyResult:
    """The result of applying one resource."""

    change: Change
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Properties that the real side answered; laid over the simulation's answer."""
    notes: tuple[str, ...] = ()
    """Notes for the user, one line each: "webhooks left out: ..."."""
    not_installed: str = ""
    """Why the resource could not be installed on this machine, when that is no failure; one line."""


class LocalCloudError(ClusterError):
    """The error of an operation that the local cloud cannot do. Its message is for the user, as in the base class."""
