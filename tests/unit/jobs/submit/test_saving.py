"""How often a job is told to save."""

import math
from dataclasses import replace
from typing import Any

import pytest
from cluster_snapshots import NEURON, group, outputs

from trainium_eks.jobs.objects.environment import environment
from trainium_eks.jobs.objects.job import Program
from trainium_eks.jobs.submit import planning, saving
from trainium_eks.jobs.submit.requests import Facts, JobRequest, Plan
from trainium_eks.model.outputs import StackOutputs

IMAGE = "1.dkr.ecr.us-west-2.amazonaws.com/train:2.9.0-sdk2.30.0-ubuntu24.04"
FACTS = Facts(is_local=False, image=IMAGE, unique="x7k2f")
REQUEST = JobRequest(program=Program("train.py"))
VOLUME = {
    "fileSystemId": "fs-1",
    "dnsName": "fs-1.fsx",
    "mountName": "m",
    "capacityGib": 1200,
    "bucket": "",
    "writeMegabytesPerSecond": 1000,
}
NAMESPACE = {"name": "training", "queues": ["test"], "serviceAccount": "trainer", "claim": "fsx-claim"}


def _stack(**changes: Any) -> StackOutputs:
    given = {
        "nodeGroups": [{**group("ng1", NEURON, 256, 2), "maxSize": 256}],
        "namespaces": [NAMESPACE],
        "queues": {"test": {}},
        "queueNames": ["test"],
        "sharedVolume": VOLUME,
    }
    return outputs(**{**given, **changes})


def _plan(stack: StackOutputs | None = None, **changes: Any) -> Plan:
    stack = stack or _stack()
    return planning.plan(replace(REQUEST, **changes), stack, stack.namespaces[0], FACTS)


def _told(plan: Plan) -> str | None:
    assert plan.job is not None, plan.problems
    return environment(plan.job).get(saving.VARIABLE)


def test_a_job_is_told_the_interval_of_its_gang() -> None:
    small, large = _plan(nodes=2), _plan(nodes=256)
    assert small.saving is not None
    assert small.saving.run.checkpoint_seconds == 100  # 100 GB at 1 GB/s
    assert _told(small) == "9960"
    # Of the 256 nodes one fails each day: saving half as often would lose more than it saves.
    assert large.saving is not None
    assert _told(large) == "4140"
    assert large.saving.useful_fraction < small.saving.useful_fraction


def test_the_state_is_what_was_asked_the_examples_or_the_stacks() -> None:
    half = _plan(state_gb=50)
    assert half.saving is not None
    assert half.saving.run.checkpoint_seconds == 50
    example = _plan(program=Program(module="trainium_workloads.bert.pretrain"))
    assert example.saving is not None
    assert example.saving.run.checkpoint_seconds == 4
    stack = _stack(training={"checkpointGigabytes": 7, "failuresPerNodeYear": 0})
    configured = _plan(stack)
    assert configured.saving is not None
    assert configured.saving.run.checkpoint_seconds == 7
    assert math.isinf(configured.saving.run.seconds_between_faults)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"checkpoint_seconds": 90.5}, "90.5"),
        ({"checkpoint_seconds": 0.0}, "0"),
        ({"variables": {saving.VARIABLE: "77"}}, "77"),
        ({"variables": {saving.VARIABLE: "77"}, "checkpoint_seconds": 90}, "77"),
        ({"precompile": True}, None),
        ({"program": Program(module="trainium_workloads.gradient_sum")}, None),
    ],
)
def test_what_was_asked_for_stays_and_a_compilation_saves_nothing(changes: dict[str, Any], told: str | None) -> None:
    plan = _plan(**changes)
    assert plan.saving is None
    assert _told(plan) == told


@pytest.mark.parametrize(
    "stack",
    [
        _stack(sharedVolume=None),
        _stack(sharedVolume={key: value for key, value in VOLUME.items() if key != "writeMegabytesPerSecond"}),
        _stack(namespaces=[{**NAMESPACE, "claim": ""}]),
    ],
    ids=["no file system", "a stack of an earlier release", "no claim"],
)
def test_nothing_is_proposed_where_nothing_is_known(stack: StackOutputs) -> None:
    plan = _plan(stack)
    assert (plan.saving, _told(plan)) == (None, None)


def test_what_cannot_be_is_refused_all_at_once() -> None:
    plan = _plan(checkpoint_seconds=-5.0, state_gb=math.nan, nodes=0)
    assert plan.job is None
    assert [(each.path, each.reason) for each in plan.problems] == [
        ("--nodes", "it must be 1 or more"),
        ("--checkpoint-seconds", "it must be 0 or more"),
        ("--state-gb", "it must be 0 or more"),
    ]


def test_the_interval_of_a_job_is_read_back() -> None:
    told = [{saving.VARIABLE: "90"}, {saving.VARIABLE: "soon"}, {}]
    assert [saving.interval_seconds(env) for env in told] == [90, None, None]
