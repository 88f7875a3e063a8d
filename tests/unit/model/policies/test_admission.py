"""The admission expressions, evaluated: who gets past, and who does not. ``tests/local/test_teams.py`` asks a real API
server the same."""

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import celpy
import pytest

from trainium_eks.model.catalogue.instances import FABRIC_UNTESTED
from trainium_eks.model.policies import admission, researchers
from trainium_eks.model.policies.admission import Limits
from trainium_eks.model.sizing import quotas
from trainium_eks.model.sizing.quantities import quantity

GROUP = "trainium-eks:team:researchers"
LIMITS = Limits(
    ("test", "big"),
    ("training-low", "training-high"),
    pods=100,
    finished_pods=400,
    jobs=50,
    counted_requests=("cpu",),
    closed_storage_classes=("fsx",),
    researchers=GROUP,
    service_accounts=("default", "training"),
    reserved_names=("default-deny",),
)
POLICIES = admission.policies(LIMITS, researchers.written())
NEURON = {"resources": {"limits": {"aws.amazon.com/neuron": "16"}, "requests": {"aws.amazon.com/neuron": "16"}}}
IN_GROUP = {"scheduling.k8s.io/group-name": "podgroup-1"}
CONTROLLERS = ("system:serviceaccounts",)
ON_TRAINIUM = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}

Json = dict[str, Any]

FUNCTIONS = {
    "quantity": lambda text: celpy.celtypes.DoubleType(float(quantity(str(text)) or 0)),
    "isInteger": lambda one: celpy.celtypes.BoolType(float(one).is_integer()),
    "asInteger": lambda one: celpy.celtypes.IntType(int(one)),
    "isGreaterThan": lambda one, other: celpy.celtypes.BoolType(one > other),
    "format": lambda _, values: celpy.celtypes.StringType(json.dumps(values, cls=celpy.CELJSONEncoder)),
    "sum": lambda numbers: celpy.celtypes.IntType(sum(numbers)),
}
"""Of Kubernetes' own CEL library."""


ENVIRONMENT = celpy.Environment()


@functools.cache
def program(expression: str) -> celpy.Runner:
    return ENVIRONMENT.program(ENVIRONMENT.compile(expression), functions=FUNCTIONS)


def refusals(
    name: str,
    asked: Mapping[str, Any],
    old: Mapping[str, Any] | None = None,
    groups: Sequence[str] = (GROUP,),
    about: str = "",
) -> list[str]:
    """Return the messages of the validations of a policy that an object fails; only those with a text are evaluated."""
    policy = POLICIES[name]
    operation = policy.operations[0] if old is None else "UPDATE"
    request = {"operation": operation, "userInfo": {"groups": list(groups)}, "options": asked.get("options", {})}
    known = celpy.celtypes.MapType()
    context: dict[str, Any] = {
        "object": celpy.json_to_cel({"metadata": {"name": "name"}, **asked}),
        "oldObject": None if old is None else celpy.json_to_cel({"metadata": {"name": "name"}, **old}),
        "request": celpy.json_to_cel(request),
        "variables": known,
    }
    defined = {each.name: each.expression for each in policy.variables}

    def value(expression: str) -> Any:
        for variable in re.findall(r"variables\.(\w+)", expression):
            if variable not in known:
                known[celpy.celtypes.StringType(variable)] = value(defined[variable])
        return program(expression).evaluate(context)

    if policy.condition and not value(policy.condition):
        return []
    return [
        str(value(each.details)) if each.details else each.message
        for each in policy.validations
        if about in each.message and not value(each.expression)
    ]


def spec(*containers: Json, **more: Any) -> Json:
    return {"containers": list(containers) or [{"name": "c"}], **more}


def pod(*containers: Json, annotations: Mapping[str, str] | None = None, **more: Any) -> Json:
    metadata = {"name": "pod", **({"annotations": dict(annotations)} if annotations is not None else {})}
    return {"metadata": metadata, "spec": spec(*containers, **{"schedulerName": "volcano", **more})}


def vcjob(*specs: Json, **more: Any) -> Json:
    tasks = [{"name": f"task-{index}", "template": {"spec": each}} for index, each in enumerate(specs)]
    return {"kind": "Job", "spec": {"tasks": tasks, "schedulerName": "volcano", "queue": "test", **more}}


def queued(queue: str | None, **more: Any) -> Json:
    return {"spec": {"minAvailable": 2, **({"queue": queue} if queue is not None else {}), **more}}


def test_jobs_of_the_namespaces_queues_pass_and_others_are_told_which_do() -> None:
    for queue in LIMITS.queues:
        assert refusals("queues", queued(queue)) == []
    for other in ("other", "default", "", None):
        assert refusals("queues", queued(other)) == ["spec.queue must be one of this namespace's queues: test, big"]


def test_a_job_of_a_queue_or_priority_that_was_taken_away_can_still_be_finished() -> None:
    assert refusals("queues", queued("gone"), queued("gone")) == []
    assert refusals("queues", queued(None), queued("default")) == []
    old = queued("test", priorityClassName="gone")
    assert refusals("queues", {**old, "metadata": {"finalizers": []}}, old) == []


