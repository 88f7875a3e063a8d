"""The admission expressions, evaluated: who gets past, and who does not."""

from collections.abc import Mapping, Sequence
from typing import Any

import celpy
import pytest

from trainium_eks.model import admission
from trainium_eks.model.admission import Validation, Variable

QUEUES = ("test", "big")
NEURON = {"resources": {"limits": {"aws.amazon.com/neuron": "16"}, "requests": {"aws.amazon.com/neuron": "16"}}}
IN_GROUP = {"scheduling.k8s.io/group-name": "podgroup-1"}


def refusals(
    variables: Sequence[Variable],
    validations: Sequence[Validation],
    asked: Mapping[str, Any],
    old: Mapping[str, Any] | None = None,
) -> list[str]:
    """Messages of the validations that an object fails."""
    environment = celpy.Environment()
    context: dict[str, Any] = {
        "object": celpy.json_to_cel(asked),
        "oldObject": None if old is None else celpy.json_to_cel(old),
        "request": celpy.json_to_cel({"operation": "CREATE" if old is None else "UPDATE"}),
    }
    known = celpy.celtypes.MapType()

    def value(expression: str) -> Any:
        return environment.program(environment.compile(expression)).evaluate({**context, "variables": known})

    for variable in variables:
        known[celpy.celtypes.StringType(variable.name)] = value(variable.expression)
    return [each.message for each in validations if not value(each.expression)]


def pod(
    *containers: Mapping[str, Any],
    scheduler: str = "volcano",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> list[str]:
    metadata = {"name": "pod", **({"annotations": dict(annotations)} if annotations is not None else {})}
    asked = {
        "metadata": metadata,
        "spec": {"containers": list(containers) or [{"name": "c"}], "schedulerName": scheduler, **spec},
    }
    return refusals(admission.pod_variables(), admission.pod_validations(QUEUES), asked)


def job(queue: str | None, old: str | None = None, *, update: bool = False) -> list[str]:
    def spec(name: str | None) -> dict[str, Any]:
        return {"spec": {"minAvailable": 2, **({"queue": name} if name is not None else {})}}

    return refusals(
        admission.queue_variables(), admission.queue_validations(QUEUES), spec(queue), spec(old) if update else None
    )


@pytest.mark.parametrize("queue", QUEUES)
def test_jobs_of_the_namespaces_queues_pass(queue: str) -> None:
    assert job(queue) == []


@pytest.mark.parametrize("queue", ["other", "default", "", None])
def test_jobs_of_other_queues_or_none_are_refused_with_the_queues_that_pass(queue: str | None) -> None:
    assert job(queue) == ["spec.queue must be one of this namespace's queues: test, big"]


def test_a_job_of_a_queue_that_was_taken_away_can_still_be_finished() -> None:
    assert job("gone", "gone", update=True) == []
    assert job(None, "default", update=True) == []


def test_a_job_does_not_move_to_another_queue_by_an_update() -> None:
    assert job("other", "test", update=True) != []
    assert job("big", "test", update=True) == []


def test_pods_without_accelerators_are_free() -> None:
    assert pod(scheduler="default-scheduler") == []
    assert pod({"resources": {"limits": {"cpu": "8"}}}, scheduler="default-scheduler", nodeName="node-1") == []


def test_a_volcano_jobs_pods_pass() -> None:
    assert pod(NEURON, annotations=IN_GROUP) == []


@pytest.mark.parametrize(
    "resource",
    [
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.5gb",
        "vpc.amazonaws.com/efa",
    ],
)
@pytest.mark.parametrize("kind", ["limits", "requests"])
def test_every_scarce_resource_is_seen(resource: str, kind: str) -> None:
    refused = pod({"resources": {kind: {resource: "1"}}}, scheduler="default-scheduler", annotations=IN_GROUP)
    assert refused == ["a pod with accelerators must be scheduled by Volcano: schedulerName volcano"]


def test_accelerators_of_a_second_or_an_init_container_are_seen() -> None:
    assert pod({"name": "c"}, NEURON, scheduler="default-scheduler", annotations=IN_GROUP) != []
    assert pod({"name": "c"}, scheduler="default-scheduler", annotations=IN_GROUP, initContainers=[NEURON]) != []


def test_naming_a_node_does_not_get_past_the_queue() -> None:
    assert pod(NEURON, annotations=IN_GROUP, nodeName="node-1") == [
        "a pod with accelerators must not name its node: nodeName goes past every queue"
    ]
    assert pod(NEURON, annotations=IN_GROUP, nodeName="") == []


def test_a_bare_pod_names_a_queue_of_the_namespace() -> None:
    assert pod(NEURON, annotations={"scheduling.volcano.sh/queue-name": "big"}) == []
    assert len(pod(NEURON, annotations={"scheduling.volcano.sh/queue-name": "other"})) == 1
    for annotations in (None, {}, {"note": "x"}):
        (message,) = pod(NEURON, annotations=annotations)
        assert "must name its queue" in message


def test_a_pod_of_a_group_does_not_name_another_queue_besides() -> None:
    assert pod(NEURON, annotations={**IN_GROUP, "scheduling.volcano.sh/queue-name": "other"}) != []
