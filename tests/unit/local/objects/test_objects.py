"""The decisions of applying an object that need no server, and definitions that stand in for a chart's."""

import json
from typing import Any

import pytest

from components.volcano_stack import queue_spec
from trainium_eks.kube.api import ApiError, Cause
from trainium_eks.local.objects.apply import _is_immutable, _is_same, _selector
from trainium_eks.local.objects.placeholders import definitions
from trainium_eks.model.sizing.queues import QueueConfig


def refused(*messages: str, status: int = 422, reason: str = "Invalid") -> ApiError:
    return ApiError(status, reason, "it is invalid", [Cause("spec", "FieldValueInvalid", each) for each in messages])


# As Kubernetes 1.35 says it.
IMMUTABLE = [
    "Invalid value: {}: field is immutable",
    "Forbidden: updates to parameters are forbidden.",
    "Forbidden: updates to statefulset spec for fields other than 'replicas' and 'minReadySeconds' are forbidden",
    "Forbidden: spec.persistentvolumesource is immutable after creation\n@@ -1,2 +1,2 @@",
    "Forbidden: field is immutable when `immutable` is set",
    'Invalid value: ["10.0.0.8"]: may not change once set',
    "Invalid value: {}: cannot change roleRef",
    "Forbidden: may not be changed in an update.",
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
]


@pytest.mark.parametrize("message", IMMUTABLE)
def test_what_cannot_be_changed_is_recognised(message: str) -> None:
    assert _is_immutable(refused(message))
    assert _is_immutable(refused("Invalid value: -1: must be greater than or equal to 0", message))
    assert not _is_immutable(refused(message, status=403, reason="Forbidden"))
    assert not _is_immutable(refused(message, status=500, reason="InternalError"))


def test_another_fault_replaces_nothing() -> None:
    for messages in (
        ["Invalid value: -1: must be greater than or equal to 0"],
        ['Required value: valid values: "OnFailure", "Never"'],
        ["Forbidden: may not be specified when `type` is ExternalName"],
        ["Invalid value: 30080: provided port is already allocated"],
        [],
    ):
        assert not _is_immutable(refused(*messages)), messages


def live(time: str, fields: dict[str, Any], **rest: Any) -> dict[str, Any]:
    ours = {"manager": "trn", "operation": "Apply", "time": time, "fieldsV1": fields}
    theirs = {"manager": "kcm", "operation": "Update", "time": rest.pop("their_time", "1"), "subresource": "status"}
    status = {**ours, "time": theirs["time"], "subresource": "status"}
    return {"metadata": {"managedFields": [ours, status, theirs]}, **rest}


def test_an_object_is_the_same_only_when_nothing_of_ours_changed() -> None:
    wanted = {"spec": {"a": 1, "list": [1]}, "status": {"old": True}}
    before = live("1", {"f:a": {}}, spec={"a": 1, "list": [1], "theirs": 1}, status={"old": True})
    touched = live("2", {"f:a": {}}, their_time="2", spec={"a": 1, "list": [1], "theirs": 2}, status={"old": False})
    assert _is_same(wanted, before, touched)
    for after in (
        live("1", {"f:a": {}, "f:b": {}}, spec={"a": 1}),
        live("1", {"f:a": {}}, spec={"a": 2}),
        live("1", {"f:a": {}}, spec={}),
    ):
        assert not _is_same({"spec": {"a": 1}}, live("1", {"f:a": {}}, spec={"a": 1}), after), after


def test_a_selector_is_written_as_the_api_reads_it() -> None:
    def expression(key: str, operator: str, *values: str) -> dict[str, object]:
        return {"key": key, "operator": operator, **({"values": [*values]} if values else {})}

    few = [expression("x", "In", "1", "2"), expression("y", "NotIn", "3")]
    expressions = [*few, expression("z", "Exists"), expression("w", "DoesNotExist")]
    for selector, text in (
        (None, ""),
        ({"app": "a", "tier": "b"}, "app=a,tier=b"),
        ({"matchLabels": {"app": "a"}}, "app=a"),
        ({"matchLabels": {"app": "a"}, "matchExpressions": expressions}, "app=a,x in (1,2),y notin (3),z,!w"),
        ("10.0.0.1", ""),
    ):
        assert _selector({"spec": {"selector": selector}}) == text


# --- Placeholders -----------------------------------------------------------------------------------------------------


def test_all_that_the_stack_says_of_a_queue_is_defined_and_unknown_fields_are_nowhere_kept() -> None:
    assert definitions("neuron-helm-chart") == []
    (definition,) = definitions("volcano")
    (version,) = definition["spec"]["versions"]
    assert "x-kubernetes-preserve-unknown-fields" not in json.dumps(version)
    shares = {share: {"aws.amazon.com/neuron": 16} for share in ("capability", "deserved", "guarantee")}
    spec = queue_spec(QueueConfig(name="q", parent="p", **shares))
    properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(spec) <= set(properties)
    assert set(spec["guarantee"]) <= set(properties["guarantee"]["properties"])
