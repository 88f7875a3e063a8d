"""What a rule is: an id, why it exists, and a check that says what it met."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from trainium_eks.plan.graph import Resource
from trainium_eks.plan.rules._view import View

Severity = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Finding:
    """What a rule says about one resource."""

    urn: str
    ok: bool | None
    """Whether the resource keeps the rule; None where what decides it cannot be seen here."""
    message: str
    """For a fault: the property path, the value found and what is wanted. For None: what cannot be seen, and why.
    Otherwise: what was seen."""


@dataclass(frozen=True)
class Rule:
    """One rule. No finding means that it does not apply, never that it passes."""

    id: str
    title: str
    """Imperative and short."""
    severity: Severity
    source: str
    """Ids of the same demand elsewhere (Checkov, Trivy, CIS, Security Hub), or where it was learned."""
    check: Callable[[View], Iterable[Finding]]
    beyond_pack: str = ""
    """What the rule asks for that a policy pack cannot see, and why; empty where a pack sees all of it."""
    follows_ids: bool = False
    """Whether it follows ids and names from resource to resource, which the first preview of a stack does not know."""

    @property
    def explanation(self) -> str:
        """Why the rule exists and how it is judged, in one paragraph."""
        return " ".join((self.check.__doc__ or "").split())


def rule(
    id_: str, title: str, severity: Severity, source: str, *, beyond_pack: str = "", follows_ids: bool = False
) -> Callable[[Callable[[View], Iterator[Finding]]], Rule]:
    """Makes a :class:`Rule` of a function over a :class:`View`; its docstring is the rule's explanation."""

    return functools.partial(Rule, id_, title, severity, source, beyond_pack=beyond_pack, follows_ids=follows_ids)


def unseen(resource: Resource, why: str) -> Finding:
    """Return the finding for a resource of which the deciding part cannot be seen here.

    Args:
        resource: the resource.
        why: what cannot be seen, and why.
    """
    return Finding(resource.urn, None, why)


def judged(resource: Resource, faults: Iterable[str], good: str) -> Iterator[Finding]:
    """One failing finding for each fault; without any, one that passes and says what was seen."""
    found = [Finding(resource.urn, False, fault) for fault in faults]
    yield from found or [Finding(resource.urn, True, good)]
