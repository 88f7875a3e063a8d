import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from kubernetes_schemas import schema_faults

from components._args import ArgumentError
from components.metrics_stack import MetricsStack
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.observe.dashboards import dashboards
from trainium_eks.observe.series import scraping
from trainium_eks.plan.graph import Graph, Resource

RELEASE = "kubernetes:helm.sh/v3:Release"
POLICY = "aws:iam/rolePolicy:RolePolicy"
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
WORKSPACE = "aws:amp/workspace:Workspace"
MONITORS = ("kubernetes:monitoring.coreos.com/v1:PodMonitor", "kubernetes:monitoring.coreos.com/v1:ServiceMonitor")
RULES = "kubernetes:monitoring.coreos.com/v1:PrometheusRule"
TOPIC = "arn:aws:sns:us-west-2:111122223333:oncall"
KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b"

Record = Callable[..., Graph]


def args(**more: Any) -> dict[str, Any]:
    return {"region": "us-west-2", "cluster_name": "trn-1", **more}


def built(record: Record, **more: Any) -> Graph:
    return record(lambda: MetricsStack("metrics", args(**more)))


def releases(graph: Graph) -> Mapping[str, Resource]:
    return {resource.inputs["name"]: resource for resource in graph.of_type(RELEASE)}


def values(record: Record, **more: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = releases(built(record, **more))["kube-prometheus-stack"].inputs["values"]
    return found


def statements(graph: Graph) -> dict[str, list[dict[str, Any]]]:
    """Name of each inline policy to its statements."""
    return {each.name: json.loads(each.inputs["policy"])["Statement"] for each in graph.of_type(POLICY)}


def test_prometheus_is_a_pinned_release_that_is_rolled_back_on_failure(record: Record) -> None:
    """Its chart makes the webhook's certificate in a hook, which helm.v4.Chart drops."""
    inputs = releases(built(record))["kube-prometheus-stack"].inputs
    chart = versions.CHARTS["kube-prometheus-stack"]
    assert (inputs["chart"], inputs["version"]) == (chart.chart, chart.version)
    assert inputs["repositoryOpts"] == {"repo": chart.repository}
    assert (inputs["namespace"], inputs["atomic"]) == ("monitoring", True)


def test_by_default_nothing_of_aws_is_made(record: Record) -> None:
    assert [each.type for each in built(record).resources if each.type.startswith("aws:")] == []


def test_what_eks_hides_is_not_asked(record: Record) -> None:
    found = values(record)
    for part in ("kubeEtcd", "kubeScheduler", "kubeControllerManager", "kubeProxy"):
        assert found[part] == {"enabled": False}, part
        assert not any(on for rule, on in found["defaultRules"]["rules"].items() if part.lower() in rule.lower())


def test_the_volume_is_never_full(record: Record) -> None:
    spec = values(record, volume_gib=100, retention_days=30)["prometheus"]["prometheusSpec"]
    assert (spec["retention"], spec["retentionSize"]) == ("30d", "85GiB")
    claim = spec["storageSpec"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"] == {"requests": {"storage": "100Gi"}}
    assert "storageClassName" not in claim


def test_everything_is_asked_as_often_as_the_config_says(record: Record) -> None:
    found = values(record, scrape_interval_seconds=60)
    spec = found["prometheus"]["prometheusSpec"]
    assert (spec["scrapeInterval"], spec["evaluationInterval"]) == ("60s", "60s")
    assert found["kubelet"]["serviceMonitor"]["cAdvisorInterval"] == "60s"


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


def test_kube_state_metrics_shows_the_labels_that_queries_join_by(record: Record) -> None:
    nodes, pods = values(record)["kube-state-metrics"]["metricLabelsAllowlist"]
    assert nodes.startswith("nodes=[")
    assert "eks.amazonaws.com/nodegroup" in nodes
    assert "node.kubernetes.io/instance-type" in nodes
    assert pods.startswith("pods=[")
    assert "volcano.sh/queue-name" in pods


def test_kube_state_metrics_shows_gangs(record: Record) -> None:
    state = values(record)["kube-state-metrics"]
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
    rules = {each.inputs["metadata"]["name"]: each for each in graph.of_type(RULES)}
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
    monitors = {each.inputs["metadata"]["name"]: each.inputs for each in graph.of_type(*MONITORS)}
    assert set(monitors) == {each.name for each in scraping.SCRAPES}
    for name, inputs in monitors.items():
        assert inputs["metadata"]["labels"] == {"release": "kube-prometheus-stack"}, name
        assert inputs["metadata"]["namespace"] == "monitoring", name
    assert schema_faults(graph) == []


def test_who_is_not_there_is_not_asked(record: Record) -> None:
    names = {each.inputs["metadata"]["name"] for each in built(record).of_type(*MONITORS)}
    assert names.isdisjoint({"efa-exporter", "fsx-exporter"})
    assert names >= {"neuron-monitor", "dcgm-exporter", "training", "volcano-scheduler"}


def test_monitors_wait_for_the_release_that_defines_them(record: Record) -> None:
    graph = built(record)
    release = releases(graph)["kube-prometheus-stack"].urn
    assert all(release in each.dependencies for each in graph.of_type(*MONITORS))


def test_prometheus_writes_to_its_workspace_and_to_no_other(record: Record) -> None:
    graph = built(record, managed_prometheus=True, kms_key_arn=KEY)
    [workspace] = graph.of_type(WORKSPACE)
    assert workspace.inputs["kmsKeyArn"] == KEY
    spec = releases(graph)["kube-prometheus-stack"].inputs["values"]["prometheus"]["prometheusSpec"]
    [remote] = spec["remoteWrite"]
    assert remote["url"] == f"{workspace.outputs['prometheusEndpoint']}api/v1/remote_write"
    assert remote["sigv4"] == {"region": "us-west-2"}
    assert spec["externalLabels"] == {"cluster": "trn-1"}
    allowed = {"Effect": "Allow", "Action": ["aps:RemoteWrite"], "Resource": workspace.outputs["arn"]}
    assert statements(graph) == {"metrics-prometheus": [allowed]}


def test_pods_start_after_their_roles_and_policies(record: Record) -> None:
    """Pod Identity gives credentials to a pod when it is made, or never."""
    graph = built(record, managed_prometheus=True, grafana={}, alerts={"topic_arn": TOPIC})
    associations = graph.of_type(ASSOCIATION)
    assert {each.inputs["serviceAccount"] for each in associations} == {
        "kube-prometheus-stack-prometheus",
        "kube-prometheus-stack-grafana",
        "kube-prometheus-stack-alertmanager",
    }
    release = releases(graph)["kube-prometheus-stack"]
    for each in associations:
        assert each.urn in release.dependencies
        assert any("RolePolicy" in urn for urn in each.dependencies)


def test_every_dashboard_is_given_to_grafana(record: Record) -> None:
    given = releases(built(record, grafana={}))["grafana-dashboards"].inputs["values"]["dashboards"]
    assert set(given) == set(dashboards())
    for text in given.values():
        # The API server takes objects of a mebibyte.
        assert len(text.encode()) < 2**19
        assert json.loads(text)["uid"]
    assert "grafana-dashboards" not in releases(built(record))


def test_without_grafana_there_is_none(record: Record) -> None:
    assert values(record)["grafana"] == {"enabled": False}
    assert values(record, grafana={"in_cluster": False, "managed": {}}, managed_prometheus=True)["grafana"] == {
        "enabled": False
    }


def test_grafana_is_reached_by_port_forwarding_alone(record: Record) -> None:
    grafana = values(record, grafana={})["grafana"]
    assert grafana["service"] == {"type": "ClusterIP"}
    assert grafana["ingress"] == {"enabled": False}
    assert grafana["grafana.ini"]["auth.anonymous"] == {"enabled": False}


def test_grafanas_password_is_nowhere_in_the_program(record: Record) -> None:
    """The chart makes one and keeps it in its Secret."""
    graph = built(record, grafana={}, managed_prometheus=True)
    assert graph.of_type("kubernetes:core/v1:Secret") == ()
    assert "password" not in json.dumps([each.inputs for each in graph.resources]).lower()


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
    [statement] = statements(built(record, grafana={}, managed_prometheus=True))["metrics-grafana"]
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
    publish, key = statements(graph)["metrics-alertmanager"]
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
    graph = built(record, file_system_id="fs-0123", exports_to_s3=True)
    config = yaml.safe_load(releases(graph)["fsx-exporter"].inputs["values"]["config"])
    storage, export = config["static"]
    assert storage["dimensions"] == [{"name": "FileSystemId", "value": "fs-0123"}]
    assert {"name": "Publisher", "value": "AutoExport"} in export["dimensions"]
    assert [each["name"] for each in export["metrics"]] == ["AgeOfOldestQueuedMessage"]
    assert statements(graph) == {
        "metrics-fsx-exporter": [{"Effect": "Allow", "Action": "cloudwatch:GetMetricStatistics", "Resource": "*"}]
    }


def test_what_exports_nothing_has_no_queue_to_read(record: Record) -> None:
    graph = built(record, file_system_id="fs-0123")
    config = yaml.safe_load(releases(graph)["fsx-exporter"].inputs["values"]["config"])
    assert [each["name"] for each in config["static"]] == ["fsx"]


def test_nobody_outside_gets_into_the_namespace_but_the_api_server(record: Record) -> None:
    [policy] = built(record).of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
    spec = policy.inputs["spec"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({}, ["Ingress"])
    own, webhook = spec["ingress"]
    assert own == {"from": [{"podSelector": {}}]}
    assert webhook == {"ports": [{"port": 10250, "protocol": "TCP"}]}


def test_a_users_values_are_laid_over_the_stacks(record: Record) -> None:
    found = values(record, values={"prometheus": {"prometheusSpec": {"replicas": 2}}})
    spec = found["prometheus"]["prometheusSpec"]
    assert (spec["replicas"], spec["retention"]) == (2, "15d")


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"retention_days": 0}, "retention_days"),
        ({"thresholds": {"idle_minutes": 0}}, "thresholds.idle_minutes"),
        ({"grafana": {"managed": {}}}, "grafana.managed"),
        ({"grafana": {"in_cluster": False}}, "grafana.in_cluster"),
        ({"efa_instance_types": ["trn1.2xlarge"]}, "efa_instance_types[0]"),
        ({"alerts": {"topic_arn": "arn:aws:sns:eu-west-1:111122223333:x"}}, "alerts.topic_arn"),
        ({"alerts": {"topic_arn": TOPIC, "topic_key_arn": "alias/x"}}, "alerts.topic_key_arn"),
        ({"permissions_boundary": "x"}, "permissions_boundary"),
    ],
)
def test_bad_args_are_refused_with_their_path(record: Record, more: dict[str, Any], path: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        built(record, **more)
    assert [each.path for each in raised.value.problems] == [path]
