"""What a search finds, and what it could not look at."""

import shlex
from dataclasses import dataclass, field
from typing import Any

from trainium_eks.aws.account import Account
from trainium_eks.model.catalogue import prices
from trainium_eks.operate.cleanup.marks import Marks

FREE = 0.0
"""Price of what costs nothing by itself."""


@dataclass(frozen=True)
class LeftOver:
    """A thing in the account that carries the stack's marks."""

    kind: str
    """``node group``."""
    name: str
    """By which people and AWS know it."""
    why: str
    """Why it is taken for the stack's."""
    hourly_usd: float | None
    """What it costs; None where no price is known."""
    commands: tuple[str, ...]
    """What removes it, in order."""
    names: frozenset[str] = frozenset()
    """By what the state would know it."""
    owners: frozenset[str] = frozenset()
    """Names of what made it: while the state holds one of them, it is in use."""
    goes_with: frozenset[str] = frozenset()
    """Names of what takes it along when it is removed."""
    note: str = ""
    """What a reader must know before removing it."""
    live: bool = False
    """Whether it is a cluster in service."""

    def to_json(self) -> dict[str, Any]:
        """For tools."""
        return {
            "kind": self.kind,
            "name": self.name,
            "why": self.why,
            "hourlyUsd": None if self.hourly_usd is None else round(self.hourly_usd, 4),
            "commands": list(self.commands),
            "note": self.note,
        }


@dataclass(frozen=True)
class NotLookedAt:
    """What could not be searched."""

    what: str
    """``load balancers``."""
    reason: str


@dataclass(frozen=True)
class Where:
    """Where a search looks."""

    account: Account
    marks: Marks

    def command(self, service: str, operation: str, *arguments: str) -> str:
        """A command of the AWS CLI, as it can be typed."""
        return shlex.join(["aws", service, operation, *arguments, "--region", self.account.region])


@dataclass(frozen=True)
class Result:
    """What a search of everything found."""

    found: tuple[LeftOver, ...]
    """Dearest kind first."""
    unseen: tuple[NotLookedAt, ...]
    pending: int = 0
    """Operations that an interrupted update left open."""
    has_state: bool = field(default=True)
    """Whether what the stack still uses could be told from what was left."""
    empty_state: bool = False
    """Whether the state holds nothing in AWS: all that the stack has looks left over."""
    live: tuple[str, ...] = ()
    """Clusters in service that an empty state does not hold. Nothing is proposed for deletion then."""

    @property
    def hourly_usd(self) -> float:
        """What everything whose price is known costs."""
        return sum(each.hourly_usd or 0.0 for each in self.found)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Kinds without a known price, each once."""
        return tuple(dict.fromkeys(each.kind for each in self.found if each.hourly_usd is None))


def monthly(usd: float) -> float:
    """A monthly price by the hour."""
    return usd / prices.HOURS_PER_MONTH
