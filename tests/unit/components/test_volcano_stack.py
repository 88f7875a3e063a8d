import yaml
from kubernetes_schemas import object_faults
from unit.components.parts import of_kind, one, recorder, releases
from unit.model.config.test_config import FULL

from components._pods import Program
from components.volcano_stack import VolcanoStack, VolcanoStackArgs, queue_spec, validate
from trainium_eks.model.catalogue import versions
from trainium_eks.model.sizing import priorities
from trainium_eks.model.sizing.queues import QUEUE_API, QueueConfig
from trainium_eks.model.validation.config_model import read

QUEUE = "kubernetes:scheduling.volcano.sh/v1beta1:Queue"
NEURON, EFA = "aws.amazon.com/neuron", "vpc.amazonaws.com/efa"
POOL = {NEURON: 64, EFA: 32}
built = recorder(VolcanoStack, "volcano", {"pool": POOL})


def values(graph):
    return releases(graph)["volcano"].inputs["values"]


def queues(graph):
    return {resource.inputs["metadata"]["name"]: resource for resource in of_kind(graph, QUEUE)}


def outputs(graph):
    return one(graph, "VolcanoStack").outputs


def test_volcano_is_a_real_helm_release_pinned_and_rolled_back_on_failure(record, plain):
    """Its chart makes the webhook's certificate in a hook, which helm.v4.Chart drops."""
    inputs = releases(plain)["volcano"].inputs
    chart = versions.CHARTS["volcano"]
    assert (inputs["chart"], inputs["version"]) == (chart.chart, chart.version)
    assert (inputs["repositoryOpts"], inputs["namespace"]) == ({"repo": chart.repository}, "volcano-system")
    bounds = [inputs[key] for key in ("atomic", "cleanupOnFail", "timeout", "maxHistory")]
    assert bounds == [True, True, 600, 5]
    assert inputs["values"]["basic"]["image_tag_version"] == f"v{chart.version}"
    assert values(built(record, image_registry="a.io/hub"))["basic"]["image_registry"] == "a.io/hub"
    # Webhooks leave the cluster's own namespaces alone.
    (expression,) = inputs["values"]["custom"]["webhooks_namespace_selector_expressions"]
    assert (expression["key"], expression["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    assert {"kube-system", "volcano-system"} <= set(expression["values"])


def test_two_schedulers_elect_a_leader_and_handle_a_gang_of_a_thousand(record, plain):
    """R58."""
    custom = values(plain)["custom"]
    assert custom["leader_elect_enable"] is True
    for name in ("scheduler", "controller", "admission"):
        assert custom[f"{name}_replicas"] == 2
        assert set(custom[f"{name}_resources"]) == {"requests", "limits"}
        (term,) = custom[f"{name}_affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == {"app": f"volcano-{name}"}
    budgets = [each.inputs["spec"] for each in of_kind(plain, "PodDisruptionBudget")]
    selected = {spec["selector"]["matchLabels"]["app"]: spec["maxUnavailable"] for spec in budgets}
    assert selected == {"volcano-scheduler": 1, "volcano-controller": 1, "volcano-admission": 1}
    assert not [key for key in custom if key.endswith("tolerations")], "nothing of Volcano runs on accelerators"
    # A single copy has no election and does not block drains.
    single = built(record, replicas=1, waivers={"R58": "a cluster for trying things out"})
    assert values(single)["custom"]["leader_elect_enable"] is False
    assert of_kind(single, "PodDisruptionBudget") == ()
    # The chart's 50 requests a second and three threads make a gang of a thousand wait a minute.
    for name, rates in (("controller", (1000, 2000)), ("scheduler", (2000, 2000))):
        assert (custom[f"{name}_kube_api_qps"], custom[f"{name}_kube_api_burst"]) == rates
    threads = [custom[f"controller_worker_threads{suffix}"] for suffix in ("", "_for_gc", "_for_podgroup")]
    assert threads == [16, 8, 16]
    assert custom["scheduler_percentage_nodes_to_find"] == 10
    assert custom["controller_resources"]["limits"] == {"cpu": "2", "memory": "2Gi"}
    # Nor has the log a line for each pod.
    assert {custom[f"{each}_log_level"] for each in ("scheduler", "controller", "admission")} == {2}


def test_scale_from_zero_pool_enqueues_jobs_without_a_node(record):
    def plugins(**args):
        config = yaml.safe_load(values(built(record, **args))["custom"]["scheduler_config_override"])
        return {plugin["name"] for tier in config["tiers"] for plugin in tier["plugins"]}

    assert "overcommit" not in plugins(rests_at_zero=True)
    assert {"overcommit", "proportion"} <= plugins(rests_at_zero=False)
    assert "capacity" in plugins(queues=[{"name": "test", "deserved": {NEURON: 32}}])
    assert set(releases(built(record, scale_from_zero=False, rests_at_zero=True, waivers={"R60": "x"}))) == {"volcano"}


def test_hypernodes_come_from_the_controller_and_not_from_discovery(record, plain, monkeypatch):
    graph = built(record, topology_labels=("zone", "switch"))
    assert "controller_config_override" not in values(graph)["custom"]
    deployment = one(graph, "Deployment")
    # Its definitions, and the end of the discovery of earlier releases, come with Volcano's.
    assert releases(graph)["volcano"].urn in deployment.dependencies
    (container,) = deployment.inputs["spec"]["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["zone", "switch"]
    rules = one(graph, "ClusterRole").inputs["rules"]
    rights = {each["resources"][0]: set(each["verbs"]) for each in rules}
    assert rights == {"nodes": {"get", "list", "watch"}, "hypernodes": {"list", "create", "patch", "delete"}}
    assert of_kind(built(record, topology_labels=()), "Deployment") == ()
    # Its pod restarts with changed code, and only then.
    again = built(record)
    monkeypatch.setattr(Program, "sources", lambda _: dict.fromkeys(("tree.py", "controller.py", "api.py"), ""))
    before, same, other = (
        one(each, "Deployment").inputs["spec"]["template"]["metadata"]["annotations"]
        for each in (plain, again, built(record))
    )
    assert before == same != other


def test_queues_wait_for_volcanos_webhook(plain):
    """Row 45: before its webhook answers, the API server refuses every queue."""
    queue = queues(plain)["test"]
    assert releases(plain)["volcano"].urn in queue.dependencies
    # It takes the pool where it says nothing, and every setting under Volcano's name.
    assert queue.inputs["spec"] == {"weight": 1, "reclaimable": True, "capability": POOL}
    assert queue.inputs["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    (given,) = FULL["queues"]
    spec = queue_spec(read(QueueConfig, given))
    assert spec.keys() == given.keys() - {"name"}
    assert object_faults({"apiVersion": QUEUE_API, "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}) == []


def test_child_queue_is_created_after_its_parent_in_any_order(record, plain):
    given = [
        {"name": "leaf", "parent": "team", "capability": {NEURON: 16}},
        {"name": "other", "parent": "team", "capability": {NEURON: 16}},
        {"name": "team", "parent": "all", "capability": {NEURON: 32}},
        {"name": "all", "capability": POOL},
    ]
    graph = built(record, queues=given)
    made = queues(graph)
    assert made["leaf"].inputs["spec"]["parent"] == "team"
    assert made["team"].urn in made["leaf"].dependencies
    assert made["all"].urn in made["team"].dependencies
    assert made["team"].urn not in made["all"].dependencies
    # Those that take jobs have no children.
    assert outputs(graph)["queue_names"] == ["leaf", "other"]
    assert outputs(plain)["queue_names"] == ["test"]


def test_priorities_do_not_preempt_and_few_ports_are_open(plain):
    levels = of_kind(plain, "PriorityClass")
    assert {each.inputs["metadata"]["name"] for each in levels} == set(priorities.NAMES)
    assert {(each.inputs["preemptionPolicy"], each.inputs["globalDefault"]) for each in levels} == {("Never", False)}
    home, spec = one(plain, "Namespace").inputs["metadata"], one(plain, "NetworkPolicy").inputs["spec"]
    assert home["name"] == outputs(plain)["namespace"] == "volcano-system"
    assert home["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    (rule,) = spec["ingress"]
    assert (spec["podSelector"], [port["port"] for port in rule["ports"]]) == ({}, [8443, 8080, 8081])


def test_etcd_is_installed_in_a_restricted_namespace(record, plain):
    graph = built(record, rendezvous="etcd", rendezvous_namespaces=["training", "research"])
    etcd, home = releases(graph)["torchx-etcd"], one(graph, "Namespace", "etcd")
    assert etcd.inputs["chart"].endswith("charts/torchx-etcd")
    assert etcd.inputs["values"]["image"] == versions.IMAGES["etcd"]
    assert etcd.inputs["values"]["clientNamespaces"] == ["research", "training"]
    assert len(etcd.inputs["values"]["chartDigest"]) == 64
    metadata = home.inputs["metadata"]
    assert metadata["name"] == "torchx-etcd"
    assert metadata["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert home.urn in etcd.dependencies
    assert outputs(graph)["rendezvous_endpoint"] == "etcd-server.torchx-etcd.svc.cluster.local:2379"
    assert outputs(plain)["rendezvous_endpoint"] == ""
    # One that no namespace may reach is warned of.
    (warning,) = validate(VolcanoStackArgs(pool=POOL, rendezvous="etcd"))
    assert (warning.path, warning.severity.value) == ("rendezvous_namespaces", "warn")
