"""Two teams on a real API server: what a researcher of one tries against the other, and what they do every day."""

import pytest
from manifests import RBAC, claim, definition, deployment, gang, group, is_refused, is_taken, manifest, path, role
from quota_cases import REFUSED, TAKEN, USELESS
from running_pods import may
from team_rooms import in_force
from waiting import until

from trainium_eks.kube.api import Api, ApiError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.control_plane import researchers

TEAM, OTHER = "vision", "speech"
QUEUES = {TEAM: "eyes", OTHER: "ears"}

VOLCANO_KINDS = (
    definition("Job", "jobs", "batch.volcano.sh", "v1alpha1"),
    definition("Command", "commands", "bus.volcano.sh", "v1alpha1"),
    definition("PodGroup", "podgroups", "scheduling.volcano.sh", "v1beta1"),
)
NEURON = {"limits": {"aws.amazon.com/neuron": "16"}, "requests": {"aws.amazon.com/neuron": "16"}}
ON_TRAINIUM = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}
IN_GROUP = {"scheduling.k8s.io/group-name": "group"}
IN_QUEUE = {"scheduling.volcano.sh/queue-name": QUEUES[TEAM]}


@pytest.fixture(scope="module")
def administrator(api, record):
    """The API as its administrator, with the two teams' namespaces in force."""
    with in_force(api, record, QUEUES, VOLCANO_KINDS):
        # A policy is in force a moment after it is there, each by itself.
        for each in (
            _pod(nodeName="n"),
            _job(queue="no"),
            _job(tolerations=[{"operator": "Exists"}]),
            _command("Queue", "ears"),
            _batch_job(nodeName="n"),
            _deployment(nodeName="n"),
            _service(externalIPs=["10.0.0.1"]),
        ):
            until(lambda each=each: is_refused(api, each), f"the policy for {each['kind']} is in force")
        yield api


@pytest.fixture(scope="module")
def researcher(administrator, paths):
    api = Api.connect(researchers.kubeconfig(paths, TEAM))
    until(lambda: is_taken(api, _pod()), "the role is in force, and the team's default account there")
    return api


def _spec(resources=None, **spec):
    container = {"name": "c", "image": "image", "resources": resources or {}}
    return {"containers": [container], "restartPolicy": "Never", **spec}


def _pod(resources=None, *, namespace=TEAM, annotations=None, **spec):
    metadata = {"generateName": "pod-", "annotations": annotations or {}}
    return manifest("Pod", "pod", namespace, metadata=metadata, spec=_spec(resources, **spec))


def _job(resources=None, *, queue=QUEUES[TEAM], job=None, **spec):
    made = gang("job", TEAM, queue, 1, _spec(resources, **spec))
    [task] = made["spec"]["tasks"]
    tasks = [{**task, "name": f"trainer-{index}"} for index in range(2)]
    return {**made, "spec": {**made["spec"], "minAvailable": 2, "tasks": tasks, **(job or {})}}


def _batch_job(resources=None, **spec):
    return manifest("Job", "job", TEAM, spec={"template": {"spec": _spec(resources, **spec)}})


def _deployment(resources=None, **spec):
    return deployment("deployment", TEAM, _spec(resources, restartPolicy="Always", **spec))


def _service(**spec):
    return manifest("Service", "service", TEAM, spec={"ports": [{"port": 80}], **spec})


def _command(kind, name, api_version="scheduling.volcano.sh/v1beta1"):
    target = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "1"}
    api_version = "bus.volcano.sh/v1alpha1"
    return manifest("Command", "command", TEAM, api_version=api_version, action="CloseQueue", target=target)


def _claim(storage_class="fsx", size="1200Gi", **spec):
    return claim("claim", TEAM, size, storageClassName=storage_class, **spec)


def _ephemeral(*claimed, **spec):
    return {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": _claim(*claimed, **spec)["spec"]}}}


def refusal(api, wanted):
    """Why the API server forbids an object; it must."""
    with pytest.raises(ApiError) as caught:
        api.create(wanted, dry_run=True)
    assert caught.value.status == 403, caught.value
    return caught.value.message


# What each of them names is refused in pods, and in the templates of both kinds of jobs when they are submitted.
SPECS = {
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
    "a device claim": ({"resourceClaims": [{"name": "d", "resourceClaimTemplateName": "t"}]}, "resourceClaims"),
    "a file system of its own": ({"volumes": [_ephemeral()]}, "storage class fsx"),
    "another's volume": (
        {"volumes": [_ephemeral(storage_class="", volumeName="speech-fsx")]},
        "must not name an existing volume",
    ),
    "large texts": ({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x" * 60] * 9000}]}, "letters: put large texts"),
    "any EBS volume": ({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}}]}, "volumes must be"),
}


