from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from kubernetes_schemas import object_faults
from unit.components.parts import Record, of_kind, one, releases
from unit.model.config.test_config import FULL

from components._args import ArgumentError
from components._pods import Program
from components.volcano_stack import VolcanoStack, VolcanoStackArgs, queue_spec, validate
from trainium_eks.model.catalogue import versions
from trainium_eks.model.sizing import priorities
from trainium_eks.model.sizing.queues import QUEUE_API, QueueConfig
from trainium_eks.model.validation.config_model import read
from trainium_eks.plan.graph import Graph, Resource

QUEUE = "kubernetes:scheduling.volcano.sh/v1beta1:Queue"
NEURON, EFA = "aws.amazon.com/neuron", "vpc.amazonaws.com/efa"
POOL = {NEURON: 64, EFA: 32}


def built(record: Record, **args: Any) -> Graph:
    return record(lambda: VolcanoStack("volcano", {"pool": POOL, **args}))


def values(record: Record, **args: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = releases(built(record, **args))["volcano"].inputs["values"]
    return found


def scheduler(record: Record, **args: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(values(record, **args)["custom"]["scheduler_config_override"])
    return found


def queues(graph: Graph) -> Mapping[str, Resource]:
    return {resource.inputs["metadata"]["name"]: resource for resource in of_kind(graph, QUEUE)}


def outputs(graph: Graph) -> Mapping[str, Any]:
    (component,) = of_kind(graph, "VolcanoStack")
    return component.outputs


def test_volcano_is_a_real_helm_release_pinned_and_rolled_back_on_failure(record: Record) -> None:
    """Its chart makes the webhook's certificate in a hook, which helm.v4.Chart drops."""
    inputs = releases(built(record))["volcano"].inputs
    chart = versions.CHARTS["volcano"]
    assert (inputs["chart"], inputs["version"]) == (chart.chart, chart.version)
    assert inputs["repositoryOpts"] == {"repo": chart.repository}
    assert inputs["namespace"] == "volcano-system"
    assert (inputs["atomic"], inputs["cleanupOnFail"]) == (True, True)
    assert (inputs["timeout"], inputs["maxHistory"]) == (600, 5)
    assert inputs["values"]["basic"]["image_tag_version"] == f"v{chart.version}"
    assert values(record, image_registry="a.io/hub")["basic"]["image_registry"] == "a.io/hub"


def test_a_gang_of_a_thousand_does_not_wait_for_the_controllers_rates(record: Record) -> None:
    """The chart's 50 requests a second and three threads make it wait a minute."""
    custom = values(record)["custom"]
    assert (custom["controller_kube_api_qps"], custom["controller_kube_api_burst"]) == (1000, 2000)
    threads = [custom[f"controller_worker_threads{suffix}"] for suffix in ("", "_for_gc", "_for_podgroup")]
    assert threads == [16, 8, 16]
    assert (custom["scheduler_kube_api_qps"], custom["scheduler_kube_api_burst"]) == (2000, 2000)
    assert custom["scheduler_percentage_nodes_to_find"] == 10
    assert custom["controller_resources"]["limits"] == {"cpu": "2", "memory": "2Gi"}
    # Nor has the log a line for each pod.
    assert {custom[f"{each}_log_level"] for each in ("scheduler", "controller", "admission")} == {2}


def test_two_copies_elect_a_leader_and_survive_a_drain_on_different_nodes(record: Record) -> None:
    """R58."""
    graph = built(record)
    custom = releases(graph)["volcano"].inputs["values"]["custom"]
    assert custom["leader_elect_enable"] is True
    for name in ("scheduler", "controller", "admission"):
        assert custom[f"{name}_replicas"] == 2
        assert set(custom[f"{name}_resources"]) == {"requests", "limits"}
        (term,) = custom[f"{name}_affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == {"app": f"volcano-{name}"}
    budgets = [each.inputs["spec"] for each in of_kind(graph, "PodDisruptionBudget")]
    selected = {spec["selector"]["matchLabels"]["app"]: spec["maxUnavailable"] for spec in budgets}
    assert selected == {"volcano-scheduler": 1, "volcano-controller": 1, "volcano-admission": 1}
    assert not [key for key in custom if key.endswith("tolerations")], "nothing of Volcano runs on accelerators"


def test_a_single_copy_elects_nobody_and_does_not_block_drains(record: Record) -> None:
    graph = built(record, replicas=1, waivers={"R58": "a cluster for trying things out"})
    assert releases(graph)["volcano"].inputs["values"]["custom"]["leader_elect_enable"] is False
    assert of_kind(graph, "PodDisruptionBudget") == ()


def test_webhooks_leave_the_clusters_own_namespaces_alone(record: Record) -> None:
    (expression,) = values(record)["custom"]["webhooks_namespace_selector_expressions"]
    assert (expression["key"], expression["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    assert {"kube-system", "volcano-system"} <= set(expression["values"])


def test_a_pool_that_rests_at_zero_gives_pods_to_jobs_without_a_node(record: Record) -> None:
    """R60, and row 46 of the bad inputs: otherwise the nodes never come."""

    def plugins(**args: Any) -> set[str]:
        return {plugin["name"] for tier in scheduler(record, **args)["tiers"] for plugin in tier["plugins"]}

    assert "overcommit" not in plugins(rests_at_zero=True)
    assert {"overcommit", "proportion"} <= plugins(rests_at_zero=False)
    # Capacity replaces proportion where queues say what they deserve.
    deserving = plugins(queues=[{"name": "test", "deserved": {NEURON: 32}}])
    assert "capacity" in deserving
    assert "proportion" not in deserving


def test_hypernodes_are_kept_by_a_controller_and_by_no_discovery_of_volcanos(record: Record) -> None:
    graph = built(record, topology_labels=("zone", "switch"))
    assert "controller_config_override" not in releases(graph)["volcano"].inputs["values"]["custom"]
    (deployment,) = of_kind(graph, "Deployment")
    # Its definitions, and the end of the discovery of earlier releases, come with Volcano's.
    assert releases(graph)["volcano"].urn in deployment.dependencies
    (container,) = deployment.inputs["spec"]["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["zone", "switch"]
    (role,) = of_kind(graph, "ClusterRole")
    rights = {each["resources"][0]: set(each["verbs"]) for each in role.inputs["rules"]}
    assert rights == {
        "nodes": {"get", "list", "watch"},
        "hypernodes": {"list", "create", "patch", "delete"},
    }
    assert of_kind(built(record, topology_labels=()), "Deployment") == ()


def test_the_controllers_pod_starts_anew_with_other_code(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    def annotations() -> Any:
        (deployment,) = of_kind(built(record), "Deployment")
        return deployment.inputs["spec"]["template"]["metadata"]["annotations"]

    before = annotations()
    assert annotations() == before
    monkeypatch.setattr(Program, "sources", lambda _: dict.fromkeys(("tree.py", "controller.py", "api.py"), ""))
    assert annotations() != before


def test_a_queue_caps_devices_and_takes_the_pool_where_it_says_nothing(record: Record) -> None:
    queue = queues(built(record))["test"]
    assert queue.inputs["spec"] == {"weight": 1, "reclaimable": True, "capability": POOL}
    assert queue.inputs["apiVersion"] == "scheduling.volcano.sh/v1beta1"


def test_every_setting_of_a_queue_reaches_it_under_volcanos_name() -> None:
    (given,) = FULL["queues"]
    spec = queue_spec(read(QueueConfig, given))
    assert spec.keys() == given.keys() - {"name"}
    assert object_faults({"apiVersion": QUEUE_API, "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}) == []


def test_queues_wait_for_volcanos_admission(record: Record) -> None:
    """Row 45: before its webhook answers, the API server refuses every queue."""
    graph = built(record)
    assert releases(graph)["volcano"].urn in queues(graph)["test"].dependencies


def test_child_queues_come_after_their_parent_in_whatever_order_they_are_given(record: Record) -> None:
    given = [
        {"name": "leaf", "parent": "team", "capability": {NEURON: 16}},
        {"name": "team", "parent": "all", "capability": {NEURON: 32}},
        {"name": "all", "capability": POOL},
    ]
    made = queues(built(record, queues=given))
    assert made["leaf"].inputs["spec"]["parent"] == "team"
    assert made["team"].urn in made["leaf"].dependencies
    assert made["all"].urn in made["team"].dependencies
    assert made["team"].urn not in made["all"].dependencies


def test_queue_names_are_those_that_take_jobs(record: Record) -> None:
    given = [
        {"name": "team", "capability": POOL},
        {"name": "b", "parent": "team", "capability": {NEURON: 16}},
        {"name": "a", "parent": "team", "capability": {NEURON: 16}},
        {"name": "solo", "capability": {NEURON: 16}},
    ]
    assert outputs(built(record, queues=given))["queue_names"] == ["b", "a", "solo"]
    assert outputs(built(record))["queue_names"] == ["test"]


def test_priorities_order_what_waits_and_stop_nothing_that_runs(record: Record) -> None:
    levels = of_kind(built(record), "PriorityClass")
    assert {each.inputs["metadata"]["name"] for each in levels} == set(priorities.NAMES)
    assert {(each.inputs["preemptionPolicy"], each.inputs["globalDefault"]) for each in levels} == {("Never", False)}


def test_only_webhook_and_metrics_ports_of_a_baseline_namespace_are_open(record: Record) -> None:
    graph = built(record)
    home, spec = one(graph, "Namespace").inputs["metadata"], one(graph, "NetworkPolicy").inputs["spec"]
    assert home["name"] == outputs(graph)["namespace"] == "volcano-system"
    assert home["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    assert spec["podSelector"] == {}
    (rule,) = spec["ingress"]
    assert [port["port"] for port in rule["ports"]] == [8443, 8080, 8081]


def test_etcd_is_installed_in_a_restricted_namespace_for_the_named_ones(record: Record) -> None:
    graph = built(record, rendezvous="etcd", rendezvous_namespaces=["training", "research"])
    etcd = releases(graph)["torchx-etcd"]
    assert etcd.inputs["chart"].endswith("charts/torchx-etcd")
    assert etcd.inputs["values"]["image"] == versions.IMAGES["etcd"]
    assert etcd.inputs["values"]["clientNamespaces"] == ["research", "training"]
    assert len(etcd.inputs["values"]["chartDigest"]) == 64
    homes = {home.inputs["metadata"]["name"]: home for home in of_kind(graph, "Namespace")}
    labels = homes["torchx-etcd"].inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert homes["torchx-etcd"].urn in etcd.dependencies
    assert outputs(graph)["rendezvous_endpoint"] == "etcd-server.torchx-etcd.svc.cluster.local:2379"
    assert outputs(built(record))["rendezvous_endpoint"] == ""


@pytest.mark.parametrize(
    ("rule", "risky"), [("R58", {"replicas": 1}), ("R60", {"scale_from_zero": False, "rests_at_zero": True})]
)
def test_a_risk_is_taken_only_with_a_reason(record: Record, rule: str, risky: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=rule):
        VolcanoStack("volcano", {"pool": POOL, **risky})
    assert set(releases(built(record, **risky, waivers={rule: "torn down every night"}))) == {"volcano"}


def test_etcd_that_no_namespace_may_reach_is_warned_of() -> None:
    (warning,) = validate(VolcanoStackArgs(pool=POOL, rendezvous="etcd"))
    assert (warning.path, warning.severity.value) == ("rendezvous_namespaces", "warn")
