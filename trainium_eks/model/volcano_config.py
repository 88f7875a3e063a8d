"""Configuration of Volcano's scheduler and controllers, from the stack's config.

Pure functions. Every choice here was measured with a real Volcano on simulated trn1.32xlarge nodes, or has a source.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from trainium_eks.model.sizing.queues import QueueConfig, VolcanoConfig

CONTROLLER_RATES: Mapping[str, int] = {
    "controller_kube_api_qps": 1000,
    "controller_kube_api_burst": 2000,
    "controller_worker_threads": 16,
    "controller_worker_threads_for_gc": 8,
    "controller_worker_threads_for_podgroup": 16,
}
"""The controllers' rate limits for the API server, requests a second, and their threads. The chart's 50 requests a
second make a gang of 1,000 wait for its pods to be made one after another; these are ceilings, so a small cluster never
sees them. ``benchmarks/gangs.py`` measures their effect."""

SCHEDULER_RATES: Mapping[str, int] = {"scheduler_kube_api_qps": 2000, "scheduler_kube_api_burst": 2000}
"""The chart's default rates, set here so that no upgrade lowers them unnoticed: a gang is bound pod by pod."""

LOG_LEVELS: Mapping[str, int] = {"scheduler_log_level": 2, "controller_log_level": 2, "admission_log_level": 2}
"""Log levels for errors, and decisions on whole jobs. The chart's 3 and 4 write several lines for each pod in each
round: 27 MB for one gang of 1,000."""


PLACEMENT_WEIGHTS: Mapping[str, int] = {"leastrequested.weight": 0, "balancedresource.weight": 0}
"""Weights of ``nodeorder``, 0 in favour of ``binpack``: by default it prefers empty nodes where ``binpack`` prefers
full nodes, and a pool with all nodes partly used has no free node for a gang. These two are also the most expensive to
compute (decision 30)."""

NODES_CONSIDERED: Mapping[str, int] = {"scheduler_percentage_nodes_to_find": 10}
"""Share of the nodes that fit a pod and are compared: 10 % of the cluster, and never fewer than 100 nodes, which is
Volcano's own minimum. With its default, 42 % of 1,000 nodes, a large gang takes 1.2 to 1.8 times as long, and its pods
are hardly closer together (decision 30). Up to 100 nodes, all are compared."""


def shares(queues: Iterable[QueueConfig]) -> bool:
    """Return whether some queue sets ``deserved`` or ``guarantee``, which only the plugin ``capacity`` applies."""
    return any(queue.deserved or queue.guarantee for queue in queues)


def holds_for_nodes(volcano: VolcanoConfig, rests_at_zero: bool) -> bool:
    """Return whether a job gets pods only once the nodes that exist have room for it.

    A pool without nodes never gets a node then (volcano#3910), with any overcommit factor; and ``reclaim`` skips a job
    that is held back, so a queue would not get back its lent amounts. Gangs stay complete without it: ``allocate``
    binds all or none.
    """
    scales_from_zero = rests_at_zero if volcano.scale_from_zero is None else volcano.scale_from_zero
    return not scales_from_zero and not volcano.reclaim


def scheduler_actions(volcano: VolcanoConfig) -> tuple[str, ...]:
    """Return the scheduler's actions, in the order they run.

    ``enqueue`` holds a job back, without pods, until its namespace's quota has room for it, and in some stacks until
    the nodes have (:func:`holds_for_nodes`). ``gangreclaim`` takes whole gangs, but some of them never come back
    (decision 65). ``gangpreempt`` would end jobs for others of a higher priority, although the stack's classes never
    preempt (the same decision).
    """
    return ("enqueue", "allocate", *(("reclaim",) if volcano.reclaim else ()), "backfill")


def scheduler_config(volcano: VolcanoConfig, *, queues: Sequence[QueueConfig], rests_at_zero: bool) -> dict[str, Any]:
    """Return the scheduler's configuration as data, for all queues of the stack."""
    holds = holds_for_nodes(volcano, rests_at_zero)
    # Exactly one of the two: ``capacity`` shares by ``deserved``, ``proportion`` by weights.
    shares_plugin: dict[str, Any] = {"name": "capacity" if shares(queues) else "proportion"}
    within_queues: list[dict[str, Any]] = [
        {"name": "priority"},
        # A gang's pods are not victims of preemption: losing one restarts all.
        {"name": "gang", "enablePreemptable": False},
        {"name": "conformance"},
    ]
    between_queues: list[dict[str, Any]] = [
        # It acts in ``enqueue`` alone.
        *([{"name": "overcommit"}] if holds else []),
        {"name": "drf", "enablePreemptable": False},
        {"name": "predicates"},
        shares_plugin | ({} if holds else {"enableJobEnqueued": False}),
        {"name": "nodeorder", "arguments": dict(PLACEMENT_WEIGHTS)},
        {"name": "binpack"},
        # Without it a job's hard topology is silently ignored. The chart's default leaves it out.
        {"name": "network-topology-aware"},
        # In ``enqueue``, too. Without it the controllers make pods for every waiting job, and the API server refuses
        # them again and again (decision 77). Last, so that it counts no job that another plugin holds back.
        {"name": "resourcequota"},
    ]
    return {
        "actions": ", ".join(scheduler_actions(volcano)),
        "tiers": [{"plugins": within_queues}, {"plugins": between_queues}],
    }


def scheduler_yaml(volcano: VolcanoConfig, *, queues: Sequence[QueueConfig], rests_at_zero: bool) -> str:
    """Return :func:`scheduler_config` as text for the chart's ``scheduler_config_override``."""
    config = scheduler_config(volcano, queues=queues, rests_at_zero=rests_at_zero)
    text: str = yaml.safe_dump(config, sort_keys=False, default_flow_style=False)
    return text
