"""Values that a plan cannot see: they are encrypted in the stack's file (``secure:``), and ``pulumi up`` alone decrypts
them.

:data:`UNSEEN` replaces them. It is a placeholder, so it is not validated, and no fix overwrites it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainium_eks.model.validation.problems import Problem, config_path, steps_of

UNSEEN = "[secret]"
"""Placeholder of an encrypted value."""

_DECIDES = re.compile(
    r"region|network\.(cidr_block|zone_ids)|existing_network\b|file_system\.zone_id"
    r"|cluster\.(kubernetes_version|service_cidr_block|(system|cpu)_nodes\.instance_type)"
    r"|node_groups\[\d+\]\.(name|instance_type|zone_id|capacity\.zone_id)"
    r"|queues\[\d+\]\.(name|parent)|namespaces\[\d+\]\.(name|queues)"
)
"""Paths of text that a plan depends on."""


def judged(problems: Iterable[Problem], data: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of a well-formed config (``data``, in either spelling), except problems of unseen values. An
    unseen value that a plan depends on is reported: it must be in plain text."""
    found: dict[int, Problem] = {}
    for index, problem in enumerate(problems):
        if not _is_unseen(problem, data):
            found[index] = problem
        elif _DECIDES.match(problem.path) and not any(each.path == problem.path for each in found.values()):
            found[index] = _asked_for(problem)
    return list(found.values())


def shaped(problems: Iterable[Problem], data: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of malformed fields; an encrypted value in place of a number or an object is reported as
    encrypted."""
    return [_asked_for(problem) if _is_unseen(problem, data) else problem for problem in problems]


def _asked_for(problem: Problem) -> Problem:
    reason = "it is encrypted, so a plan cannot see it, and what is built depends on it"
    return Problem(problem.path, reason, "write it in plain text if it is not a secret")


def _is_unseen(problem: Problem, data: Mapping[str, Any]) -> bool:
    return problem.value == UNSEEN or _at(data, problem.path) == UNSEEN


def _at(data: object, path: str) -> object:
    """Return the value at a problem's path (``node_groups[0].labels["a.b/c"]``), or the unseen value above it."""
    for step in steps_of(path):
        if isinstance(data, Mapping) and isinstance(step, str):
            data = data.get(step, data.get(config_path(step)))
        elif isinstance(step, int) and isinstance(data, Sequence) and not isinstance(data, str) and step < len(data):
            data = data[step]
        else:
            break
    return data
