"""A resource that a stack left in the account, and the place where the searches look for such resources."""

import shlex
from dataclasses import dataclass

from trainium_eks.aws.account import Account
from trainium_eks.model.catalogue import prices
from trainium_eks.model.finding import Finding, Status
from trainium_eks.operate.cleanup.stack_tags import Marks

FREE = 0.0
"""Price of a resource that costs nothing by itself."""


@dataclass(frozen=True)
class LeftOver:
    """A resource in the account that carries the stack's marks."""

    kind: str
    name: str
    why: str
    """Mark by which it counts as the stack's."""
    hourly_usd: float | None
    """USD an hour; None where no price is known."""
    commands: tuple[str, ...]
    """Commands that remove it, in order."""
    names: tuple[str, ...] = ()
    """Names and ids under which the state may hold it."""
    owners: tuple[str, ...] = ()
    """Names of its makers: while the state holds one of them, it is in use."""
    goes_with: tuple[str, ...] = ()
    """Names of resources that take it along when they are removed."""
    note: str = ""
    """Remark that a reader must know before removing it."""
    live: bool = False
    """Whether it is a cluster in service."""
    race: str = ""
    """Why AWS leaves it although its maker was deleted in order; empty for no known race."""

    def finding(self, *, removable: bool) -> Finding:
        """Return the leftover as a finding: its price, its mark and its note, with the commands as data."""
        text = "; ".join(part for part in (self._price(), self.why, self.race, self.note) if part)
        data = {
            "kind": self.kind,
            "name": self.name,
            "why": self.why,
            "hourlyUsd": None if self.hourly_usd is None else round(self.hourly_usd, 4),
            "commands": list(self.commands) if removable else [],
            "note": self.note,
            "race": self.race,
        }
        return Finding(Status.FAIL, self.name, text, id=f"{self.kind}/{self.name}", data=data)

    def _price(self) -> str:
        if self.hourly_usd is None:
            return "price not known"
        if self.hourly_usd >= 0.01:
            return f"${self.hourly_usd:,.2f} an hour"
        return f"${self.hourly_usd * prices.HOURS_PER_MONTH:,.2f} a month" if self.hourly_usd else "free"


@dataclass(frozen=True)
class Where:
    """The account and the marks that a search looks for."""

    account: Account
    marks: Marks

    def command(self, service: str, *words: str) -> str:
        """Return a command of the AWS CLI, quoted for a shell."""
        return shlex.join(["aws", service, *words, "--region", self.account.region])


def monthly(usd: float) -> float:
    """Return the hourly price for a price by the month."""
    return usd / prices.HOURS_PER_MONTH
