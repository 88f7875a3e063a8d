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


def test_a_good_object_has_no_fault() -> None:
    assert object_faults(config_map()) == []
    assert object_faults(queue(capability={"aws.amazon.com/neuron": 32})) == []


def test_a_misspelt_field_is_a_fault_however_deep() -> None:
    spec = {"containers": [{"name": "c", "resource": {}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    assert object_faults(pod) == [
        "$.spec.containers[0]: Additional properties are not allowed ('resource' was unexpected)"
    ]


def test_a_number_where_text_belongs_is_a_fault() -> None:
    assert object_faults(config_map(data={"a": 1})) != []


def test_a_kind_without_a_schema_is_a_fault() -> None:
    assert object_faults({"apiVersion": "example.com/v1", "kind": "Thing"}) == [
        "no schema for example.com/v1 Thing: add one to CUSTOM_KINDS"
    ]


def test_an_object_without_a_kind_is_a_fault() -> None:
    assert object_faults({"metadata": {"name": "x"}}) == ["has no apiVersion and kind"]


@pytest.mark.parametrize("spec", [{"weight": 0}, {"weigth": 1}, {"capability": {"cpu": -1}}, {"guarantee": {"cpu": 1}}])
def test_a_queue_that_volcano_would_refuse_is_a_fault(spec: dict[str, Any]) -> None:
    assert object_faults(queue(**spec)) != []


def test_what_only_a_real_run_knows_is_no_fault() -> None:
    assert object_faults(config_map(immutable=UNKNOWN)) == []
    assert object_faults(config_map(immutable="yes")) != []