def test_a_job_does_not_move_to_another_queue_or_priority_by_an_update() -> None:
    assert refusals("queues", queued("other"), queued("test")) != []
    assert refusals("queues", queued("big"), queued("test")) == []
    assert refusals("queues", queued("test", priorityClassName="system-node-critical"), queued("test")) != []
    assert refusals("queues", queued("test", priorityClassName="training-high"), queued("test")) == []


@pytest.mark.parametrize("name", ["system-node-critical", "somebodys"])
def test_priorities_of_others_are_refused_wherever_they_are_named(name: str) -> None:
    allowed = "must be one of this namespace's: training-low, training-high"
    assert refusals("queues", queued("test", priorityClassName=name)) == [f"spec.priorityClassName {allowed}"]
    for policy, asked in templates(spec(priorityClassName=name)):
        assert f"priorityClassName {allowed}" in refusals(policy, asked, about=allowed), policy
    for named in ({}, {"priorityClassName": ""}, {"priorityClassName": "training-low"}):
        assert refusals("pods", pod(schedulerName="default-scheduler", **named)) == []
        assert refusals("queues", queued("test", **named)) == []


def test_a_namespace_without_priorities_says_so() -> None:
    policy = admission.policies(dataclasses.replace(LIMITS, priority_classes=()), ())["queues"]
    assert [each.message for each in policy.validations][1] == "spec.priorityClassName must be unset in this namespace"


def test_pods_without_accelerators_are_free() -> None:
    limits = {"resources": {"limits": {"cpu": "8"}}}
    tolerations = [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "dedicated", "operator": "Equal", "value": "staging"},
    ]
    assert refusals("pods", pod(limits, schedulerName="default-scheduler", tolerations=tolerations)) == []


def test_a_volcano_jobs_pods_pass() -> None:
    assert refusals("pods", pod(NEURON, annotations=IN_GROUP, tolerations=[ON_TRAINIUM]), groups=CONTROLLERS) == []


@pytest.mark.parametrize("kind", ["limits", "requests"])
def test_every_scarce_resource_is_seen(kind: str) -> None:
    for resource in ("aws.amazon.com/neuroncore", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "vpc.amazonaws.com/efa"):
        container = {"resources": {kind: {resource: "1"}}}
        for containers in ({"containers": [{"name": "c"}, container]}, {"initContainers": [container]}):
            (refused,) = refusals("pods", pod(schedulerName="default-scheduler", **containers))
            assert refused == "a pod with accelerators must be scheduled by Volcano: schedulerName volcano"


@pytest.mark.parametrize("amount", ["0", "0Ki", 0])
def test_asking_for_no_accelerator_is_no_way_onto_its_nodes(amount: str | int) -> None:
    container = {"resources": {"limits": {"aws.amazon.com/neuron": amount}}}
    (message,) = refusals("volcano-jobs", vcjob(spec(NEURON), spec(container)))
    assert "must not ask for 0 accelerators" in message
    # A launcher beside the workers in one pod may say so.
    assert refusals("volcano-jobs", vcjob(spec(NEURON, container))) == []


@pytest.mark.parametrize(
    "toleration",
    [
        ON_TRAINIUM,
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "true"},
        {"key": "", "operator": "Exists", "effect": "NoSchedule"},
    ],
)
def test_pods_without_accelerators_stay_off_accelerator_nodes(toleration: Json) -> None:
    plain = pod(schedulerName="default-scheduler", tolerations=[toleration])
    tasks = vcjob(spec(NEURON, tolerations=[ON_TRAINIUM]), spec(tolerations=[toleration]))
    for policy, asked, old in (
        ("pods", plain, None),
        ("pods", plain, pod(schedulerName="default-scheduler")),  # nor is it added later
        ("volcano-jobs", tasks, None),
    ):
        (message,) = refusals(policy, asked, old)
        assert "must not tolerate" in message


def templates(spec: Json) -> Iterator[tuple[str, Json]]:
    """A policy and an object that leads to pods of a spec, for each path of a pod template."""
    template = {"template": {"spec": spec}}
    yield "pods", {"spec": spec}
    for policy in ("jobs", "deployments"):
        yield policy, {"spec": template}
    yield "jobs", {"spec": {"jobTemplate": {"spec": template}}}
    yield "volcano-jobs", vcjob(spec)
    yield "volcano-jobs", {"spec": {"jobTemplate": vcjob(spec)}}
    yield "pytorch-jobs", {"spec": {"pytorchReplicaSpecs": {"Worker": template}}}
    jobs = {"spec": {"replicatedJobs": [{"template": {"spec": template}}]}}
    yield "job-sets", jobs
    yield "job-sets", {"spec": {"template": jobs}}


@pytest.mark.parametrize("operator", [{}, {"operator": "Exists"}, {"operator": "Equal", "value": "true"}])
def test_nobody_tolerates_the_gate_of_untested_nodes(operator: Json) -> None:
    toleration = {"key": FABRIC_UNTESTED.key, **operator}
    override = {"tolerations": [toleration]}
    overrides = (
        ("train-jobs", {"spec": {"podTemplateOverrides": [{"spec": override}]}}),
        ("train-jobs", {"spec": {"podSpecOverrides": [override]}}),
    )
    for policy, asked in (*templates(spec(NEURON, schedulerName="volcano", tolerations=[toleration])), *overrides):
        assert refusals(policy, asked, about="must not tolerate all taints") != [], policy


