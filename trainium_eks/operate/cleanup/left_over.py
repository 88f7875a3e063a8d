"""Results of a search: leftovers, and the services that could not be searched."""

import shlex
from dataclasses import dataclass, field
from typing import Any

from trainium_eks.aws.account import Account
from trainium_eks.model.catalogue import prices
from trainium_eks.operate.cleanup.marks import Marks

FREE = 0.0
"""Price of a resource that costs nothing by itself."""


@dataclass(frozen=True)
class LeftOver:
    """A resource in the account that carries the stack's marks."""

    kind: str
    """``node group``."""
    name: str
    """Name or id that people and AWS use."""
    why: str
    """Mark by which it is taken for the stack's."""
    hourly_usd: float | None
    """USD an hour; None where no price is known."""
    commands: tuple[str, ...]
    """Commands that remove it, in order."""
    names: frozenset[str] = frozenset()
    """Names and ids under which the state may hold it."""
    owners: frozenset[str] = frozenset()
    """Names of its makers: while the state holds one of them, it is in use."""
    goes_with: frozenset[str] = frozenset()
    """Names of resources that take it along when they are removed."""
    note: str = ""
    """Remark that a reader must know before removing it."""
    live: bool = False
    """Whether it is a cluster in service."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
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
    """A search that failed."""

    what: str
    """``load balancers``."""
    reason: str


@dataclass(frozen=True)
class Where:
    """The account and the marks that a search looks for."""

    account: Account
    marks: Marks

    def command(self, service: str, operation: str, *arguments: str) -> str:
        """Return a command of the AWS CLI, quoted for a shell."""
        return shlex.join(["aws", service, operation, *arguments, "--region", self.account.region])


@dataclass(frozen=True)
class Result:
    """The result of all searches."""

    found: tuple[LeftOver, ...]
    """Leftovers, the dearest kind first."""
    unseen: tuple[NotLookedAt, ...]
    pending: int = 0
    """Operations that an interrupted update left open."""
    has_state: bool = field(default=True)
    """Whether a state was given, by which resources in use are told from leftovers."""
    empty_state: bool = False
    """Whether the state holds nothing in AWS: every resource of the stack then looks left over."""
    live: tuple[str, ...] = ()
    """Clusters in service that an empty state does not hold. No deletion is proposed then."""

    @property
    def hourly_usd(self) -> float:
        """Return the sum of the known prices, in USD an hour."""
        return sum(each.hourly_usd or 0.0 for each in self.found)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the kinds without a known price, each once."""
        return tuple(dict.fromkeys(each.kind for each in self.found if each.hourly_usd is None))


def monthly(usd: float) -> float:
    """Return the hourly price for a price by the month."""
    return usd / prices.HOURS_PER_MONTH
