"""Two teams on a real API server: what a researcher of one tries against the other, and what they do every day."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client.api_client import ApiClient
from quota_cases import REFUSED, TAKEN, USELESS
from waiting import until

from components.training_namespace import TrainingNamespace
from components.volcano_stack import VolcanoStack
from trainium_eks.kube.api import Api, ApiError
from trainium_eks.local.objects.apply import Objects
from trainium_eks.plan.graph import Graph

TEAM, OTHER = "vision", "speech"
QUEUES = {TEAM: "eyes", OTHER: "ears"}

Json = dict[str, Any]

VOLCANO_KINDS = (
    ("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
    ("bus.volcano.sh", "v1alpha1", "Command", "commands"),
    ("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
)
MADE = (
    "core/v1:Namespace",
    "scheduling.k8s.io/v1:PriorityClass",
    "core/v1:ResourceQuota",
    "core/v1:LimitRange",
    "core/v1:ServiceAccount",
    "admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding",
    "rbac.authorization.k8s.io/v1:Role",
    "rbac.authorization.k8s.io/v1:RoleBinding",
    "rbac.authorization.k8s.io/v1:ClusterRole",
    "rbac.authorization.k8s.io/v1:ClusterRoleBinding",
)
NEURON = {"limits": {"aws.amazon.com/neuron": "16"}, "requests": {"aws.amazon.com/neuron": "16"}}
ON_TRAINIUM = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}
IN_GROUP = {"scheduling.k8s.io/group-name": "group"}
IN_QUEUE = {"scheduling.volcano.sh/queue-name": QUEUES[TEAM]}


class Impersonating(ApiClient):  # type: ignore[misc]  # the client has no types
    """The administrator's connection, as somebody else."""

    def request(self, method: str, url: str, *, headers: dict[str, str], **options: Any) -> Any:
        user = {"Impersonate-User": "researcher", "Impersonate-Group": f"trainium-eks:{TEAM}:researchers"}
        return super().request(method, url, headers={**headers, **user}, **options)


@pytest.fixture(scope="module")
def administrator(api: Api, record: Callable[..., Graph]) -> Iterator[Api]:
    """The API as its administrator, with the two teams' namespaces in force."""
    objects = Objects(api, waiting=lambda _: None)
    graph = record(_program)
    definitions = [_definition(*each) for each in VOLCANO_KINDS]
    made = [dict(each.inputs) for kind in MADE for each in graph.of_type(f"kubernetes:{kind}")]
    manifests = [*definitions, *json.loads(json.dumps(made))]
    for manifest in manifests:
        objects.apply(manifest, timeout_seconds=300)
    # A policy is in force a moment after it is there, each by itself.
    for kind in (
        *(
            _pod(nodeName="n"),
            _job(queue="no"),
            _job(tolerations=[{"operator": "Exists"}]),
            _command("Queue", "ears"),
            _batch_job(nodeName="n"),
        ),
        *(_deployment(nodeName="n"), _service(externalIPs=["10.0.0.1"])),
    ):
        until(lambda kind=kind: _is_refused(api, kind), f"the policy for {kind['kind']} is in force")  # type: ignore[misc]
    yield api
    for manifest in reversed(manifests):
        objects.delete(api.reference(manifest), timeout_seconds=300)


@pytest.fixture(scope="module")
def researcher(administrator: Api) -> Api:
    """The API as a researcher of the team."""
    api = Api(Impersonating(administrator._client.configuration), administrator._kubeconfig)
    until(lambda: _is_taken(api, _pod()), "the role is in force, and the team's default account there")
    return api


def _program() -> None:
    VolcanoStack("volcano", {"queues": [{"name": queue} for queue in QUEUES.values()]})
    for team, queue in QUEUES.items():
        TrainingNamespace(
            team,
            {"name": team, "queues": [queue], "region": "us-west-2", "cluster_name": "cluster", "volume_gib": 1200},
        )


