"""The end of an ``up``: agents on nodes that came after them are still starting.

As on EKS, a node group is done when its nodes are Ready, and DaemonSets' pods follow. Who looks at the cluster right
after an ``up``, ``trn verify`` for one, should find it whole.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from trainium_eks.local.objects.awaits import Ready, readiness

DAEMON_SETS = "/apis/apps/v1/daemonsets"
UNMOVED_SECONDS = 15.0
"""After so long without any progress the rest is left to itself: pods that nothing can start are not this one's."""
_LOOK_SECONDS = 0.25
_QUIET_SECONDS = 2.0


def settle(get: Callable[[str], Mapping[str, Any]], progress: Callable[[str], None]) -> tuple[str, ...]:
    """Waits until the pods of all DaemonSets run, or nothing moves any more.

    Args:
        get: asks the API server for a path.
        progress: told what is awaited, when it takes longer than a moment.

    Returns:
        What does not run, a line each: nothing, as a rule.
    """
    begun = moved = time.monotonic()
    before: list[str] = []
    while waiting := _waiting(get(DAEMON_SETS)["items"]):
        now = time.monotonic()
        if waiting != before:
            before, moved = waiting, now
        if now - moved > UNMOVED_SECONDS:
            return tuple(f"still not running: {each}" for each in waiting)
        if now - begun > _QUIET_SECONDS:
            progress(f"Waiting for the agents of the nodes: {waiting[0]}")
        # Thousands of pods are being made: looking must not take the API server's time from them.
        time.sleep(max(_LOOK_SECONDS, 3 * (time.monotonic() - now)))
    return ()


def _waiting(daemon_sets: list[Mapping[str, Any]]) -> list[str]:
    found = []
    for each in daemon_sets:
        # A list's items do not say their kind.
        state = readiness({"apiVersion": "apps/v1", "kind": "DaemonSet", **each})
        if not isinstance(state, Ready):
            found.append(f"DaemonSet {each['metadata']['namespace']}/{each['metadata']['name']}: {state.reason}")
    return found