@pytest.mark.parametrize(("spec", "said"), SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("made", [_pod, _job, _batch_job, _deployment])
def test_invalid_pod_spec_is_refused(researcher, made, spec, said):
    assert said in refusal(researcher, made(**spec))


def test_job_pod_that_names_its_node_is_refused(researcher):
    on_node = {"resources": NEURON, "schedulerName": "volcano", "nodeName": "ip-10-0-0-1"}
    assert "must not name its node" in refusal(researcher, _pod(annotations=IN_QUEUE, **on_node))
    for made in (_batch_job(**on_node), _deployment(**on_node)):
        made["spec"]["template"].setdefault("metadata", {})["annotations"] = IN_QUEUE
        assert "must not name its node" in refusal(researcher, made)


def test_device_environment_variable_is_refused(researcher):
    for variable in ("NVIDIA_VISIBLE_DEVICES", "AWS_NEURON_VISIBLE_DEVICES"):
        pod = _pod()
        pod["spec"]["containers"][0]["env"] = [{"name": variable, "value": "all"}]
        assert variable in refusal(researcher, pod)
        pod["spec"]["containers"][0]["env"] = [{"name": variable, "value": "void"}, {"name": "A"}]
        researcher.create(pod, dry_run=True)
        pod["spec"]["containers"][0]["envFrom"] = [{"prefix": variable[:-1], "secretRef": {"name": "s"}}]
        assert variable in refusal(researcher, pod)
        keys = manifest("Secret", "s", TEAM, stringData={variable: "all"})
        assert variable in refusal(researcher, keys)


def _everyday():
    yield from (_pod(), _pod(tolerations=[{"key": "dedicated", "operator": "Exists"}]))
    yield _pod(priorityClassName="training-high")
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "fsx-claim"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        _ephemeral("gp3"),
    ]
    yield _pod(volumes=volumes)
    yield _pod(NEURON, schedulerName="volcano", annotations=IN_QUEUE)
    yield _job(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["x" * 60] * 200}])
    yield _job(NEURON, tolerations=[ON_TRAINIUM])
    yield _job({"limits": {"aws.amazon.com/neuron": 16}}, schedulerName="volcano")
    yield _job(job={"priorityClassName": "training-normal"})
    yield _job(job={"volumes": [{"mountPath": "/data", "volumeClaimName": "fsx-claim"}]})
    yield _batch_job()
    server = _deployment(NEURON, schedulerName="volcano")
    server["spec"]["template"]["metadata"]["annotations"] = IN_QUEUE
    yield from (server, _service(selector={"app": "a"}), _command("Job", "job", "batch.volcano.sh/v1alpha1"))


def test_everyday_requests_of_a_team_are_admitted(researcher):
    for each in _everyday():
        researcher.create(each, dry_run=True)
    made = researcher.create(_pod(), dry_run=True)
    keys = {each["key"] for each in made["spec"]["tolerations"]}
    assert keys == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}, "the API server's own pass"


OBJECTS = {
    "a service's external address": (_service(externalIPs=["10.0.0.1"]), "must not have externalIPs"),
    "a load balancer": (_service(type="LoadBalancer"), "services.loadbalancers"),
    "a port of nodes": (_service(type="NodePort"), "services.nodeports"),
    "another team's queue": (_job(queue="ears"), "eyes"),
    "a pod in another team's queue": (
        _pod(NEURON, schedulerName="volcano", annotations={"scheduling.volcano.sh/queue-name": "ears"}),
        "eyes",
    ),
    "a pod without a queue": (_pod(schedulerName="volcano"), "must name its queue"),
    "a pod in a gang": (_pod(NEURON, schedulerName="volcano", annotations=IN_GROUP), "is set by controllers"),
    "a job of the system's priority": (
        _job(job={"priorityClassName": "system-node-critical"}),
        "spec.priorityClassName",
    ),
    "a job's own file system": (
        _job(job={"volumes": [{"mountPath": "/data", "volumeClaim": _claim()["spec"]}]}),
        "storage class fsx",
    ),
    "a job's claim of another's volume": (
        _job(job={"volumes": [{"mountPath": "/data", "volumeClaim": _claim("", volumeName="speech-fsx")["spec"]}]}),
        "name an existing volume",
    ),
    "a claim": (_claim("gp3", "1Gi"), "persistentvolumeclaims"),
    "closing another's queue": (_command("Queue", "ears"), "must be a Volcano Job"),
    "closing a Job of no group": (_command("Job", "ears"), "must be a Volcano Job"),
    "a command without a target": (
        manifest("Command", "command", TEAM, api_version="bus.volcano.sh/v1alpha1", action="CloseQueue"),
        "must be a Volcano Job",
    ),
    "pods that the API server refuses": (
        _job(securityContext={"seLinuxChangePolicy": "MountOption"}),
        "again and again",
    ),
    "a pod in another's room": (_pod(namespace=OTHER), "cannot create"),
    "a job in another's room": ({**_job(), "metadata": {"name": "job", "namespace": OTHER}}, "cannot create"),
}


@pytest.mark.parametrize(("wanted", "said"), OBJECTS.values(), ids=OBJECTS)
def test_forbidden_object_is_refused(researcher, wanted, said):
    assert said in refusal(researcher, wanted)


