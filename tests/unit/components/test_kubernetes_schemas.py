"""The schema check itself: what must be a fault is one."""

import pytest
from kubernetes_schemas import object_faults

from trainium_eks.plan.graph import UNKNOWN

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}}
QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "x"}}


@pytest.mark.parametrize(
    ("manifest", "fault"),
    [
        ({**CONFIG_MAP, "kind": "Pod", "spec": {"containers": [{"name": "c", "a": 1}]}}, "$.spec.containers[0]: "),
        ({"apiVersion": "a.com/v1", "kind": "A"}, "no schema for a.com/v1 A: add one to CUSTOM_KINDS"),
        ({"metadata": {"name": "x"}}, "has no apiVersion and kind"),
        ({**CONFIG_MAP, "data": {"a": 1}}, ""),
        *(({**QUEUE, "spec": spec}, "") for spec in ({"weight": 0}, {"weigth": 1}, {"guarantee": {"cpu": 1}})),
    ],
)  # fmt: skip
def test_schema_check_finds_the_api_servers_faults_and_no_others(manifest, fault):
    assert any(fault in found for found in object_faults(manifest))
    assert object_faults(CONFIG_MAP) == object_faults({**CONFIG_MAP, "immutable": UNKNOWN}) == []
    assert object_faults({**QUEUE, "spec": {"weight": 1, "capability": {"aws.amazon.com/neuron": 32}}}) == []
