"""Preflight: all questions about a stack's needs, put to its account at the same time."""

import datetime
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from trainium_eks.aws.account import Account, NotChecked, RequestError, WriteAttempted
from trainium_eks.operate.preflight import capacity, identity, keys, quotas, reach, resource_conflicts, versions
from trainium_eks.operate.preflight.finding import Finding, Outcome, Question
from trainium_eks.operate.preflight.needs import Needs
from trainium_eks.operate.preflight.present import Present
from trainium_eks.plan.graph import Graph

SCHEMA_VERSION = 1
"""Version of the JSON form."""

AT_ONCE = 16
"""Questions at the same time. They wait for AWS; nothing is computed."""


@dataclass(frozen=True)
class Preflight:
    """Every question with its answer."""

    stack: str
    region: str
    account: str
    """12 digits; empty where AWS could not be queried."""
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> bool:
        """Return whether an ``up`` would fail, as far as AWS could be queried."""
        return any(each.outcome is Outcome.FAIL for each in self.findings)

    def of(self, *outcomes: Outcome) -> tuple[Finding, ...]:
        """Return the findings with one of the outcomes."""
        return tuple(each for each in self.findings if each.outcome in outcomes)

    @property
    def summary(self) -> dict[str, int]:
        """Return the number of findings by outcome."""
        counted = Counter(each.outcome for each in self.findings)
        return {outcome.value: counted[outcome] for outcome in Outcome}

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "stack": self.stack,
            "region": self.region,
            "account": self.account,
            "failed": self.failed,
            "summary": self.summary,
            "checks": [each.to_json() for each in self.findings],
        }


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def look(graph: Graph, account: Account | None = None, now: Callable[[], datetime.datetime] = _now) -> Preflight:
    """Put all questions that the program gives reason for. No answer of AWS is raised as an error, and nothing is
    written.

    Args:
        graph: a recorded program.
        account: account to query; default: the credentials here, in the program's region.
        now: the time.

    Raises:
        ValueError: the program names no region.
    """
    needs = Needs(graph)
    if not needs.region:
        raise ValueError("the program names no region: neither its provider nor `region` in its config does")
    account = account or Account(needs.region)
    asked = tuple(questions(needs, account, now))
    try:
        number = account.caller().account
    except (NotChecked, RequestError) as error:
        # Without credentials, each question would wait for its own refusal.
        return Preflight(needs.stack, needs.region, "", tuple(_not_checked(each, str(error)) for each in asked))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return Preflight(needs.stack, needs.region, number, tuple(pool.map(_answered, asked)))


def questions(needs: Needs, account: Account, now: Callable[[], datetime.datetime]) -> Iterator[Question]:
    """Yield every question that a program gives reason for.

    Args:
        needs: of the program.
        account: account to query.
        now: the time.
    """
    present = Present(needs, account)
    yield from identity.questions(needs, account)
    yield from quotas.questions(needs, account, present)
    yield from capacity.questions(needs, account, now)
    yield from versions.questions(needs, account, present)
    yield from reach.questions(needs, present)
    yield from resource_conflicts.questions(needs, account, present)
    yield from keys.questions(needs, account, present)


def _answered(question: Question) -> Finding:
    try:
        verdict = question.ask()
    except NotChecked as error:
        return _not_checked(question, str(error))
    except RequestError as error:
        return _not_checked(question, f"AWS answered {error}")
    except WriteAttempted:
        raise
    except Exception as error:  # noqa: BLE001
        # An answer that lacks documented fields costs one line of the table, not the whole command.
        return _not_checked(question, f"AWS' answer was not understood ({type(error).__name__}: {error})")
    return Finding(question.id, question.subject, verdict.outcome, verdict.detail, verdict.remedy)


def _not_checked(question: Question, reason: str) -> Finding:
    return Finding(question.id, question.subject, Outcome.NOT_CHECKED, reason)
