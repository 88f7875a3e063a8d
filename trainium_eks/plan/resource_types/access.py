"""Conditions of concerns about access: rights that a change adds, and addresses that it lets in.

Each condition takes the old and the new value, and returns a text that names the additions; empty for none.
"""

import ipaddress
import json
from collections.abc import Iterable, Mapping
from typing import Any

from trainium_eks.model.validation.parsing import parse_json
from trainium_eks.plan.resource_types.resource_type import Concern

Allowance = tuple[str, str, str]
"""Action, resource, and the statement's principals and conditions as JSON text."""

MOST_NAMED = 4
"""Most actions or ranges that are named."""


def allows_more(before: Any, after: Any) -> str:
    """Return the actions that the new policy (JSON text) allows and the old one does not."""
    return _named(_statements(after)[0] - _statements(before)[0])


def denies_less(before: Any, after: Any) -> str:
    """Return the actions that the old policy (JSON text) denies and the new one does not."""
    return _named(_statements(before)[1] - _statements(after)[1])


POLICY = (
    Concern("policy", allows_more, "allows more", new=True),
    Concern("policy", denies_less, "denies less"),
)
"""The concerns of a type with a policy's JSON text as its input ``policy``."""


def _named(found: Iterable[Allowance]) -> str:
    return _listed(sorted({f"{what} on {where}" for what, where, _ in found}))


def _statements(policy: Any) -> tuple[set[Allowance], set[Allowance]]:
    """Return the allowed and the denied actions of a policy's statements; two empty sets for any other text."""
    try:
        read = parse_json(policy) if isinstance(policy, str) else {}
    except ValueError:
        read = {}
    allowed: set[Allowance] = set()
    denied: set[Allowance] = set()
    for statement in _listed_of(read.get("Statement") if isinstance(read, Mapping) else ()):
        if not isinstance(statement, Mapping):
            continue
        rest = {key: statement[key] for key in ("Principal", "NotPrincipal", "Condition") if key in statement}
        said = json.dumps(rest, sort_keys=True)
        actions = [str(each) for each in _listed_of(statement.get("Action"))]
        actions += [f"everything but {each}" for each in _listed_of(statement.get("NotAction"))]
        where = _listed_of(statement.get("Resource") or statement.get("NotResource") or "itself")
        found = denied if statement.get("Effect") == "Deny" else allowed
        found.update((action, str(each), said) for action in actions for each in where)
    return allowed, denied


def lists_more(before: Any, after: Any) -> str:
    """Return the entries of a list (subjects, groups, rules) that were not in it."""
    old = {json.dumps(each, sort_keys=True) for each in _listed_of(before)}
    new = (each if isinstance(each, str) else json.dumps(each, sort_keys=True) for each in _listed_of(after))
    return _listed(sorted({each for each in new if each not in old and json.dumps(each) not in old}))


def _listed_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _listed(items: list[str]) -> str:
    rest = len(items) - MOST_NAMED
    return "; ".join(items[:MOST_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


# --- addresses ----------------------------------------------------------------------------------------------------


def reached_from_more(before: Any, after: Any) -> str:
    """Return the ranges, one or a list, that no earlier range covers."""
    return _listed(_uncovered(_listed_of(after), _listed_of(before)))


def reached_from_outside(before: Any, after: Any) -> str:
    """Return the ranges that no earlier range covers. A new rule for private ranges connects the parts of an
    environment, and is left out."""
    found = _uncovered(_listed_of(after), _listed_of(before))
    return _listed([each for each in found if before is not None or not _private(each)])


def rules_reached_from_outside(before: Any, after: Any) -> str:
    """Return the same of rules that are written into a security group."""
    return reached_from_outside(None if before is None else _ranges(before), _ranges(after))


def _ranges(rules: Any) -> list[Any]:
    found = [each for each in _listed_of(rules) if isinstance(each, Mapping)]
    return [one for each in found for key in ("cidrBlocks", "ipv6CidrBlocks") for one in _listed_of(each.get(key))]


def _uncovered(new: Iterable[Any], old: Iterable[Any]) -> list[str]:
    """Return the ranges that no earlier range covers; an unreadable range counts as new."""
    known = [network for each in old if (network := _network(each)) is not None]
    found = []
    for each in new:
        network = _network(each)
        inside = network is not None and any(
            network.version == one.version and network.subnet_of(one)  # type: ignore[arg-type]
            for one in known
        )
        if not inside and each not in found:
            found.append(each)
    return [str(each) for each in found]


def _network(text: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(str(text), strict=False)
    except ValueError:
        return None


def _private(text: str) -> bool:
    network = _network(text)
    return network is not None and network.is_private