def test_quota_limits_claims_made_by_controllers(administrator):
    assert "fsx.storageclass.storage.k8s.io/persistentvolumeclaims" in refusal(administrator, _claim())
    assert "requests.storage" in refusal(administrator, _claim("gp3", "2225Gi"))
    administrator.create(_claim("gp3", "2224Gi"), dry_run=True)


def test_existing_pod_cannot_be_given_more_rights(researcher, administrator):
    owned = _pod()
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}]
    assert "by its controller" in refusal(researcher, owned)
    pod = researcher.create(_pod(schedulingGates=[{"name": "hold"}]))
    there = path(administrator, pod)

    def patch(change, below="", kind="merge-patch"):
        with pytest.raises(ApiError) as caught:
            researcher.request("PATCH", there + below, change, content_type=f"application/{kind}+json")
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
            researcher.request("POST", f"{there}/binding", binding)
        gone = {"metadata": {"labels": {"a": "b"}}, "spec": {"schedulingGates": []}}
        researcher.request("PATCH", there, gone, content_type="application/merge-patch+json")
    finally:
        administrator.request("DELETE", there, query={"gracePeriodSeconds": "0"})


def test_team_can_neither_reach_another_namespace_nor_change_its_own(researcher):
    for where in (
        f"/api/v1/namespaces/{OTHER}/pods",
        f"/api/v1/namespaces/{OTHER}/persistentvolumeclaims",
        f"/api/v1/namespaces/{TEAM}/secrets",
        "/api/v1/persistentvolumes",
        "/api/v1/pods",
    ):
        with pytest.raises(ApiError, match="cannot list"):
            researcher.request("GET", where)
    for where in (
        f"/api/v1/namespaces/{TEAM}",
        f"/api/v1/namespaces/{TEAM}/resourcequotas/team",
        f"/api/v1/namespaces/{TEAM}/limitranges/defaults",
        f"/api/v1/namespaces/{TEAM}/serviceaccounts/training",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}/roles/researcher",
        f"/apis/networking.k8s.io/v1/namespaces/{TEAM}/networkpolicies/default-deny",
        f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{TEAM}/podgroups/group",
    ):
        with pytest.raises(ApiError, match="cannot patch"):
            researcher.request("PATCH", where, {}, content_type="application/merge-patch+json")


# torchx 0.7.0, schedulers/kubernetes_scheduler.py: run, cancel, status and describe, list, log.
TORCHX = (
    ("create", "jobs.batch.volcano.sh", ""),
    ("delete", "jobs.batch.volcano.sh", ""),
    ("get", "jobs.batch.volcano.sh", "status"),
    ("list", "jobs.batch.volcano.sh", ""),
    ("get", "pods", "log"),
)


@pytest.mark.parametrize("asked", TORCHX, ids=" ".join)
def test_every_request_of_torchx_is_allowed(administrator, asked):
    group = f"trainium-eks:{TEAM}:researchers"
    assert may(administrator, group, TEAM, *asked)
    assert not may(administrator, group, OTHER, *asked)


MOST_TASK_CONTAINERS = 128
"""Most tasks of a Volcano job, times the containers of one of its pods (admission.yaml)."""


def test_largest_gangs_fit_the_api_servers_cost_limits(researcher):
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


@pytest.mark.parametrize(("name", "amount"), [*TAKEN.items(), *USELESS.items(), *REFUSED.items()])
def test_quota_is_accepted_or_refused_like_the_model(api, name, amount):
    quota = manifest("ResourceQuota", "quota", "default", spec={"hard": {name: amount}})
    assert is_taken(api, quota) is (name not in REFUSED or amount != REFUSED[name])


RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]


def bind(api, namespace, *subjects):
    for each in role("team", namespace, RULES, *subjects):
        api.create(each)


def may_list(api, namespace):
    try:
        api.list("v1", "Pod", namespace=namespace)
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


def test_researcher_has_exactly_the_rights_of_their_groups_role(api, paths, namespace):
    bind(api, namespace, group("team:researchers"), group("system:masters"))
    researcher = Api.connect(researchers.kubeconfig(paths, namespace))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = researcher.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    user = found["status"]["userInfo"]
    assert user["username"] == f"researcher@{namespace}"
    assert user["groups"] == ["team:researchers", "system:authenticated"]
    until(lambda: may_list(researcher, namespace), "the role is in force, which takes a moment")
    assert not may_list(researcher, "default")
    assert not may_list(researcher, "")


@pytest.mark.parametrize("subjects", [[], [group("system:masters")], [{"kind": "User", "name": "x", "apiGroup": RBAC}]])
def test_a_namespace_without_a_group_has_no_researcher(api, paths, namespace, subjects):
    bind(api, namespace, *subjects)
    with pytest.raises(
        ClusterError, match=f"'{namespace}' is not a team's namespace: no RoleBinding in it is for a group"
    ):
        researchers.kubeconfig(paths, namespace)
