"""The last wait of an ``up``: for the DaemonSets' pods on new nodes.

As on EKS, a node group is done when its nodes are Ready, and DaemonSets' pods follow. A command right after an ``up``,
such as ``trn doctor``, should find the cluster complete.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from trainium_eks.local.objects.awaits import readiness

DAEMON_SETS = "/apis/apps/v1/daemonsets"
UNMOVED_SECONDS = 15.0
"""Limit without any progress, after which the wait ends: pods that nothing can start must not hold up an ``up``."""
_LOOK_SECONDS = 0.25
_QUIET_SECONDS = 2.0


def settle(get: Callable[[str], Mapping[str, Any]], progress: Callable[[str], None]) -> tuple[str, ...]:
    """Wait until the pods of all DaemonSets run, or there is no more progress.

    Return the DaemonSets that do not run, a line each; usually none.
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
        if not state.ready:
            found.append(f"DaemonSet {each['metadata']['namespace']}/{each['metadata']['name']}: {state.reason}")
    return found
