"""The decisions of applying an object that need no server, and definitions that stand in for a chart's."""

import json

import pytest

from components.volcano_stack import queue_spec
from trainium_eks.kube.api import ApiError, Cause
from trainium_eks.local.objects.apply import _is_immutable, _selector
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


def test_a_selector_is_written_as_the_api_reads_it() -> None:
    listed = [{"key": "x", "operator": "In", "values": ["1", "2"]}, {"key": "y", "operator": "NotIn", "values": ["3"]}]
    expressions = [*listed, {"key": "z", "operator": "Exists"}, {"key": "w", "operator": "DoesNotExist"}]
    for selector, text in (
        (None, ""),
        ({"app": "a", "tier": "b"}, "app=a,tier=b"),
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