def test_nobody_claims_devices_in_any_template() -> None:
    claims = [{"name": "device", "resourceClaimTemplateName": "neuron"}]
    for policy, asked in templates(spec(schedulerName="volcano", resourceClaims=claims)):
        assert refusals(policy, asked, about="which queues do not count") != [], policy


def test_what_was_made_before_the_policy_can_be_finished() -> None:
    old = pod(nodeName="node-1", tolerations=[{"operator": "Exists"}])
    new = {**old, "metadata": {**old["metadata"], "finalizers": [], "labels": {"a": "b"}}}
    assert refusals("pods", new, old) == []
    job = vcjob(spec(nodeName="node-1"))
    assert refusals("volcano-jobs", {**job, "metadata": {"finalizers": []}}, job) == []
    assert refusals("volcano-jobs", vcjob(spec(priorityClassName="no")), job) != []


@pytest.mark.parametrize("container", [NEURON, {"name": "c"}])
def test_naming_a_node_does_not_get_past_the_schedulers(container: Json) -> None:
    (message,) = refusals("pods", pod(container, annotations=IN_GROUP, nodeName="node-1"), groups=CONTROLLERS)
    assert message.startswith("a pod must not name its node")
    assert refusals("pods", pod(container, annotations=IN_GROUP, nodeName=""), groups=CONTROLLERS) == []


def test_a_pod_that_its_scheduler_has_bound_may_change() -> None:
    bound = pod(NEURON, annotations=IN_GROUP, nodeName="node-1")
    late = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    assert refusals("pods", pod(NEURON, annotations=IN_GROUP, nodeName="node-1", tolerations=[late]), bound) == []


def test_a_bare_pod_names_a_queue_of_the_namespace() -> None:
    assert refusals("pods", pod(NEURON, annotations={"scheduling.volcano.sh/queue-name": "big"})) == []
    assert len(refusals("pods", pod(NEURON, annotations={"scheduling.volcano.sh/queue-name": "other"}))) == 1
    for container in (NEURON, {"name": "c"}):
        for annotations in (None, {}, {"note": "x"}):
            (message,) = refusals("pods", pod(container, annotations=annotations))
            assert "must name its queue" in message


def test_a_pod_of_a_group_does_not_name_another_queue_besides_nor_later() -> None:
    asked = pod(NEURON, annotations={**IN_GROUP, "scheduling.volcano.sh/queue-name": "other"})
    assert refusals("pods", asked, groups=CONTROLLERS) != []
    assert refusals("metadata", asked, pod(NEURON, annotations=IN_GROUP)) != []


def test_the_scheduler_of_a_task_wins_over_the_jobs() -> None:
    assert refusals("volcano-jobs", vcjob(spec(NEURON, schedulerName=""))) == []
    assert refusals("volcano-jobs", vcjob(spec(NEURON, schedulerName="default-scheduler"))) != []
    assert refusals("volcano-jobs", vcjob(spec(NEURON), schedulerName="default-scheduler")) != []
    assert refusals("volcano-jobs", {"kind": "Job", "spec": {"tasks": [{"template": {"spec": spec(NEURON)}}]}}) == []
    assert refusals("volcano-jobs", {"kind": "Job", "spec": {}}) == []


def test_devices_come_by_resources_alone() -> None:
    for variable, passes in (
        ({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, False),
        ({"name": "AWS_NEURON_VISIBLE_DEVICES", "value": "ALL"}, False),
        ({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, False),
        ({"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}, True),
        ({"name": "NEURON_RT_VISIBLE_CORES", "value": "0-3"}, True),
    ):
        container = {**NEURON, "env": [{"name": "A", "value": "b"}, variable]}
        assert (refusals("pods", pod(container, annotations=IN_GROUP), groups=CONTROLLERS) == []) is passes


@pytest.mark.parametrize(
    ("volume", "passes"),
    [
        ({"persistentVolumeClaim": {"claimName": "fsx-claim"}}, True),
        ({"emptyDir": {"medium": "Memory"}}, True),
        ({"configMap": {"name": "c"}}, True),
        ({"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "gp3"}}}}, True),
        ({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}, True),
        ({"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fsx"}}}}, False),
        ({"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": "theirs"}}}}, False),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, False),
        ({"nfs": {"server": "10.0.0.1", "path": "/"}}, False),
    ],
)
def test_volumes_are_the_teams_own(volume: Json, passes: bool) -> None:
    volumes = [{"name": "first", "secret": {"secretName": "s"}}, {"name": "v", **volume}]
    for policy, asked in (
        ("pods", pod(schedulerName="default-scheduler", volumes=volumes)),
        ("volcano-jobs", vcjob(spec(volumes=volumes))),
    ):
        assert (refusals(policy, asked) == []) is passes


@pytest.mark.parametrize(
    ("claim", "passes"),
    [({"storageClassName": "gp3"}, True), ({"storageClassName": "fsx"}, False), ({"volumeName": "theirs"}, False)],
)
def test_the_claims_of_a_volcano_job_are_the_teams_own(claim: Json, passes: bool) -> None:
    volumes = [{"mountPath": "/a", "volumeClaimName": "fsx-claim"}, {"mountPath": "/b", "volumeClaim": claim}]
    assert (refusals("volcano-jobs", vcjob(spec(), volumes=volumes)) == []) is passes


