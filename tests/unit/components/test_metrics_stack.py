import json

import pytest
import yaml
from kubernetes_schemas import schema_faults
from unit.components.parts import IAM_ROLE, LEAST, STACK, of_kind, one, recorder, releases, statements

from components.managed_grafana import ManagedGrafana
from components.metrics_stack import MetricsStack
from components.training_stack import TrainingStack
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.observe.dashboards import dashboards
from trainium_eks.observe.series import scraping

WORKSPACE = "aws:amp/workspace:Workspace"
MONITORS = ("PodMonitor", "ServiceMonitor")
TOPIC = "arn:aws:sns:us-west-2:111122223333:oncall"
KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b"
built = recorder(MetricsStack, "metrics", LEAST["MetricsStack"])


def values(graph):
    return releases(graph)["kube-prometheus-stack"].inputs["values"]


@pytest.fixture(scope="module")
def managed(record):
    return built(record, grafana={}, managed_prometheus=True, kms_key_arn=KEY)


def test_prometheus_is_a_pinned_release_that_is_rolled_back_on_failure(plain):
    """Its chart makes the webhook's certificate in a hook, which helm.v4.Chart drops."""
    assert [each.type for each in plain.resources if each.type.startswith("aws:")] == []
    inputs = releases(plain)["kube-prometheus-stack"].inputs
    chart = versions.CHARTS["kube-prometheus-stack"]
    assert (inputs["chart"], inputs["version"]) == (chart.chart, chart.version)
    assert inputs["repositoryOpts"] == {"repo": chart.repository}
    assert (inputs["namespace"], inputs["atomic"]) == ("monitoring", True)
    # Only the API server reaches the namespace from outside.
    spec = one(plain, "NetworkPolicy").inputs["spec"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({}, ["Ingress"])
    webhook = {"ports": [{"port": 10250, "protocol": "TCP"}]}
    assert spec["ingress"] == [{"from": [{"podSelector": {}}]}, webhook]


def test_prometheus_reads_only_its_namespace_and_skips_hidden_eks_parts(plain):
    """A team that could make a rule or a monitor would have the stack's Prometheus ask for it."""
    found = values(plain)
    for part in ("kubeEtcd", "kubeScheduler", "kubeControllerManager", "kubeProxy"):
        assert found[part] == {"enabled": False}, part
        assert not any(on for rule, on in found["defaultRules"]["rules"].items() if part.lower() in rule.lower())
    for kind in ("serviceMonitor", "podMonitor", "probe", "scrapeConfig", "rule"):
        labels = found["prometheus"]["prometheusSpec"][f"{kind}NamespaceSelector"]["matchLabels"]
        assert labels == {"kubernetes.io/metadata.name": "monitoring"}, kind
    # The node exporter is on every node and says which.
    node = found["prometheus-node-exporter"]
    assert node["tolerations"] == [{"operator": "Exists"}]
    assert node["prometheus"]["monitor"]["relabelings"] == [dict(scraping.NODE)]
    # kube-state-metrics shows gangs, and the labels that queries join by.
    state = found["kube-state-metrics"]
    nodes, pods = state["metricLabelsAllowlist"]
    assert (nodes.partition("[")[0], pods.partition("[")[0]) == ("nodes=", "pods=")
    assert all(label in nodes for label in ("eks.amazonaws.com/nodegroup", "node.kubernetes.io/instance-type"))
    assert "volcano.sh/queue-name" in pods
    (podgroups,) = state["customResourceState"]["config"]["spec"]["resources"]
    assert (state["customResourceState"]["enabled"], podgroups["groupVersionKind"]["kind"]) == (True, "PodGroup")
    reads = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["list", "watch"]}
    assert state["rbac"]["extraRules"] == [reads]


def test_rules_and_alerts_select_this_prometheus_and_wait_for_their_crd(record):
    own = with_entries(CATALOGUE, {"trn1.32xlarge": {"hourlyUsd": 12.5}})
    kinds = ["trn1.32xlarge", "p5.48xlarge"]
    graph = built(record, instance_types=kinds, catalogue=own, thresholds={"idle_minutes": 45})
    found = {each.inputs["metadata"]["name"]: each for each in of_kind(graph, "PrometheusRule")}
    for each in found.values():
        assert each.inputs["metadata"]["labels"] == {"release": "kube-prometheus-stack"}
        assert releases(graph)["kube-prometheus-stack"].urn in each.dependencies
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


