"""Search for resources of a stack that the account holds and the stack's state does not. Reads AWS and changes
nothing."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from trainium_eks.aws.account import Account, NotChecked, RequestError
from trainium_eks.operate.cleanup import compute, identity, network, sagemaker, storage
from trainium_eks.operate.cleanup.left_over import LeftOver, NotLookedAt, Result, Where
from trainium_eks.operate.cleanup.marks import Marks
from trainium_eks.operate.cleanup.state import StackState

Search = Callable[[Where], Iterable[LeftOver]]

SEARCHES: tuple[tuple[str, Search], ...] = (
    ("node groups, instances and clusters", compute.search),
    ("SageMaker endpoints", sagemaker.endpoints),
    ("file systems", storage.file_systems),
    ("load balancers", network.load_balancers),
    ("volumes", storage.volumes),
    ("backups", storage.backups),
    *((kind.plural, partial(network.search, kind=kind)) for kind in network.KINDS),
    ("log groups", storage.log_groups),
    ("what else has the stack's tags", identity.tagged),
    ("budgets", identity.budgets),
    ("key aliases", identity.aliases),
    ("roles", identity.roles),
    ("instance profiles", identity.instance_profiles),
)
"""Searches in the order shown: the dearest resources first, and resources held by others last."""

AT_A_TIME = 8
"""Searches at the same time. More would be throttled."""


def look(account: Account, marks: Marks, state: StackState | None) -> Result:
    """Search the account, and return the leftovers.

    Args:
        account: with the region of the stack.
        marks: of the stack, or of a cluster.
        state: the stack's; None where it is not known, and everything with its marks is listed.
    """
    unseen: list[NotLookedAt] = []
    if marks.stack:
        try:
            marks = marks.within(network.own_vpcs(account, marks))
        except (NotChecked, RequestError) as error:
            unseen.append(NotLookedAt("what is in the stack's VPC and has no mark of its own", str(error)))
    where = Where(account, marks)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        answers = [pool.submit(_searched, where, what, search) for what, search in SEARCHES]
        results = [each.result() for each in answers]
    unseen += [each for each in results if isinstance(each, NotLookedAt)]
    found = [each for result in results if not isinstance(result, NotLookedAt) for each in result]
    lost = left_over(found, state.names if state else frozenset())
    live = tuple(each.name for each in lost if each.live) if state is not None and state.is_empty else ()
    if live:
        lost = [replace(each, commands=()) for each in lost]
    return Result(
        tuple(lost),
        tuple(unseen),
        len(state.pending) if state else 0,
        has_state=state is not None,
        empty_state=state is not None and state.is_empty,
        live=live,
    )


def _searched(where: Where, what: str, search: Search) -> list[LeftOver] | NotLookedAt:
    try:
        return list(search(where))
    except (NotChecked, RequestError) as error:
        return NotLookedAt(what, str(error))


def left_over(found: Iterable[LeftOver], in_state: frozenset[str]) -> list[LeftOver]:
    """Return the resources that neither the state nor a resource in the state owns, without those removed along with
    another."""
    marked = list(found)
    lost = [each for each in marked if not in_state & (each.names | each.owners | each.goes_with)]
    names = frozenset(name for each in lost for name in each.names)
    return [each for each in lost if not names & (each.goes_with - each.names)]
