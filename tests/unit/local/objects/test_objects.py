"""The decisions of applying an object that need no server, and definitions that stand in for a chart's."""

from typing import Any

import pytest

from components.volcano_stack import queue_spec
from trainium_eks.kube.api import ApiError, Cause
from trainium_eks.local.objects.apply import _is_immutable, _is_same, _selector
from trainium_eks.local.objects.placeholders import definitions
from trainium_eks.model.sizing.queues import QueueConfig


def refused(*messages: str, status: int = 422, reason: str = "Invalid") -> ApiError:
    return ApiError(
        status, reason, "it is invalid: ...", [Cause("spec", "FieldValueInvalid", each) for each in messages]
    )


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


@pytest.mark.parametrize(
    "messages",
    [
        ["Invalid value: -1: must be greater than or equal to 0"],
        ['Required value: valid values: "OnFailure", "Never"'],
        ["Forbidden: may not be specified when `type` is ExternalName"],
        ["Invalid value: 30080: provided port is already allocated"],
        [],
    ],
)
def test_another_fault_replaces_nothing(messages: list[str]) -> None:
    assert not _is_immutable(refused(*messages))


def live(time: str, fields: dict[str, Any], **rest: Any) -> dict[str, Any]:
    ours = {"manager": "trn", "operation": "Apply", "time": time, "fieldsV1": fields}
    theirs = {"manager": "kcm", "operation": "Update", "time": rest.pop("their_time", "1"), "subresource": "status"}
    status = {**ours, "time": theirs["time"], "subresource": "status"}
    return {"metadata": {"managedFields": [ours, status, theirs]}, **rest}


def test_an_object_is_the_same_when_nothing_of_ours_changed() -> None:
    wanted = {"spec": {"a": 1, "list": [1]}, "status": {"old": True}}
    before = live("1", {"f:a": {}}, spec={"a": 1, "list": [1], "theirs": 1}, status={"old": True})
    touched = live("2", {"f:a": {}}, their_time="2", spec={"a": 1, "list": [1], "theirs": 2}, status={"old": False})
    assert _is_same(wanted, before, touched)


@pytest.mark.parametrize(
    "after",
    [
        live("1", {"f:a": {}, "f:b": {}}, spec={"a": 1}),
        live("1", {"f:a": {}}, spec={"a": 2}),
        live("1", {"f:a": {}}, spec={}),
    ],
    ids=["fields", "value in the same second", "gone"],
)
def test_an_object_is_updated_when_something_of_ours_changed(after: dict[str, Any]) -> None:
    assert not _is_same({"spec": {"a": 1}}, live("1", {"f:a": {}}, spec={"a": 1}), after)


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, ""),
        ({"app": "a", "tier": "b"}, "app=a,tier=b"),
        ({"matchLabels": {"app": "a"}}, "app=a"),
        (
            {
                "matchLabels": {"app": "a"},
                "matchExpressions": [
                    {"key": "x", "operator": "In", "values": ["1", "2"]},
                    {"key": "y", "operator": "NotIn", "values": ["3"]},
                    {"key": "z", "operator": "Exists"},
                    {"key": "w", "operator": "DoesNotExist"},
                ],
            },
            "app=a,x in (1,2),y notin (3),z,!w",
        ),
        ("10.0.0.1", ""),
    ],
)
def test_a_selector_is_written_as_the_api_reads_it(selector: object, text: str) -> None:
    assert _selector({"spec": {"selector": selector}}) == text


# --- Placeholders -----------------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    (definition,) = definitions("volcano")
    (version,) = definition["spec"]["versions"]
    properties: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return properties


def test_charts_have_placeholders_of_the_kinds_that_the_stack_makes() -> None:
    assert definitions("neuron-helm-chart") == []
    assert [each["metadata"]["name"] for each in definitions("volcano")] == ["queues.scheduling.volcano.sh"]
    assert [each["metadata"]["name"] for each in definitions("kube-prometheus-stack")] == [
        "podmonitors.monitoring.coreos.com",
        "servicemonitors.monitoring.coreos.com",
        "prometheusrules.monitoring.coreos.com",
    ]
    assert [each["metadata"]["name"] for each in definitions("karpenter")] == [
        "nodepools.karpenter.sh",
        "ec2nodeclasses.karpenter.k8s.aws",
    ]


def test_all_that_the_stack_says_of_a_queue_is_defined() -> None:
    queue = QueueConfig(
        name="q",
        parent="p",
        capability={"aws.amazon.com/neuron": 32},
        deserved={"aws.amazon.com/neuron": 16},
        guarantee={"aws.amazon.com/neuron": 16},
    )
    spec = queue_spec(queue)
    properties = schema()["spec"]["properties"]
    assert set(spec) <= set(properties)
    assert set(spec["guarantee"]) <= set(properties["guarantee"]["properties"])


def test_unknown_fields_are_nowhere_kept() -> None:
    def check(node: Any) -> None:
        if isinstance(node, dict):
            assert "x-kubernetes-preserve-unknown-fields" not in node
            for each in node.values():
                check(each)

    check(schema())