def _definition(group: str, version: str, kind: str, plural: str) -> Json:
    """A kind of Volcano's, by its names alone: what it holds is taken as it is."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    serving = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [{**serving, "subresources": {"status": {}}}],
        },
    }


def _spec(resources: Json | None = None, **spec: Any) -> Json:
    container = {"name": "c", "image": "image", **({"resources": resources} if resources else {})}
    return {"containers": [container], "restartPolicy": "Never", **spec}


def _pod(resources: Json | None = None, *, namespace: str = TEAM, annotations: Json | None = None, **spec: Any) -> Json:
    metadata = {"generateName": "pod-", "name": "pod", "namespace": namespace, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(resources, **spec)}


def _job(resources: Json | None = None, *, queue: str = QUEUES[TEAM], job: Json | None = None, **spec: Any) -> Json:
    tasks = [
        {"name": f"trainer-{index}", "replicas": 1, "template": {"spec": _spec(resources, **spec)}}
        for index in range(2)
    ]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": TEAM},
        "spec": {"queue": queue, "minAvailable": 2, "schedulerName": "volcano", "tasks": tasks, **(job or {})},
    }


def _batch_job(resources: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": TEAM},
        "spec": {"template": {"spec": _spec(resources, **spec)}},
    }


def _deployment(resources: Json | None = None, **spec: Any) -> Json:
    labels = {"app": "a"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "deployment", "namespace": TEAM},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {**_spec(resources, **spec), "restartPolicy": "Always"},
            },
        },
    }


def _service(**spec: Any) -> Json:
    metadata = {"name": "service", "namespace": TEAM}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}], **spec}}


def _command(kind: str, name: str, api_version: str = "scheduling.volcano.sh/v1beta1") -> Json:
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "command", "namespace": TEAM},
        "action": "CloseQueue",
        "target": {"apiVersion": api_version, "kind": kind, "name": name, "uid": "1"},
    }


def _claim(storage_class: str = "fsx", **spec: Any) -> Json:
    storage = {"resources": {"requests": {"storage": "1200Gi"}}}
    return {"accessModes": ["ReadWriteMany"], "storageClassName": storage_class, **storage, **spec}


def _ephemeral(**claim: Any) -> Json:
    return {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": _claim(**claim)}}}


def _is_refused(api: Api, manifest: Json) -> bool:
    """By a policy: a pod is also refused where its namespace has no default account yet."""
    try:
        api.create(manifest, dry_run=True)
    except ApiError as error:
        return "denied request" in error.message
    return False


def _is_taken(api: Api, manifest: Json) -> bool:
    try:
        api.create(manifest, dry_run=True)
    except ApiError:
        return False
    return True


def refusal(api: Api, manifest: Json) -> str:
    """Why the API server forbids an object; it must."""
    with pytest.raises(ApiError) as caught:
        api.create(manifest, dry_run=True)
    assert caught.value.status == 403, caught.value
    return caught.value.message


# What each of them names is refused in pods, and in the templates of both kinds of jobs when they are submitted.
SPECS: dict[str, tuple[Json, str]] = {
    "accelerators past Volcano": ({"resources": NEURON, "schedulerName": "default-scheduler"}, "scheduled by Volcano"),
    "no accelerators, to be let onto their nodes": (
        {"resources": {"limits": {"aws.amazon.com/neuron": "0"}}},
        "must not ask for 0 accelerators",
    ),
    "a toleration of accelerator nodes": ({"tolerations": [ON_TRAINIUM]}, "must not tolerate"),
    "a toleration of GPU nodes": (
        {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "true"}]},
        "must not tolerate",
    ),
    "a toleration of everything": ({"tolerations": [{"operator": "Exists"}]}, "must not tolerate"),
    "a node": ({"nodeName": "ip-10-0-0-1"}, "must not name its node"),
    "the system's priority over nodes": ({"priorityClassName": "system-node-critical"}, "training-low"),
    "the system's priority over the cluster": ({"priorityClassName": "system-cluster-critical"}, "training-low"),
    "a device claim": ({"resourceClaims": [{"name": "d", "resourceClaimTemplateName": "t"}]}, "resourceClaims"),
    "a file system of its own": ({"volumes": [_ephemeral()]}, "storage class fsx"),
    "another's volume": (
        {"volumes": [_ephemeral(storage_class="", volumeName="speech-fsx")]},
        "must not name an existing volume",
    ),
    "large texts": ({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x" * 60] * 9000}]}, "letters: put large texts"),
    "any EBS volume": ({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}}]}, "volumes must be"),
    "any NFS server": (
        {"volumes": [{"name": "v", "nfs": {"server": "10.0.0.1", "path": "/"}}]},
        "volumes must be",
    ),
}


@pytest.mark.parametrize(("spec", "said"), SPECS.values(), ids=SPECS)
def test_a_pod_is_refused(researcher: Api, spec: Json, said: str) -> None:
    assert said in refusal(researcher, _pod(**spec))


@pytest.mark.parametrize(("spec", "said"), SPECS.values(), ids=SPECS)
def test_a_volcano_job_is_refused_at_once(researcher: Api, spec: Json, said: str) -> None:
    assert said in refusal(researcher, _job(**spec))


@pytest.mark.parametrize(("spec", "said"), SPECS.values(), ids=SPECS)
def test_a_job_is_refused_at_once(researcher: Api, spec: Json, said: str) -> None:
    assert said in refusal(researcher, _batch_job(**spec))
    assert said in refusal(researcher, _deployment(**spec))


def test_a_pod_of_a_job_does_not_name_its_node(researcher: Api) -> None:
    on_node = {"resources": NEURON, "schedulerName": "volcano", "nodeName": "ip-10-0-0-1"}
    assert "must not name its node" in refusal(researcher, _pod(annotations=IN_QUEUE, **on_node))
    assert "is set by controllers" in refusal(researcher, _pod(NEURON, schedulerName="volcano", annotations=IN_GROUP))
    for made in (_batch_job(**on_node), _deployment(**on_node)):
        made["spec"]["template"].setdefault("metadata", {})["annotations"] = IN_QUEUE
        assert "must not name its node" in refusal(researcher, made)


def test_devices_are_not_taken_by_an_environment_variable(researcher: Api) -> None:
    for variable in ("NVIDIA_VISIBLE_DEVICES", "AWS_NEURON_VISIBLE_DEVICES"):
        pod = _pod()
        pod["spec"]["containers"][0]["env"] = [{"name": variable, "value": "all"}]
        assert variable in refusal(researcher, pod)
        pod["spec"]["containers"][0]["env"] = [{"name": variable, "value": "void"}, {"name": "A"}]
        researcher.create(pod, dry_run=True)


def test_what_teams_do_every_day_passes(researcher: Api) -> None:
    researcher.create(_pod(), dry_run=True)
    researcher.create(_pod(tolerations=[{"key": "dedicated", "operator": "Exists"}]), dry_run=True)
    researcher.create(_pod(priorityClassName="training-high"), dry_run=True)
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "fsx-claim"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        _ephemeral(storage_class="gp3"),
    ]
    researcher.create(_pod(volumes=volumes), dry_run=True)
    researcher.create(_pod(NEURON, schedulerName="volcano", annotations=IN_QUEUE), dry_run=True)
    researcher.create(_job(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["x" * 60] * 200}]), dry_run=True)
    researcher.create(_job(NEURON, tolerations=[ON_TRAINIUM]), dry_run=True)
    researcher.create(_job({"limits": {"aws.amazon.com/neuron": 16}}, schedulerName="volcano"), dry_run=True)
    researcher.create(_job(job={"priorityClassName": "training-normal"}), dry_run=True)
    researcher.create(_batch_job(), dry_run=True)
    server = _deployment(NEURON, schedulerName="volcano")
    server["spec"]["template"]["metadata"]["annotations"] = IN_QUEUE
    researcher.create(server, dry_run=True)
    researcher.create(_service(selector={"app": "a"}), dry_run=True)
    researcher.create(_command("Job", "job", "batch.volcano.sh/v1alpha1"), dry_run=True)


def test_a_service_is_for_the_cluster_alone(researcher: Api) -> None:
    assert "must not have externalIPs" in refusal(researcher, _service(externalIPs=["10.0.0.1"]))
    assert "services.loadbalancers" in refusal(researcher, _service(type="LoadBalancer"))
    assert "services.nodeports" in refusal(researcher, _service(type="NodePort"))


def test_the_api_servers_own_tolerations_of_a_pod_pass(researcher: Api) -> None:
    made = researcher.create(_pod(), dry_run=True)
    keys = {each["key"] for each in made["spec"]["tolerations"]}
    assert keys == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def test_nobody_uses_anothers_queue(researcher: Api) -> None:
    assert "eyes" in refusal(researcher, _job(queue="ears"))
    assert "eyes" in refusal(researcher, _job(queue="default"))
    queue = {"scheduling.volcano.sh/queue-name": "ears"}
    assert "eyes" in refusal(researcher, _pod(NEURON, schedulerName="volcano", annotations=queue))
    assert "must name its queue" in refusal(researcher, _pod(schedulerName="volcano"))


def test_a_job_of_the_systems_priority_is_refused(researcher: Api) -> None:
    assert "spec.priorityClassName" in refusal(researcher, _job(job={"priorityClassName": "system-node-critical"}))


def test_a_jobs_own_claim_makes_no_file_system(researcher: Api) -> None:
    for claim, said in (
        (_claim(), "storage class fsx"),
        (_claim("", volumeName="speech-fsx"), "name an existing volume"),
    ):
        volumes = [{"mountPath": "/data", "volumeClaim": claim}]
        assert said in refusal(researcher, _job(job={"volumes": volumes}))
    mounted = [{"mountPath": "/data", "volumeClaimName": "fsx-claim"}]
    researcher.create(_job(job={"volumes": mounted}), dry_run=True)


def test_nobody_makes_claims_and_the_quota_bounds_what_controllers_make(researcher: Api, administrator: Api) -> None:
    def claim(storage_class: str, size: str) -> Json:
        spec = _claim(storage_class)
        spec["resources"]["requests"]["storage"] = size
        metadata = {"name": "claim", "namespace": TEAM}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}

    assert "persistentvolumeclaims" in refusal(researcher, claim("gp3", "1Gi"))
    assert "fsx.storageclass.storage.k8s.io/persistentvolumeclaims" in refusal(administrator, claim("fsx", "1200Gi"))
    assert "requests.storage" in refusal(administrator, claim("gp3", "2225Gi"))
    administrator.create(claim("gp3", "2224Gi"), dry_run=True)


@pytest.mark.parametrize("kind", ["Queue", "Job"])
def test_nobody_closes_a_queue(researcher: Api, kind: str) -> None:
    assert "must be a Volcano Job" in refusal(researcher, _command(kind, "ears"))
    command = _command("Job", "job", "batch.volcano.sh/v1alpha1")
    del command["target"]
    assert "must be a Volcano Job" in refusal(researcher, command)


def test_a_pod_that_is_there_gets_no_further(researcher: Api, administrator: Api) -> None:
    owned = _pod()
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}]
    assert "by its controller" in refusal(researcher, owned)
    pod = researcher.create(_pod(schedulingGates=[{"name": "hold"}]))
    path = f"/api/v1/namespaces/{TEAM}/pods/{pod['metadata']['name']}"

    def patch(change: object, below: str = "", kind: str = "merge-patch") -> str:
        with pytest.raises(ApiError) as caught:
            researcher.request("PATCH", path + below, change, content_type=f"application/{kind}+json")
        assert caught.value.status == 403, caught.value
        return caught.value.message

    try:
        assert "must not tolerate" in patch(
            [{"op": "add", "path": "/spec/tolerations/-", "value": ON_TRAINIUM}], kind="json-patch"
        )
        queue = {"scheduling.volcano.sh/queue-name": "ears"}
        read = "are read by schedulers"
        assert read in patch({"metadata": {"annotations": queue}})
        for key in ("scheduling.k8s.io/group-name", "karpenter.sh/do-not-disrupt", "volcano.sh/job-name"):
            for field in ("annotations", "labels"):
                assert read in patch({"metadata": {field: {key: "none"}}})
        assert "cannot patch" in patch({}, "/status")
        assert "cannot patch" in patch({}, "/ephemeralcontainers")
        assert "cannot patch" in patch({}, "/resize")
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "pod"}, "target": {"name": "node"}}
        with pytest.raises(ApiError, match="cannot create"):
            researcher.request("POST", f"{path}/binding", binding)
        gone = {"metadata": {"labels": {"a": "b"}}, "spec": {"schedulingGates": []}}
        researcher.request("PATCH", path, gone, content_type="application/merge-patch+json")
    finally:
        administrator.request("DELETE", path, query={"gracePeriodSeconds": "0"})


def test_a_job_whose_pods_the_api_server_refuses_is_refused(researcher: Api) -> None:
    assert "again and again" in refusal(researcher, _job(securityContext={"seLinuxChangePolicy": "MountOption"}))


def test_nobody_reaches_the_other_teams_room_or_changes_their_own(researcher: Api) -> None:
    for manifest in (_pod(namespace=OTHER), {**_job(), "metadata": {"name": "job", "namespace": OTHER}}):
        assert "cannot create" in refusal(researcher, manifest)
    for path in (
        f"/api/v1/namespaces/{OTHER}/pods",
        f"/api/v1/namespaces/{OTHER}/persistentvolumeclaims",
        f"/api/v1/namespaces/{TEAM}/secrets",
        "/api/v1/persistentvolumes",
        "/api/v1/pods",
    ):
        with pytest.raises(ApiError, match="cannot list"):
            researcher.request("GET", path)
    for path in (
        f"/api/v1/namespaces/{TEAM}",
        f"/api/v1/namespaces/{TEAM}/resourcequotas/team",
        f"/api/v1/namespaces/{TEAM}/limitranges/defaults",
        f"/api/v1/namespaces/{TEAM}/serviceaccounts/training",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}/roles/researcher",
        f"/apis/networking.k8s.io/v1/namespaces/{TEAM}/networkpolicies/default-deny",
        f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{TEAM}/podgroups/group",
    ):
        with pytest.raises(ApiError, match="cannot patch"):
            researcher.request("PATCH", path, {}, content_type="application/merge-patch+json")


TORCHX = {
    # torchx 0.7.0, schedulers/kubernetes_scheduler.py: run, cancel, status and describe, list, log.
    ("create", "batch.volcano.sh", "jobs", ""),
    ("delete", "batch.volcano.sh", "jobs", ""),
    ("get", "batch.volcano.sh", "jobs", "status"),
    ("list", "batch.volcano.sh", "jobs", ""),
    ("get", "", "pods", "log"),
}


@pytest.mark.parametrize(("verb", "group", "resource", "subresource"), sorted(TORCHX))
def test_all_that_torchx_asks_is_allowed(
    researcher: Api, administrator: Api, verb: str, group: str, resource: str, subresource: str
) -> None:
    asked = {"namespace": TEAM, "verb": verb, "group": group, "resource": resource, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "x", "groups": [f"trainium-eks:{TEAM}:researchers"], "resourceAttributes": asked},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert administrator.request("POST", path, review)["status"]["allowed"] is True
    other = {**asked, "namespace": OTHER}
    review["spec"] = {**review["spec"], "resourceAttributes": other}  # type: ignore[dict-item]
    assert administrator.request("POST", path, review)["status"]["allowed"] is False


MOST_TASK_CONTAINERS = 128
"""Most tasks of a Volcano job, times the containers of one of its pods (admission.yaml)."""


def test_the_largest_gangs_are_judged_within_the_servers_limits(researcher: Api) -> None:
    """What a policy costs to judge grows with tasks; the API server refuses what costs too much."""
    job = _job(NEURON, job={"minAvailable": MOST_TASK_CONTAINERS})
    (task, _) = job["spec"]["tasks"]
    tasks = [{**task, "name": f"trainer-{index}"} for index in range(MOST_TASK_CONTAINERS)]
    job["spec"]["tasks"] = tasks
    researcher.create(job, dry_run=True)
    job["spec"]["tasks"] = [*tasks[:-1], {"name": "last", "template": {"spec": _spec(nodeName="node")}}]
    assert "must not name its node" in refusal(researcher, job)
    job["spec"]["tasks"] = [*tasks, {**task, "name": "one-more"}]
    assert f"must be at most {MOST_TASK_CONTAINERS}" in refusal(researcher, job)


def _quota(name: str, amount: str) -> Json:
    metadata = {"name": "quota", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {name: amount}}}


@pytest.mark.parametrize(("name", "amount"), [*TAKEN.items(), *USELESS.items()])
def test_a_quota_that_the_model_takes_or_calls_useless_is_taken(api: Api, name: str, amount: str) -> None:
    api.create(_quota(name, amount), dry_run=True)


@pytest.mark.parametrize(("name", "amount"), REFUSED.items())
def test_a_quota_that_the_model_refuses_is_refused(api: Api, name: str, amount: str) -> None:
    with pytest.raises(ApiError):
        api.create(_quota(name, amount), dry_run=True)
