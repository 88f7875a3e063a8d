"""What an operation did, and how it fails."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainium_eks.kube.errors import ClusterError


class Change(StrEnum):
    """What became of one resource."""

    CREATED = "created"
    UPDATED = "updated"
    REPLACED = "replaced"
    SAME = "same"
    DELETED = "deleted"


@dataclass(frozen=True)
class Applied:
    """What applying one resource did."""

    change: Change
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """What the real side answered; laid over the simulation's answer."""
    notes: tuple[str, ...] = ()
    """What people should know of it, one line each: "webhooks left out: ..."."""
    not_installed: str = ""
    """Why it could not be installed on this machine, when that is no failure; one line."""


class LocalCloudError(ClusterError):
    """The local cloud cannot do what was asked. The message is for the user, as that of its base."""