def test_every_monitor_is_labelled_for_this_prometheus(record, plain):
    def monitors(graph):
        return {each.inputs["metadata"]["name"]: each.inputs["metadata"] for each in of_kind(graph, *MONITORS)}

    graph = built(record, efa_instance_types=["trn1.32xlarge"], file_system_id="fs-00000001")
    assert set(monitors(graph)) == {each.name for each in scraping.SCRAPES}
    for name, metadata in monitors(graph).items():
        assert metadata["labels"] == {"release": "kube-prometheus-stack"}, name
        assert metadata["namespace"] == "monitoring", name
    assert schema_faults(graph) == []
    # Who is not there is not asked.
    assert monitors(graph).keys() - monitors(plain).keys() == {"efa-exporter", "fsx-exporter"}


def test_prometheus_writes_to_its_workspace_and_grafana_reads_only_it(record, managed):
    workspace = one(managed, WORKSPACE)
    assert workspace.inputs["kmsKeyArn"] == KEY
    spec = values(managed)["prometheus"]["prometheusSpec"]
    [remote] = spec["remoteWrite"]
    assert remote["url"] == f"{workspace.outputs['prometheusEndpoint']}api/v1/remote_write"
    assert remote["sigv4"] == {"region": "us-west-2"}
    assert spec["externalLabels"] == {"cluster": "trn-1"}
    allowed = {"Effect": "Allow", "Action": ["aps:RemoteWrite"], "Resource": workspace.outputs["arn"]}
    policies = [json.loads(each.inputs["policy"])["Statement"] for each in of_kind(managed, "RolePolicy")]
    assert [allowed] in policies
    [statement] = statements(managed, "metrics-grafana")
    assert all(action.startswith(("aps:Query", "aps:Get")) for action in statement["Action"])
    assert ":workspace/" in statement["Resource"]
    # Dashboards find their data source whatever stands behind it.
    own = values(built(record, grafana={}))["grafana"]
    assert own["sidecar"]["datasources"]["uid"] == "prometheus"
    assert "plugins" not in own
    grafana = values(managed)["grafana"]
    [source] = grafana["additionalDataSources"]
    assert (source["uid"], source["isDefault"]) == ("prometheus", True)
    assert f"{source['type']}@" in versions.GRAFANA_AMP_PLUGIN
    # In the background: by the chart's `plugins` Grafana, and with it the release, waits for grafana.com.
    assert grafana["grafana.ini"]["plugins"] == {"preinstall": versions.GRAFANA_AMP_PLUGIN}
    assert "plugins" not in grafana
    assert source["jsonData"]["sigV4AuthType"] == "default"
    beside = grafana["sidecar"]["datasources"]
    assert (beside["uid"], beside["isDefaultDatasource"]) == ("prometheus-cluster", False)


def test_grafana_has_every_dashboard_and_no_public_address(record, plain, managed):
    given = releases(managed)["grafana-dashboards"].inputs["values"]["dashboards"]
    assert set(given) == set(dashboards())
    for text in given.values():
        # The API server takes objects of a mebibyte.
        assert len(text.encode()) < 2**19
        assert json.loads(text)["uid"]
    assert "grafana-dashboards" not in releases(plain)
    grafana = values(managed)["grafana"]
    assert (grafana["service"], grafana["ingress"]) == ({"type": "ClusterIP"}, {"enabled": False})
    assert grafana["grafana.ini"]["auth.anonymous"] == {"enabled": False}
    # Its chart makes a password and keeps it in its Secret.
    assert of_kind(managed, "Secret") == ()
    assert "password" not in json.dumps([each.inputs for each in managed.resources]).lower()
    outside = built(record, grafana={"in_cluster": False, "managed": {}}, managed_prometheus=True)
    for none in (plain, outside):
        assert values(none)["grafana"] == {"enabled": False}


