"""Values that a plan cannot see: encrypted in the stack's file (``secure:``), and seen by ``pulumi up`` alone.

In their place stands :data:`UNSEEN`. It is not what people wrote, so it is not judged, and no fix overwrites it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainium_eks.model.validation.problems import Problem, config_path

UNSEEN = "[secret]"
"""What stands for an encrypted value."""

_DECIDES = re.compile(
    r"region|network\.(cidr_block|zone_ids)|existing_network\b|file_system\.zone_id"
    r"|cluster\.(kubernetes_version|service_cidr_block|(system|cpu)_nodes\.instance_type)"
    r"|node_groups\[\d+\]\.(name|instance_type|zone_id|capacity\.zone_id)"
    r"|queues\[\d+\]\.(name|parent)|namespaces\[\d+\]\.(name|queues)"
)
"""Text that decides what is built: without it there is no plan."""


def judged(problems: Iterable[Problem], data: Mapping[str, Any]) -> list[Problem]:
    """The problems, less those about values that are not seen; where such a value decides what is built, it is asked
    for in clear.

    Args:
        problems: of a config of the right shape.
        data: the config, in either spelling.
    """
    found: dict[int, Problem] = {}
    for index, problem in enumerate(problems):
        if not _is_unseen(problem, data):
            found[index] = problem
        elif _DECIDES.match(problem.path) and not any(each.path == problem.path for each in found.values()):
            found[index] = _asked_for(problem)
    return list(found.values())


def shaped(problems: Iterable[Problem], data: Mapping[str, Any]) -> list[Problem]:
    """The faults of shape; where an encrypted value stands in the place of a number or an object, that is said."""
    return [_asked_for(problem) if _is_unseen(problem, data) else problem for problem in problems]


def _asked_for(problem: Problem) -> Problem:
    reason = "it is encrypted, so a plan cannot see it, and what is built depends on it"
    return Problem(problem.path, reason, "write it in plain text if it is not a secret")


def _is_unseen(problem: Problem, data: Mapping[str, Any]) -> bool:
    return problem.value == UNSEEN or _at(data, problem.path) == UNSEEN


def _at(data: object, path: str) -> object:
    """What stands at a problem's path (``node_groups[0].labels["a.b/c"]``), or above it where that is unseen."""
    for quoted, index, name in re.findall(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)', path):
        if isinstance(data, Mapping):
            key = quoted or name
            data = data.get(key, data.get(config_path(key)))
        elif index and isinstance(data, Sequence) and not isinstance(data, str) and int(index) < len(data):
            data = data[int(index)]
        else:
            break
    return data
