"""Resources of a stack that the account holds and the stack's state does not, after the operations that an interrupted
update left open. Reads AWS and changes nothing."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from trainium_eks.aws.account import Account, NotCheckedError, RequestError
from trainium_eks.aws.tags import tags_of
from trainium_eks.model.finding import Finding, Report, not_checked
from trainium_eks.operate.cleanup import compute, kinds, recovery, services
from trainium_eks.operate.cleanup.left_over import LeftOver, Marks, Where
from trainium_eks.operate.cleanup.state import StackState

Search = Callable[[Where], Iterable[LeftOver]]

SEARCHES: tuple[tuple[str, Search], ...] = (
    ("node groups, instances and clusters", compute.search),
    ("SageMaker endpoints", compute.endpoints),
    ("file systems", services.file_systems),
    ("load balancers", services.load_balancers),
    *((kind.plural, partial(kinds.search, kind=kind)) for kind in kinds.KINDS),
    ("log groups", services.log_groups),
    ("what else has the stack's tags", services.tagged),
    ("budgets", services.budgets),
    ("roles", services.roles),
    ("instance profiles", services.instance_profiles),
)
"""Searches in the order shown: the dearest resources first, and resources held by others last."""

UNSEEN = "not looked at"
"""Section of the searches that failed."""

AT_A_TIME = 8
"""Searches at the same time. More would be throttled."""


def look(account: Account, marks: Marks, state: StackState | None) -> Report:
    """Search the account, and report the open operations, the leftovers and the searches that failed.

    Without a state everything with the marks is listed. From a state that holds nothing in AWS, every resource of the
    stack looks left over: no deletion is proposed then while a cluster of its name is in service.
    """
    advice = recovery.advise(account, state) if state else []
    found, unseen = _search(account, marks)
    # What is to be imported is no leftover.
    held = (state.names if state else frozenset()) | {each.id for each in advice if each.id}
    lost = left_over(found, held)
    empty = state is not None and state.is_empty
    live = [each.name for each in lost if empty and each.live]
    facts = {
        "subject": marks.stack or marks.cluster,
        "region": account.region,
        "comparedWithState": state is not None,
        "stateIsEmpty": empty,
        "liveClusters": live,
        "hourlyUsd": round(sum(each.hourly_usd or 0.0 for each in lost), 4),
        "unknownPrices": list(dict.fromkeys(each.kind for each in lost if each.hourly_usd is None)),
        "recovery": recovery.commands(marks.stack, advice),
    }
    findings = (*(each.finding() for each in advice), *(each.finding(removable=not live) for each in lost), *unseen)
    return Report(facts, findings)


def _search(account: Account, marks: Marks) -> tuple[list[LeftOver], list[Finding]]:
    """Run all searches, and return the resources with the marks and a finding for each search that failed."""
    unseen = []
    if marks.stack:
        try:
            vpcs = account.pages("ec2", "describe_vpcs", "Vpcs")
            # VPCs that the stack only uses have no such tags.
            marks = marks.with_vpcs(each["VpcId"] for each in vpcs if marks.why("", tags_of(each.get("Tags", ()))))
        except (NotCheckedError, RequestError) as error:
            unseen.append(_unseen("what is in the stack's VPC and has no mark of its own", error))

    def ask(what: str, search: Search) -> list[LeftOver] | Finding:
        try:
            return list(search(Where(account, marks)))
        except (NotCheckedError, RequestError) as error:
            return _unseen(what, error)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(ask, *zip(*SEARCHES, strict=True)))
    found = [each for result in results if not isinstance(result, Finding) for each in result]
    return found, [*unseen, *(each for each in results if isinstance(each, Finding))]


def _unseen(what: str, error: Exception) -> Finding:
    return not_checked(f"{UNSEEN}/{what}", what, str(error))


def left_over(found: Iterable[LeftOver], in_state: frozenset[str]) -> list[LeftOver]:
    """Return the resources that neither the state nor a resource in the state owns, without those removed along with
    another."""
    held = in_state - {""}
    lost = [each for each in found if not held & {*each.names, *each.owners, *each.goes_with}]
    names = {name for each in lost for name in each.names if name}
    return [each for each in lost if not names & set(each.goes_with) - set(each.names)]