@pytest.mark.parametrize(
    ("target", "passes"),
    [
        ({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "mine"}, True),
        ({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "other"}, False),
        ({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Job", "name": "other"}, False),
        ({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Queue", "name": "other"}, False),
        (None, False),
    ],
)
def test_commands_are_for_jobs(target: Json | None, passes: bool) -> None:
    asked = {"action": "CloseQueue", **({"target": target} if target else {})}
    assert (refusals("commands", asked) == []) is passes


def test_a_deployment_goes_through_the_queue_like_a_job() -> None:
    def deployment(*containers: Json, **more: Any) -> Json:
        return {"spec": {"replicas": 2, "template": {"spec": spec(*containers, **more)}}}

    assert refusals("deployments", deployment()) == []
    queued = deployment(NEURON, schedulerName="volcano")
    assert len(refusals("deployments", queued)) == 1
    queued["spec"]["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": "big"}}
    assert refusals("deployments", queued) == []
    assert refusals("deployments", deployment(NEURON)) == [
        "a pod with accelerators must be scheduled by Volcano: schedulerName volcano"
    ]
    assert refusals("deployments", deployment(tolerations=[ON_TRAINIUM])) != []
    # Its status and its annotations change all the time.
    assert refusals("deployments", {**deployment(NEURON), "status": {}}, deployment(NEURON)) == []


def test_a_service_takes_no_address_of_others() -> None:
    assert refusals("services", {"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}}) == []
    assert refusals("services", {"spec": {"clusterIP": "None", "externalIPs": []}}) == []
    (message,) = refusals("services", {"spec": {"externalIPs": ["10.0.0.1"]}})
    assert "must not have externalIPs" in message


PLAIN = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
QUEUE_OF_ROLES = {"schedulingPolicy": {"queue": "test"}}


def made_by(name: str, pods: int, template: Json | None = None) -> Json:
    """Return an object of a kind that leads to so many pods, or one of its templates."""
    template = template or {"spec": spec(PLAIN)}
    job = {"parallelism": pods, "template": template}
    tasks = [{"name": "a", "replicas": pods - 1, "template": template}, {"name": "b", "template": template}]
    runtime = {"replicatedJobs": [{"name": "node", "replicas": pods, "template": {"spec": {"template": template}}}]}
    roles = {"Master": {"template": template}, "Worker": {"replicas": pods - 1, "template": template}}
    specs: dict[str, Json] = {
        "jobs": job,
        "deployments": {"replicas": pods, "template": template},
        "volcano-jobs": {"queue": "test", "tasks": tasks},
        "pytorch-jobs": {"pytorchReplicaSpecs": roles, "runPolicy": QUEUE_OF_ROLES},
        "train-jobs": {"trainer": {"numNodes": pods}, "podTemplateOverrides": [template]},
        "job-sets": {"template": {"spec": runtime}},
    }
    return {"kind": "Job", "spec": specs[name]}


KINDS = {name: row for name, row in admission.table()["policies"].items() if "templates" in row}
EVERY_WORKLOAD = pytest.mark.parametrize("name", [name for name in KINDS if name != "pods"])
PODLESS = {("", "configmaps"), ("", "secrets"), ("", "services"), ("bus.volcano.sh", "commands")}


def test_every_kind_that_researchers_write_is_bounded_and_counted() -> None:
    judged = {(match.group, match.resource) for name in KINDS for match in POLICIES[name].matches}
    hard = quotas.hard({}, {}, {})
    for match in researchers.written():
        kind = (match.group, match.resource)
        assert kind in judged | PODLESS, f"{kind}: no policy judges its templates and its number of pods"
        name = f"count/{match.resource}.{match.group}" if match.group else match.resource
        assert name in hard, f"{kind}: no quota counts its objects"
    assert {name for name, row in KINDS.items() if "counts" not in row} == {"pods"}


@EVERY_WORKLOAD
def test_one_object_leads_to_no_more_pods_than_the_quota_has(name: str) -> None:
    assert refusals(name, made_by(name, 100)) == []
    (message, *_) = refusals(name, made_by(name, 101))
    assert "101 is more than 100" in message
    assert "quota has 100 (pods)" in message
    # Nor does an update make one of it, by the object itself or by its scale.
    assert refusals(name, made_by(name, 101), made_by(name, 1)) != []
    assert refusals("scale", {"spec": {"replicas": 101}}, {"spec": {"replicas": 1}}) != []


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"spec": spec(nodeName="n")}, "must not name its node"),
        ({"spec": spec(volumes=[{"name": "v", "hostPath": {"path": "/"}}])}, "volumes must be"),
        ({"spec": spec(volumes=[{"name": "v", "csi": {"driver": "fsx.csi.aws.com"}}])}, "must be claimed"),
        ({"spec": spec(hostNetwork=True)}, "Pod Security"),
        ({"spec": spec({"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]})}, "Pod Security"),
        ({"spec": spec({"name": "c", "securityContext": {"privileged": True}})}, "Pod Security"),
        ({"spec": spec({"name": "c", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}})}, "Pod Security"),
        ({"spec": spec({"name": "c", "securityContext": {"procMount": "Unmasked"}})}, "Pod Security"),
        ({"spec": spec({"name": "c", "securityContext": {"seccompProfile": {"type": "Unconfined"}}})}, "Pod Security"),
        ({"spec": spec(securityContext={"appArmorProfile": {"type": "Unconfined"}})}, "Pod Security"),
        ({"spec": spec(securityContext={"seLinuxOptions": {"type": "spc_t"}})}, "Pod Security"),
        ({"spec": spec(securityContext={"seLinuxOptions": {"user": "u"}})}, "Pod Security"),
        ({"spec": spec(securityContext={"windowsOptions": {"hostProcess": True}})}, "Pod Security"),
        ({"spec": spec(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]})}, "Pod Security"),
        ({"spec": spec({"name": "c", "livenessProbe": {"httpGet": {"host": "h", "port": 1}}})}, "Pod Security"),
        (
            {"spec": spec({"name": "c", "lifecycle": {"postStart": {"tcpSocket": {"host": "h", "port": 1}}}})},
            "Pod Security",
        ),
        (
            {
                "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}},
                "spec": spec(),
            },
            "Pod Security",
        ),
        ({"spec": spec(overhead={"cpu": "1"})}, "must not set overhead"),
        ({"spec": spec(priority=1)}, "must not set overhead"),
        ({"spec": spec(terminationGracePeriodSeconds=3601)}, "at most 3600"),
        ({"spec": spec(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])}, "drained"),
        ({"spec": spec(tolerations=[{"key": "karpenter.sh/disrupted", "operator": "Exists"}])}, "drained"),
        ({"spec": spec(tolerations=[{"operator": "Exists"}])}, "all taints"),
        ({"spec": spec(tolerations=[{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}])}, "drained"),
        ({"metadata": {"finalizers": ["a/b"]}, "spec": spec()}, "no finalizers"),
        ({"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "other"}}, "spec": spec()}, "queues"),
        ({"metadata": {"labels": {"volcano.sh/preemptable": "false"}}, "spec": spec()}, "take"),
        ({"spec": spec(*({"name": f"c{index}"} for index in range(17)))}, "at most 16 containers"),
    ],
)
def test_templates_of_all_kinds_are_judged_like_pods(pod: Json, said: str) -> None:
    for name in KINDS.keys() - {"pods"}:
        assert refusals(name, made_by(name, 2, pod), about=said) != [], name


CONFINED = {
    "seccompProfile": {"type": "RuntimeDefault"},
    "seLinuxOptions": {"type": "container_t", "level": "s0:c1"},
    "windowsOptions": {},
}
PROBED = {
    "name": "c",
    "securityContext": {**CONFINED, "procMount": "Default", "appArmorProfile": {"type": "RuntimeDefault"}},
    "livenessProbe": {"httpGet": {"port": 1, "host": ""}},
    "lifecycle": {"preStop": {"tcpSocket": {"port": 1}}},
    "resources": {"requests": {"cpu": "1"}},
}


@EVERY_WORKLOAD
def test_templates_within_pod_securitys_baseline_pass(name: str) -> None:
    context = {**CONFINED, "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]}
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": spec(PROBED, securityContext=context)}
    assert refusals(name, made_by(name, 2, template)) == []


PLUGIN_PORT = {"name": "c", "ports": [{"name": "mpijob-port", "containerPort": 22}], "resources": PLAIN["resources"]}
MOUNTING = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/d"}], "resources": PLAIN["resources"]}


@pytest.mark.parametrize(
    ("change", "template", "passes"),
    [
        ({}, {"serviceAccountName": "training"}, True),
        ({}, {"serviceAccountName": "other"}, False),
        ({}, {"runtimeClassName": "other"}, False),
        ({"plugins": {"pytorch": ["--master=a", "--port=23456"], "ray": ["--head=a", "-clientPort=59999"]}}, {}, True),
        ({"plugins": {"pytorch": ["--port=-1"]}}, {}, False),
        ({"plugins": {"ray": ["--clientPort=65536"]}}, {}, False),
        ({"plugins": {"pytorch": ["--port", "70000"]}}, {}, False),
        ({"plugins": {"pytorch": ["--wait-master-image="]}}, {}, False),
        ({"plugins": {"tensorflow": []}}, {"containers": [PLUGIN_PORT]}, True),
        ({"plugins": {"tensorflow": ["--port=23"]}}, {"containers": [PLUGIN_PORT]}, False),
        ({"volumes": [{"mountPath": "/e"}]}, {"containers": [MOUNTING]}, True),
        ({"volumes": [{"mountPath": "/d"}]}, {"containers": [MOUNTING]}, False),
        ({"plugins": {"ssh": ["--ssh-private-key=a", "--ssh-key-file-path=/d"]}}, {"containers": [MOUNTING]}, False),
    ],
)
def test_a_volcano_job_leads_to_no_pods_that_the_api_server_refuses(change: Json, template: Json, passes: bool) -> None:
    job = made_by("volcano-jobs", 2, {"spec": {**spec(PLAIN), **template}})
    job["spec"] |= change
    assert (refusals("volcano-jobs", job) == []) is passes


@pytest.mark.parametrize(
    ("name", "passes"), [("a" * 50, True), ("a" * 51, False), ("a.b", False), ("a-1", True)], ids=str
)
def test_volumes_and_hosts_can_be_called_after_a_volcano_job(name: str, passes: bool) -> None:
    job = made_by("volcano-jobs", 100) | {"metadata": {"name": name}}
    assert (refusals("volcano-jobs", job) == []) is passes
    job["spec"]["tasks"][0]["name"] = "b" * 13
    assert refusals("volcano-jobs", job) != [] or len(name) < 47


def test_pods_that_others_namespaces_see_are_not_kept_away_from() -> None:
    for kind in ("podAffinity", "podAntiAffinity"):
        for where in ({"namespaceSelector": {}}, {"namespaces": ["other"]}):
            term = {"topologyKey": "kubernetes.io/hostname", **where}
            for terms in (
                {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
                {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]},
            ):
                (message,) = refusals("pods", pod(schedulerName="default-scheduler", affinity={kind: terms}))
                assert "this namespace alone" in message
    own = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}
    assert refusals("pods", pod(schedulerName="default-scheduler", affinity={"podAntiAffinity": own})) == []


@pytest.mark.parametrize(
    ("more", "passes"),
    [
        ({"minAvailable": 92}, True),
        ({"minAvailable": 91}, False),
        ({"minAvailable": 4, "tasks": [{"replicas": 8}]}, True),
        ({"minAvailable": 3, "tasks": [{"replicas": 8}]}, False),
        ({"volumes": [{"mountPath": f"/{index}"} for index in range(33)]}, False),
    ],
)
def test_a_volcano_job_asks_for_no_pods_that_the_scheduler_has_not_counted(more: Json, passes: bool) -> None:
    job = made_by("volcano-jobs", 100)
    job["spec"] |= more
    assert (refusals("volcano-jobs", job) == []) is passes


def test_a_job_that_is_there_does_not_grow() -> None:
    old, grown = ({"kind": "Job", **made_by("volcano-jobs", pods)} for pods in (2, 3))
    (message,) = refusals("volcano-jobs", grown, old)
    assert "must not grow" in message
    assert refusals("volcano-jobs", old, grown) == []
    assert refusals("volcano-jobs", grown) == []


def test_what_the_quota_counts_stands_under_the_requests_of_large_volcano_jobs() -> None:
    unstated = {"spec": spec({"name": "c", "resources": {"limits": {"cpu": "1"}}})}
    assert refusals("volcano-jobs", made_by("volcano-jobs", 8, unstated)) == []
    (message,) = refusals("volcano-jobs", made_by("volcano-jobs", 9, unstated))
    assert "quota counts: cpu" in message


@pytest.mark.parametrize(
    ("name", "amount", "passes"),
    [
        ("memory", "2Ti", True),
        ("memory", "500001M", True),
        ("memory", "33Ti", False),
        ("ephemeral-storage", "8E", False),
        ("ephemeral-storage", "999999999999", False),
        ("example.com/x", "9223372036854775807", False),
        ("example.com/x", 100_000_000, True),
        ("cpu", "1500m", True),
    ],
)
def test_amounts_are_those_that_volcanos_scheduler_adds_without_a_rest(name: str, amount: str, passes: bool) -> None:
    for kind in ("limits", "requests"):
        asked = pod({"resources": {kind: {name: amount}}}, schedulerName="default-scheduler")
        assert (refusals("pods", asked) == []) is passes


@pytest.mark.parametrize(
    ("tasks", "containers", "more", "about"),
    [
        (64, 2, {}, ""),
        (65, 2, {}, "tasks of a job times"),
        (2, 1, {"plugins": {"tensorflow": []}}, ""),
        (1, 1, {"policies": [{"event": "PodPending", "action": "RestartJob", "timeout": "1s"}]}, "no timeout"),
        (1, 1, {"plugins": {"ssh": []}}, "the plugin ssh"),
        (1, 1, {"plugins": {"ssh": ["--ssh-private-key=a"]}}, ""),
        (1, 1, {"plugins": {"ssh": ["--ssh-private-key=a", "--ssh-private-key="]}}, "the plugin ssh"),
    ],
)
def test_no_job_multiplies_the_work_of_volcanos_controllers(
    tasks: int, containers: int, more: Json, about: str
) -> None:
    job = vcjob(*[spec(*[{**PLAIN, "name": f"c{index}"} for index in range(containers)])] * tasks, **more)
    judged = ("tasks of a job times", "plugins tensorflow and mpi", "no timeout", "the plugin ssh")
    assert [words for words in judged if refusals("volcano-jobs", job, about=words)] == [about] * bool(about)


@pytest.mark.parametrize("name", ["jobs", "volcano-jobs"])
def test_runs_of_a_cron_job_do_not_add_up(name: str) -> None:
    def cron(policy: str, schedule: str = "0 * * * *") -> Json:
        job = made_by(name, 2)
        spec = {"concurrencyPolicy": policy, "schedule": schedule, "jobTemplate": {"spec": job["spec"]}}
        return {"kind": "CronJob", "spec": spec}

    assert refusals(name, cron("Forbid")) == []
    assert len(refusals(name, cron("Allow"))) == 1
    assert len(refusals(name, cron("Replace", "@every 1s"))) == 1


def test_pods_that_a_gang_can_do_without_may_be_moved() -> None:
    held = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    for annotation, value in held.items():
        template = {"metadata": {"annotations": {annotation: value}}, "spec": spec()}
        (message,) = refusals("jobs", made_by("jobs", 2, template))
        assert annotation in message
        job = vcjob(spec(NEURON), spec())
        job["spec"]["tasks"][1]["template"]["metadata"] = template["metadata"]
        assert refusals("volcano-jobs", job) == []
        plain = {"schedulerName": "default-scheduler", "annotations": {annotation: value, **IN_GROUP}}
        assert len(refusals("pods", pod(**plain), groups=CONTROLLERS)) == 1
        assert refusals("pods", pod(annotations={annotation: value, **IN_GROUP}), groups=CONTROLLERS) == []


def test_researchers_leave_finalizers_and_owners_to_controllers() -> None:
    mine, queue = {"kind": "Job", "name": "j"}, {"kind": "Queue", "name": "q"}
    for field, allowed, refused in (
        ("finalizers", "orphan", "batch.kubernetes.io/job-tracking"),
        ("ownerReferences", mine, queue),
    ):
        assert refusals("metadata", {"metadata": {field: [allowed]}}) == []
        assert len(refusals("metadata", {"metadata": {field: [refused]}})) == 1
        assert refusals("metadata", {"metadata": {field: [refused]}}, groups=["system:serviceaccounts"]) == []
        old = {"metadata": {field: [refused]}}
        assert refusals("metadata", {"metadata": {field: [refused, allowed]}}, old) == []
        assert len(refusals("metadata", old, {"metadata": {}})) == 1


DOMAINS = ("scheduling.k8s.io/group-name", "volcano.sh/task-spec", "karpenter.sh/do-not-disrupt", "kubernetes.io/x")
FREE = ("note", "app.kubernetes.io/version", "kubectl.kubernetes.io/restartedAt", "trainium-eks/image", "helm.sh/chart")


@pytest.mark.parametrize("field", ["annotations", "labels"])
@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_researchers_change_nothing_that_schedulers_read(field: str, kind: str) -> None:
    def noted(**notes: str) -> Json:
        return {"kind": kind, "metadata": {field: {"a": "b", **notes}}}

    for key in DOMAINS:
        for old, new in (("a", "b"), ("a", None), (None, "b")):
            before, after = (noted(**({key: value} if value else {})) for value in (old, new))
            assert len(refusals("metadata", after, before)) == 1
            assert refusals("metadata", after, before, groups=CONTROLLERS) == []
            assert refusals("metadata", before, before) == []
            assert refusals("metadata", after) == []
    for key in FREE:
        assert refusals("metadata", noted(**{key: "c"}), noted(**{key: "b"})) == []
        assert refusals("metadata", noted(), noted(**{key: "b"})) == []


def test_a_pod_keeps_its_controller_and_what_the_controller_knows_it_by() -> None:
    owner = {"kind": "ReplicaSet", "name": "r"}

    def owned(owners: Sequence[Json], **labels: str) -> Json:
        return {"kind": "Pod", "metadata": {"ownerReferences": list(owners), "labels": labels}}

    assert refusals("metadata", owned([owner], app="a"), owned([owner], app="a")) == []
    for after in (owned([], app="a"), owned([owner], app="b"), owned([owner]), owned([owner], app="a", x="y")):
        assert len(refusals("metadata", after, owned([owner], app="a"))) == 1
        assert refusals("metadata", after, owned([owner], app="a"), groups=CONTROLLERS) == []
    assert len(refusals("metadata", owned([owner]))) == 1
    assert refusals("metadata", owned([], app="b"), owned([], app="a")) == []
    assert refusals("metadata", {**owned([owner]), "kind": "ConfigMap"}, {"kind": "ConfigMap", "metadata": {}}) == []


@EVERY_WORKLOAD
def test_nobody_chooses_a_pods_group(name: str) -> None:
    joined = made_by(name, 2, {"metadata": {"annotations": IN_GROUP}, "spec": spec(PLAIN)})
    assert len(refusals(name, joined)) == 1
    assert refusals(name, joined, groups=CONTROLLERS) == []
    assert len(refusals("pods", pod(annotations=IN_GROUP))) == 1
    assert refusals("pods", pod({"image": "b"}, annotations=IN_GROUP), pod(annotations=IN_GROUP)) == []


@pytest.mark.parametrize(
    "large", [{"containers": [{"name": "c", "args": ["x"] * 9000}]}, {"hostAliases": [{"hostnames": ["x" * 60] * 600}]}]
)
def test_the_text_of_each_pod_is_bounded_in_every_kind(large: Json) -> None:
    for policy, asked in templates(spec(**large)):
        assert refusals(policy, asked, about="put large texts into a ConfigMap") != [], policy
    small = spec(PLAIN, args=["x" * 30_000])
    assert [policy for policy, asked in templates(small) if refusals(policy, asked, about="letters")] == []
    # What controllers and plugins add to a template that was admitted is not refused: they would try for ever.
    assert refusals("pods", {"spec": spec(**large)}, groups=CONTROLLERS, about="letters") == []


def test_the_text_of_all_tasks_and_of_annotations_is_bounded() -> None:
    tasks = [spec({**PLAIN, "args": ["x" * 30_000]}) for _ in range(18)]
    assert refusals("volcano-jobs", vcjob(*tasks), about="spec must have at most") != []
    assert refusals("volcano-jobs", vcjob(*tasks[:16]), about="letters") == []
    noted = {**vcjob(spec(PLAIN)), "metadata": {"name": "name", "annotations": {"a": "x" * 70_000}}}
    assert refusals("volcano-jobs", noted, about="metadata.annotations") != []


RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]
SPREAD = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a", "a"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NEVER_MADE = {
    "rules without a policy": spec({"name": "c", "restartPolicyRules": RULES}),
    "rules of a sidecar": spec(initContainers=[{"name": "i", "restartPolicy": "Always", "restartPolicyRules": RULES}]),
    "a space of another alphabet": spec({"name": "c", "image": "image\u3000"}),
    "a variable of a file": spec({"name": "c", "env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "k"}}}]}),
    "an image volume": spec(volumes=[{"name": "v", "image": {"reference": ""}}]),
    "spread": spec(topologySpreadConstraints=[SPREAD]),
    "affinity": spec(affinity={"podAffinity": {REQUIRED: [{"mismatchLabelKeys": ["a"]}]}}),
    "mounts": spec(securityContext={"seLinuxChangePolicy": "MountOption"}),
    "less than the defaults": spec(resources={"limits": {"cpu": "50m"}}),
}


@pytest.mark.parametrize("asked", NEVER_MADE.values(), ids=NEVER_MADE)
def test_jobs_whose_pods_the_api_server_would_refuse_are_refused(asked: Json) -> None:
    for policy, made in templates(asked):
        said = refusals(policy, made, about="again and again")
        # Kubernetes' own controllers slow down, and validate these templates as pods.
        assert len(said) == (policy not in ("pods", "jobs", "deployments")), policy


@pytest.mark.parametrize(
    ("name", "more", "plugins"),
    [
        ("j", {"volumes": [{"name": "j-svc", "emptyDir": {}}]}, {"svc": []}),
        ("j", {"volumes": [{"name": "j-ssh", "emptyDir": {}}]}, {}),
        ("j", {"initContainers": [{"name": "wait-for-master"}]}, {"pytorch": []}),
        ("1j", {}, {"svc": []}),
        ("j", {}, {"pytorch": ["--wait-master-image=\u3000x"]}),
    ],
)
def test_names_that_volcanos_plugins_need_are_theirs(name: str, more: Json, plugins: Json) -> None:
    job = {**vcjob(spec(PLAIN, **more), plugins=plugins), "metadata": {"name": name}}
    assert len(refusals("volcano-jobs", job)) == 1
    assert refusals("volcano-jobs", {**vcjob(spec(PLAIN), plugins={"svc": []}), "metadata": {"name": "j"}}) == []


def test_what_the_api_server_and_plugins_add_to_a_template_makes_no_pod_too_large() -> None:
    tolerations = [{"key": f"k{index}", "operator": "Exists"} for index in range(34)]
    volumes = [{"name": f"v{index}", "emptyDir": {}} for index in range(34)]
    made = pod(PLAIN, annotations=IN_GROUP, tolerations=tolerations, volumes=volumes)
    assert refusals("pods", made, groups=CONTROLLERS) == []
    assert len(refusals("pods", pod(PLAIN, schedulerName="x", tolerations=tolerations, volumes=volumes))) == 1


def test_a_job_has_no_name_of_a_network_policy_which_would_go_with_it() -> None:
    job = {**made_by("volcano-jobs", 2), "metadata": {"name": "default-deny"}}
    assert len(refusals("volcano-jobs", job)) == 1


@pytest.mark.parametrize(("members", "passes"), [("100", True), ("101", False), ("2000000000", False), ("x", False)])
def test_the_size_of_a_pod_group_is_bounded(members: str, passes: bool) -> None:
    asked = {"metadata": {"annotations": {"scheduling.volcano.sh/group-min-member": members}}}
    assert (refusals("deployments", {**made_by("deployments", 2), **asked}) == []) is passes


def test_a_pod_that_is_deleted_ends_within_an_hour() -> None:
    assert refusals("deletions", {"options": {"gracePeriodSeconds": 3600}}) == []
    assert len(refusals("deletions", {"options": {"gracePeriodSeconds": 3601}})) == 1


@pytest.mark.parametrize("queue", ["other", ""])
def test_queues_of_kubeflows_kinds_are_the_namespaces_own(queue: str) -> None:
    job = made_by("pytorch-jobs", 2)
    job["spec"] |= {"runPolicy": {"schedulingPolicy": {"queue": queue}}}
    assert len(refusals("pytorch-jobs", job)) == 1
    runtime = made_by("job-sets", 2)
    runtime["spec"]["podGroupPolicy"] = {"volcano": {}}
    runtime["spec"]["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": queue}}
    assert len(refusals("job-sets", runtime)) == 1
    cron = {"concurrencyPolicy": "Forbid", "jobTemplate": {"spec": {"queue": queue}}}
    assert len(refusals("volcano-jobs", {"kind": "CronJob", "spec": cron})) == 1
