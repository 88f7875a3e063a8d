"""Form of a rule: an id, the reason why it exists, and a check that returns findings."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trainium_eks.plan.graph import Resource
from trainium_eks.plan.rules._view import View

Severity = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Judgement:
    """Result of a rule for one resource."""

    urn: str
    ok: bool | None
    """Whether the resource keeps the rule; None when the deciding value cannot be seen here."""
    message: str
    """For a fault: the property path, the value found and the wanted value. For None: the value that cannot be seen,
    and the reason. Otherwise: the value found."""


@dataclass(frozen=True)
class Rule:
    """One rule. No finding means that it does not apply, never that it passes."""

    id: str
    title: str
    severity: Severity
    source: str
    """Ids of the same requirement elsewhere (Checkov, Trivy, CIS, Security Hub), or the source of the experience."""
    check: Callable[[View], Iterable[Judgement]]
    beyond_pack: str = ""
    """Requirements of the rule that a policy pack cannot see, and the reason; empty when a pack sees all of them."""
    follows_ids: bool = False
    """Whether it follows ids and names from resource to resource, which the first preview of a stack does not know."""
    reads_computed: bool = False
    """Whether it reads values that the first preview of a stack may not know: an ARN, a policy with ids in it."""

    @property
    def explanation(self) -> str:
        """Reason of the rule and its requirements, in one paragraph."""
        return " ".join((self.check.__doc__ or "").split())


def rule(
    id_: str, title: str, severity: Severity, source: str, **more: Any
) -> Callable[[Callable[[View], Iterator[Judgement]]], Rule]:
    """Return a decorator that makes a :class:`Rule` of a function; the docstring is the rule's explanation; ``more``
    are its other fields."""

    return functools.partial(Rule, id_, title, severity, source, **more)


def unseen(resource: Resource, why: str) -> Judgement:
    """Return the finding for a resource with a deciding part that cannot be seen here."""
    return Judgement(resource.urn, None, why)


def judged(resource: Resource, faults: Iterable[str], good: str) -> Iterator[Judgement]:
    """Yield one failing finding for each fault; without faults, a passing finding with the message ``good``."""
    found = [Judgement(resource.urn, False, fault) for fault in faults]
    yield from found or [Judgement(resource.urn, True, good)]
