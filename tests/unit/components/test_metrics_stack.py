import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from kubernetes_schemas import schema_faults
from unit.components.parts import IAM_ROLE, STACK, Record, of_kind, one, releases, statements

from components._args import ArgumentError
from components.managed_grafana import ManagedGrafana
from components.metrics_stack import MetricsStack
from components.training_stack import TrainingStack
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.observe.dashboards import dashboards
from trainium_eks.observe.series import scraping
from trainium_eks.plan.graph import Graph, Resource

WORKSPACE = "aws:amp/workspace:Workspace"
MONITORS = ("PodMonitor", "ServiceMonitor")
TOPIC = "arn:aws:sns:us-west-2:111122223333:oncall"
KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b"


def args(**more: Any) -> dict[str, Any]:
    return {"region": "us-west-2", "cluster_name": "trn-1", **more}


def built(record: Record, **more: Any) -> Graph:
    return record(lambda: MetricsStack("metrics", args(**more)))


def values(record: Record, **more: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = releases(built(record, **more))["kube-prometheus-stack"].inputs["values"]
    return found


def test_prometheus_is_a_pinned_release_that_is_rolled_back_on_failure(record: Record) -> None:
    """Its chart makes the webhook's certificate in a hook, which helm.v4.Chart drops."""
    graph = built(record)
    assert [each.type for each in graph.resources if each.type.startswith("aws:")] == []
    inputs = releases(graph)["kube-prometheus-stack"].inputs
    chart = versions.CHARTS["kube-prometheus-stack"]
    assert (inputs["chart"], inputs["version"]) == (chart.chart, chart.version)
    assert inputs["repositoryOpts"] == {"repo": chart.repository}
    assert (inputs["namespace"], inputs["atomic"]) == ("monitoring", True)


def test_what_eks_hides_is_not_asked(record: Record) -> None:
    found = values(record)
    for part in ("kubeEtcd", "kubeScheduler", "kubeControllerManager", "kubeProxy"):
        assert found[part] == {"enabled": False}, part
        assert not any(on for rule, on in found["defaultRules"]["rules"].items() if part.lower() in rule.lower())


def test_the_volume_is_never_full_however_often_is_asked(record: Record) -> None:
    own = {"prometheus": {"prometheusSpec": {"replicas": 2}}}
    found = values(record, volume_gib=100, retention_days=30, scrape_interval_seconds=60, values=own)
    spec = found["prometheus"]["prometheusSpec"]
    assert (spec["retention"], spec["retentionSize"], spec["replicas"]) == ("30d", "85GiB", 2)
    assert (spec["scrapeInterval"], spec["evaluationInterval"]) == ("60s", "60s")
    assert found["kubelet"]["serviceMonitor"]["cAdvisorInterval"] == "60s"
    claim = spec["storageSpec"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"] == {"requests": {"storage": "100Gi"}}
    assert "storageClassName" not in claim


def test_only_objects_of_the_namespace_say_what_is_asked_and_computed(record: Record) -> None:
    """A team that could make a rule or a monitor would have the stack's Prometheus ask for it."""
    spec = values(record)["prometheus"]["prometheusSpec"]
    for kind in ("serviceMonitor", "podMonitor", "probe", "scrapeConfig", "rule"):
        labels = spec[f"{kind}NamespaceSelector"]["matchLabels"]
        assert labels == {"kubernetes.io/metadata.name": "monitoring"}, kind


def test_node_exporter_is_on_every_node_and_says_which(record: Record) -> None:
    node = values(record)["prometheus-node-exporter"]
    assert node["tolerations"] == [{"operator": "Exists"}]
    assert node["prometheus"]["monitor"]["relabelings"] == [dict(scraping.NODE)]


def test_kube_state_metrics_shows_gangs_and_the_labels_that_queries_join_by(record: Record) -> None:
    state = values(record)["kube-state-metrics"]
    nodes, pods = state["metricLabelsAllowlist"]
    assert nodes.startswith("nodes=[")
    assert "eks.amazonaws.com/nodegroup" in nodes
    assert "node.kubernetes.io/instance-type" in nodes
    assert pods.startswith("pods=[")
    assert "volcano.sh/queue-name" in pods
    (podgroups,) = state["customResourceState"]["config"]["spec"]["resources"]
    assert state["customResourceState"]["enabled"]
    assert podgroups["groupVersionKind"]["kind"] == "PodGroup"
    assert state["rbac"]["extraRules"] == [
        {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["list", "watch"]}
    ]


def every(rules: Resource) -> list[dict[str, Any]]:
    return [rule for group in rules.inputs["spec"]["groups"] for rule in group["rules"]]


def test_rules_and_alerts_are_this_prometheus_and_wait_for_their_definition(record: Record) -> None:
    own = with_entries(CATALOGUE, {"trn1.32xlarge": {"hourlyUsd": 12.5}})
    kinds = ["trn1.32xlarge", "p5.48xlarge"]
    graph = built(record, instance_types=kinds, catalogue=own, thresholds={"idle_minutes": 45})
    rules = {each.inputs["metadata"]["name"]: each for each in of_kind(graph, "PrometheusRule")}
    assert set(rules) == {"trn-recording", "trn-alerts"}
    for each in rules.values():
        assert each.inputs["metadata"]["labels"] == {"release": "kube-prometheus-stack"}
        assert releases(graph)["kube-prometheus-stack"].urn in each.dependencies
    prices = [rule for rule in every(rules["trn-recording"]) if rule["record"] == "trn:instance_usd_per_hour"]
    listed = CATALOGUE["p5.48xlarge"].hourly_usd
    assert {rule["labels"]["instance_type"]: rule["expr"] for rule in prices} == {
        "trn1.32xlarge": "vector(12.5)",
        "p5.48xlarge": f"vector({listed:g})",
    }
    found = {rule["alert"]: rule for rule in every(rules["trn-alerts"])}
    assert "[45m]" in found["AcceleratorsIdle"]["expr"]
    assert found["AcceleratorsIdle"]["annotations"]["next"].endswith("--stack test")
    assert schema_faults(graph) == []


def test_every_monitor_is_labelled_for_this_prometheus(record: Record) -> None:
    graph = built(record, efa_instance_types=["trn1.32xlarge"], file_system_id="fs-1")
    monitors = {each.inputs["metadata"]["name"]: each.inputs for each in of_kind(graph, *MONITORS)}
    assert set(monitors) == {each.name for each in scraping.SCRAPES}
    for name, inputs in monitors.items():
        assert inputs["metadata"]["labels"] == {"release": "kube-prometheus-stack"}, name
        assert inputs["metadata"]["namespace"] == "monitoring", name
    assert schema_faults(graph) == []
    # Who is not there is not asked.
    names = {each.inputs["metadata"]["name"] for each in of_kind(built(record), *MONITORS)}
    assert set(monitors) - names == {"efa-exporter", "fsx-exporter"}


def test_prometheus_writes_to_its_workspace_and_to_no_other(record: Record) -> None:
    graph = built(record, managed_prometheus=True, kms_key_arn=KEY)
    [workspace] = of_kind(graph, WORKSPACE)
    assert workspace.inputs["kmsKeyArn"] == KEY
    spec = releases(graph)["kube-prometheus-stack"].inputs["values"]["prometheus"]["prometheusSpec"]
    [remote] = spec["remoteWrite"]
    assert remote["url"] == f"{workspace.outputs['prometheusEndpoint']}api/v1/remote_write"
    assert remote["sigv4"] == {"region": "us-west-2"}
    assert spec["externalLabels"] == {"cluster": "trn-1"}
    allowed = {"Effect": "Allow", "Action": ["aps:RemoteWrite"], "Resource": workspace.outputs["arn"]}
    assert statements(graph) == [allowed]


def test_every_dashboard_is_given_to_grafana(record: Record) -> None:
    given = releases(built(record, grafana={}))["grafana-dashboards"].inputs["values"]["dashboards"]
    assert set(given) == set(dashboards())
    for text in given.values():
        # The API server takes objects of a mebibyte.
        assert len(text.encode()) < 2**19
        assert json.loads(text)["uid"]
    assert "grafana-dashboards" not in releases(built(record))


def test_grafana_is_reached_by_port_forwarding_alone(record: Record) -> None:
    graph = built(record, grafana={}, managed_prometheus=True)
    grafana = releases(graph)["kube-prometheus-stack"].inputs["values"]["grafana"]
    assert grafana["service"] == {"type": "ClusterIP"}
    assert grafana["ingress"] == {"enabled": False}
    assert grafana["grafana.ini"]["auth.anonymous"] == {"enabled": False}
    # Its chart makes a password and keeps it in its Secret.
    assert of_kind(graph, "Secret") == ()
    assert "password" not in json.dumps([each.inputs for each in graph.resources]).lower()
    for none in ({}, {"grafana": {"in_cluster": False, "managed": {}}, "managed_prometheus": True}):
        assert values(record, **none)["grafana"] == {"enabled": False}


def test_dashboards_find_their_data_source_whatever_stands_behind_it(record: Record) -> None:
    plain = values(record, grafana={})["grafana"]
    assert plain["sidecar"]["datasources"]["uid"] == "prometheus"
    assert "plugins" not in plain
    managed = values(record, grafana={}, managed_prometheus=True)["grafana"]
    [source] = managed["additionalDataSources"]
    assert (source["uid"], source["isDefault"]) == ("prometheus", True)
    assert f"{source['type']}@" in versions.GRAFANA_AMP_PLUGIN
    # In the background: by the chart's `plugins` Grafana, and with it the release, waits for grafana.com.
    assert managed["grafana.ini"]["plugins"] == {"preinstall": versions.GRAFANA_AMP_PLUGIN}
    assert "plugins" not in managed
    assert source["jsonData"]["sigV4AuthType"] == "default"
    own = managed["sidecar"]["datasources"]
    assert (own["uid"], own["isDefaultDatasource"]) == ("prometheus-cluster", False)


def test_what_has_a_volume_stays_with_the_nodes_of_its_zone(record: Record) -> None:
    selector = {"trainium-eks/pool": "cpu"}
    found = values(record, grafana={}, alerts={"topic_arn": TOPIC}, node_selector=selector)
    pods = found["prometheus"]["prometheusSpec"], found["alertmanager"]["alertmanagerSpec"], found["grafana"]
    assert [each["nodeSelector"] for each in pods] == [selector] * 3
    assert "nodeSelector" not in values(record, grafana={})["grafana"]


def test_grafana_may_read_the_workspace_and_nothing_else(record: Record) -> None:
    [statement] = statements(built(record, grafana={}, managed_prometheus=True), "metrics-grafana")
    assert all(action.startswith(("aps:Query", "aps:Get")) for action in statement["Action"])
    assert ":workspace/" in statement["Resource"]


def test_alerts_go_to_the_topic_and_to_nobody_else(record: Record) -> None:
    assert values(record)["alertmanager"] == {"enabled": False}
    graph = built(record, alerts={"topic_arn": TOPIC, "topic_key_arn": KEY})
    config = releases(graph)["kube-prometheus-stack"].inputs["values"]["alertmanager"]["config"]
    assert config["route"]["receiver"] == "topic"
    receivers = {each["name"]: each for each in config["receivers"]}
    assert receivers["topic"]["sns_configs"][0]["topic_arn"] == TOPIC
    # What is always on says that alerting works, and is no news.
    assert config["route"]["routes"][0]["receiver"] in receivers
    publish, key = statements(graph)
    assert (publish["Action"], publish["Resource"]) == (["sns:Publish"], TOPIC)
    assert key["Resource"] == KEY
    assert key["Condition"] == {"StringEquals": {"kms:ViaService": "sns.us-west-2.amazonaws.com"}}


def test_efa_counters_are_exported_on_nodes_that_have_efa(record: Record) -> None:
    graph = built(record, efa_instance_types=["trn1.32xlarge", "p5.48xlarge"])
    found = releases(graph)["efa-exporter"].inputs
    assert found["values"]["instanceTypes"] == ["p5.48xlarge", "trn1.32xlarge"]
    assert {each["key"] for each in found["values"]["tolerations"]} == {"aws.amazon.com/neuron", "nvidia.com/gpu"}
    assert found["skipAwait"] is True


def test_the_file_systems_metrics_are_read_by_its_id(record: Record) -> None:
    def read(graph: Graph) -> Any:
        return yaml.safe_load(releases(graph)["fsx-exporter"].inputs["values"]["config"])["static"]

    # What exports nothing has no queue to read.
    assert [each["name"] for each in read(built(record, file_system_id="fs-0123"))] == ["fsx"]
    graph = built(record, file_system_id="fs-0123", exports_to_s3=True)
    storage, export = read(graph)
    assert storage["dimensions"] == [{"name": "FileSystemId", "value": "fs-0123"}]
    assert {"name": "Publisher", "value": "AutoExport"} in export["dimensions"]
    assert [each["name"] for each in export["metrics"]] == ["AgeOfOldestQueuedMessage"]
    assert statements(graph) == [{"Effect": "Allow", "Action": "cloudwatch:GetMetricStatistics", "Resource": "*"}]


def test_nobody_outside_gets_into_the_namespace_but_the_api_server(record: Record) -> None:
    [policy] = of_kind(built(record), "NetworkPolicy")
    spec = policy.inputs["spec"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({}, ["Ingress"])
    own, webhook = spec["ingress"]
    assert own == {"from": [{"podSelector": {}}]}
    assert webhook == {"ports": [{"port": 10250, "protocol": "TCP"}]}


# --- Grafana outside the cluster --------------------------------------------------------------------------------------

APS = "arn:aws:aps:us-west-2:111122223333:workspace/ws-0a1b"


def managed(record: Record, **more: Any) -> Graph:
    return record(lambda: ManagedGrafana("grafana", {"workspace_arn": APS, **more}))


@pytest.mark.parametrize("authentication", ["AWS_SSO", "SAML"])
def test_whoever_comes_is_asked_who_he_is(record: Record, authentication: str) -> None:
    inputs = one(managed(record, authentication=authentication), "aws:grafana/workspace:Workspace").inputs
    assert inputs["authenticationProviders"] == [authentication]
    with pytest.raises(ArgumentError, match="permissions_boundary"):
        managed(record, permissions_boundary="x")


def test_it_takes_a_role_that_reads_one_workspace(record: Record) -> None:
    """AWS' own choice of permissions reads every workspace of the account."""
    graph = managed(record)
    assert one(graph, "aws:grafana/workspace:Workspace").inputs["permissionType"] == "CUSTOMER_MANAGED"
    [statement] = json.loads(one(graph, "RolePolicy").inputs["policy"])["Statement"]
    assert statement["Resource"] == APS
    assert "aps:QueryMetrics" in statement["Action"]
    assert not any("Write" in action or "Create" in action for action in statement["Action"])
    trust = json.loads(one(graph, IAM_ROLE).inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Service": "grafana.amazonaws.com"}


def test_a_stack_has_one_when_it_is_asked_for(record: Record) -> None:
    observed = {"metrics": {"managed_prometheus": True}, "grafana": {"managed": {}}}
    graph = record(lambda: TrainingStack("trn-dev", {**STACK, "observability": observed}))
    policies = [json.loads(each.inputs["policy"]) for each in of_kind(graph, "RolePolicy")]
    workspace = one(graph, "aws:amp/workspace:Workspace").outputs["arn"]
    readers = [each for each in policies if "aps:QueryMetrics" in str(each)]
    assert [each["Statement"][0]["Resource"] for each in readers] == [workspace, workspace]
    assert one(graph, "aws:grafana/workspace:Workspace")
