import json

import pytest
from kubernetes_schemas import schema_faults
from unit.components.parts import LEAST, STACK, of_kind, one, recorder, releases

from components.metrics_stack import MetricsStack
from components.training_stack import TrainingStack
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.observe.dashboards import dashboards

WORKSPACE = "aws:amp/workspace:Workspace"
KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b"
built = recorder(MetricsStack, "metrics", LEAST["MetricsStack"])


@pytest.fixture(scope="module")
def managed(record):
    return built(record, grafana={}, managed_prometheus=True, kms_key_arn=KEY)


def test_rules_and_alerts_have_the_args_prices_and_times(record):
    own = with_entries(CATALOGUE, {"trn1.32xlarge": {"hourlyUsd": 12.5}})
    kinds = ["trn1.32xlarge", "p5.48xlarge"]
    graph = built(record, instance_types=kinds, catalogue=own, thresholds={"idle_minutes": 45})
    found = {each.inputs["metadata"]["name"]: each for each in of_kind(graph, "PrometheusRule")}
    recorded, alerts = (
        [rule for group in found.pop(name).inputs["spec"]["groups"] for rule in group["rules"]]
        for name in ("trn-recording", "trn-alerts")
    )
    assert found == {}
    prices = [rule for rule in recorded if rule["record"] == "trn:instance_usd_per_hour"]
    assert {rule["labels"]["instance_type"]: rule["expr"] for rule in prices} == {
        "trn1.32xlarge": "vector(12.5)",
        "p5.48xlarge": f"vector({CATALOGUE['p5.48xlarge'].hourly_usd:g})",
    }
    (idle,) = (rule for rule in alerts if rule["alert"] == "AcceleratorsIdle")
    assert "[45m]" in idle["expr"]
    assert idle["annotations"]["next"].endswith("--stack test")
    assert schema_faults(graph) == []


def test_grafana_has_every_dashboard(managed):
    given = releases(managed)["grafana-dashboards"].inputs["values"]["dashboards"]
    assert set(given) == set(dashboards())
    for text in given.values():
        # The API server takes objects of a mebibyte.
        assert len(text.encode()) < 2**19
        assert json.loads(text)["uid"]


def test_stack_has_metrics_only_on_request(record):
    observed = {"metrics": {"managed_prometheus": True}, "grafana": {"managed": {}}}
    graph = record(lambda: TrainingStack("trn-dev", {**STACK, "observability": observed}))
    policies = [json.loads(each.inputs["policy"]) for each in of_kind(graph, "RolePolicy")]
    readers = [each["Statement"][0]["Resource"] for each in policies if "aps:QueryMetrics" in str(each)]
    assert readers == [one(graph, WORKSPACE).outputs["arn"]] * 2
    assert one(graph, "aws:grafana/workspace:Workspace")