def test_retention_size_fits_the_volume_and_pods_keep_their_zone(record, managed):
    selector, own = {"trainium-eks/pool": "cpu"}, {"prometheus": {"prometheusSpec": {"replicas": 2}}}
    asked = {"volume_gib": 100, "retention_days": 30, "scrape_interval_seconds": 60, "values": own}
    found = values(built(record, **asked, grafana={}, alerts={"topic_arn": TOPIC}, node_selector=selector))
    spec = found["prometheus"]["prometheusSpec"]
    assert (spec["retention"], spec["retentionSize"], spec["replicas"]) == ("30d", "85GiB", 2)
    assert (spec["scrapeInterval"], spec["evaluationInterval"]) == ("60s", "60s")
    assert found["kubelet"]["serviceMonitor"]["cAdvisorInterval"] == "60s"
    claim = spec["storageSpec"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"] == {"requests": {"storage": "100Gi"}}
    assert "storageClassName" not in claim
    pods = found["prometheus"]["prometheusSpec"], found["alertmanager"]["alertmanagerSpec"], found["grafana"]
    assert [each["nodeSelector"] for each in pods] == [selector] * 3
    assert "nodeSelector" not in values(managed)["grafana"]


def test_alerts_are_sent_only_to_the_topic(record, plain):
    assert values(plain)["alertmanager"] == {"enabled": False}
    graph = built(record, alerts={"topic_arn": TOPIC, "topic_key_arn": KEY})
    config = values(graph)["alertmanager"]["config"]
    assert config["route"]["receiver"] == "topic"
    receivers = {each["name"]: each for each in config["receivers"]}
    assert receivers["topic"]["sns_configs"][0]["topic_arn"] == TOPIC
    # What is always on says that alerting works, and is no news.
    assert config["route"]["routes"][0]["receiver"] in receivers
    publish, key = statements(graph)
    assert (publish["Action"], publish["Resource"], key["Resource"]) == (["sns:Publish"], TOPIC, KEY)
    assert key["Condition"] == {"StringEquals": {"kms:ViaService": "sns.us-west-2.amazonaws.com"}}


def test_counters_of_efa_and_of_the_file_system_are_exported(record):
    kinds = ["trn1.32xlarge", "p5.48xlarge"]
    graph = built(record, efa_instance_types=kinds, file_system_id="fs-00000123", exports_to_s3=True)
    efa = releases(graph)["efa-exporter"].inputs
    assert (efa["values"]["instanceTypes"], efa["skipAwait"]) == (sorted(kinds), True)
    assert {each["key"] for each in efa["values"]["tolerations"]} == {"aws.amazon.com/neuron", "nvidia.com/gpu"}
    storage, export = _read(graph)
    assert storage["dimensions"] == [{"name": "FileSystemId", "value": "fs-00000123"}]
    assert {"name": "Publisher", "value": "AutoExport"} in export["dimensions"]
    assert [each["name"] for each in export["metrics"]] == ["AgeOfOldestQueuedMessage"]
    assert statements(graph) == [{"Effect": "Allow", "Action": "cloudwatch:GetMetricStatistics", "Resource": "*"}]
    # What exports nothing has no queue to read.
    assert [each["name"] for each in _read(built(record, file_system_id="fs-00000123"))] == ["fsx"]


def _read(graph):
    return yaml.safe_load(releases(graph)["fsx-exporter"].inputs["values"]["config"])["static"]


@pytest.mark.parametrize("authentication", ["AWS_SSO", "SAML"])
def test_managed_grafana_authenticates_users_and_reads_one_workspace(record, authentication):
    """AWS' own choice of permissions reads every workspace of the account."""
    graph = record(lambda: ManagedGrafana("grafana", {**LEAST["ManagedGrafana"], "authentication": authentication}))
    inputs = one(graph, "aws:grafana/workspace:Workspace").inputs
    assert (inputs["authenticationProviders"], inputs["permissionType"]) == ([authentication], "CUSTOMER_MANAGED")
    [statement] = statements(graph)
    assert statement["Resource"] == LEAST["ManagedGrafana"]["workspace_arn"]
    assert "aps:QueryMetrics" in statement["Action"]
    assert not any("Write" in action or "Create" in action for action in statement["Action"])
    trust = json.loads(one(graph, IAM_ROLE).inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Service": "grafana.amazonaws.com"}


def test_stack_has_metrics_only_on_request(record):
    observed = {"metrics": {"managed_prometheus": True}, "grafana": {"managed": {}}}
    graph = record(lambda: TrainingStack("trn-dev", {**STACK, "observability": observed}))
    policies = [json.loads(each.inputs["policy"]) for each in of_kind(graph, "RolePolicy")]
    readers = [each["Statement"][0]["Resource"] for each in policies if "aps:QueryMetrics" in str(each)]
    assert readers == [one(graph, WORKSPACE).outputs["arn"]] * 2
    assert one(graph, "aws:grafana/workspace:Workspace")
