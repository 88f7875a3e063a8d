"""Preflight: all questions about a stack's needs, put to its account at the same time."""

import datetime
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from trainium_eks.aws.account import Account, NotCheckedError, RequestError, WriteAttemptedError
from trainium_eks.model.finding import Finding, Report, not_checked
from trainium_eks.operate.preflight import capacity, identity, quotas, reach, resource_conflicts, versions
from trainium_eks.operate.preflight.existing_resources import AccountState
from trainium_eks.operate.preflight.needs import Needs
from trainium_eks.operate.preflight.question import Question
from trainium_eks.plan.graph import Graph

AT_ONCE = 16
"""Questions at the same time. They wait for AWS; nothing is computed."""


def look(
    graph: Graph,
    account: Account | None = None,
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
) -> Report:
    """Put all questions that the program gives reason for; the fact ``account`` is empty where AWS could not be asked.

    No answer of AWS is raised as an error, and nothing is written. ValueError: the program names no region.
    """
    needs = Needs(graph)
    if not needs.region:
        raise ValueError("the program names no region: neither its provider nor `region` in its config does")
    account = account or Account(needs.region)
    asked = tuple(questions(needs, account, now))
    facts = {"stack": needs.stack, "region": needs.region, "account": ""}
    try:
        facts["account"] = account.caller().account
    except (NotCheckedError, RequestError) as error:
        # Without credentials, each question would wait for its own refusal.
        return Report(facts, tuple(not_checked(each.id, each.subject, str(error)) for each in asked))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return Report(facts, tuple(pool.map(answered, asked)))


def questions(needs: Needs, account: Account, now: Callable[[], datetime.datetime]) -> Iterator[Question]:
    """Yield every question that a program gives reason for."""
    present = AccountState(needs, account)
    yield from identity.questions(present)
    yield from quotas.questions(present)
    yield from capacity.questions(present, now)
    yield from versions.questions(present)
    yield from reach.questions(present)
    yield from resource_conflicts.questions(present)


def answered(question: Question) -> Finding:
    """Return the question with its answer; NOT_CHECKED where AWS could not be asked."""
    try:
        answer = question.ask()
    except NotCheckedError as error:
        return not_checked(question.id, question.subject, str(error))
    except RequestError as error:
        return not_checked(question.id, question.subject, f"AWS answered {error}")
    except WriteAttemptedError:
        raise
    except Exception as error:  # noqa: BLE001
        # An answer that lacks documented fields costs one line of the table, not the whole command.
        reason = f"AWS' answer was not understood ({type(error).__name__}: {error})"
        return not_checked(question.id, question.subject, reason)
    return replace(answer, id=question.id, subject=question.subject)
