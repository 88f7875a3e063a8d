"""Definitions that stand in for a chart's."""

from typing import Any

import pytest
from kubernetes_schemas import object_faults

from components.volcano_stack import queue_spec
from trainium_eks.local.objects.placeholders import definitions
from trainium_eks.model.sizing.queues import QueueConfig
from trainium_eks.observe.series.scraping import API_VERSION, SCRAPES, Scrape


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


@pytest.mark.parametrize("scrape", SCRAPES, ids=lambda each: each.name)
def test_all_that_a_monitor_says_is_defined(scrape: Scrape) -> None:
    manifest = {
        "apiVersion": API_VERSION,
        "kind": scrape.kind,
        "metadata": {"name": scrape.name, "namespace": "monitoring"},
        "spec": scrape.spec(),
    }
    assert object_faults(manifest) == []
    manifest["spec"]["selectors"] = {}
    assert object_faults(manifest) != []


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
