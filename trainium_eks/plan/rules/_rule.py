"""Form of a rule: an id, the reason why it exists, and a check that returns findings."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trainium_eks.model.finding import Finding, Status
from trainium_eks.plan.graph import Graph, Resource

Severity = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Rule:
    """One rule. No finding means that it does not apply, never that it passes.

    A finding's subject is the URN of the resource. The text of a fault has the property path, the value found and the
    wanted value. If the rule was not checked, it has the value that cannot be seen and why; otherwise, the value found.
    """

    id: str
    title: str
    severity: Severity
    source: str
    """Ids of the same requirement elsewhere (Checkov, Trivy, CIS, Security Hub), or the source of the experience."""
    check: Callable[[Graph], Iterable[Finding]]
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
) -> Callable[[Callable[[Graph], Iterator[Finding]]], Rule]:
    """Return a decorator that makes a :class:`Rule` of a function; the docstring is the rule's explanation; ``more``
    are its other fields."""

    return functools.partial(Rule, id_, title, severity, source, **more)


def broken(urn: str, fault: str) -> Finding:
    """Return the finding against a resource that breaks the rule."""
    return Finding(Status.FAIL, urn, fault)


def unseen(resource: Resource, why: str) -> Finding:
    """Return the finding for a resource with a deciding part that cannot be seen here."""
    return Finding(Status.NOT_CHECKED, resource.urn, why)


def judged(resource: Resource, faults: Iterable[str], good: str) -> Iterator[Finding]:
    """Yield one failing finding for each fault; without faults, a passing finding with the message ``good``."""
    found = [broken(resource.urn, fault) for fault in faults]
    yield from found or [Finding(Status.PASS, resource.urn, good)]
