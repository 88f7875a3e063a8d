"""The schema check itself: what must be a fault is one."""

from typing import Any

import pytest
from kubernetes_schemas import object_faults

from trainium_eks.plan.graph import UNKNOWN


def config_map(**changed: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}, **changed}


def queue(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "test"},
        "spec": {"weight": 1, **spec},
    }


def test_a_good_object_and_what_only_a_real_run_knows_have_no_fault() -> None:
    assert object_faults(config_map()) == object_faults(config_map(immutable=UNKNOWN)) == []
    assert object_faults(queue(capability={"aws.amazon.com/neuron": 32})) == []


@pytest.mark.parametrize(
    ("manifest", "fault"),
    [
        (
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "x"},
                "spec": {"containers": [{"name": "c", "a": 1}]},
            },
            "$.spec.containers[0]: Additional properties are not allowed ('a' was unexpected)",
        ),
        (
            {"apiVersion": "example.com/v1", "kind": "Thing"},
            "no schema for example.com/v1 Thing: add one to CUSTOM_KINDS",
        ),
        ({"metadata": {"name": "x"}}, "has no apiVersion and kind"),
        (config_map(data={"a": 1}), ""),
        (config_map(immutable="yes"), ""),
        *((queue(**spec), "") for spec in ({"weight": 0}, {"weigth": 1}, {"capability": {"cpu": -1}})),
        (queue(guarantee={"cpu": 1}), ""),
    ],
)
def test_what_the_api_server_would_refuse_is_a_fault(manifest: dict[str, Any], fault: str) -> None:
    (found,) = object_faults(manifest)
    assert fault in found
