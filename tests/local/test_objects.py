"""Objects on a real API server: applied, awaited, replaced and deleted as Pulumi's Kubernetes provider does."""

import re
import threading
import time

import pytest
from manifests import RBAC, claim, definition, deployment, is_refused, live, manifest, patch, path, pod_spec, volume
from waiting import until

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import Change
from trainium_eks.local.objects.apply import Objects

SECONDS = 300.0
POD = pod_spec("x")
NEVER = {"spec": pod_spec("x", restartPolicy="Never")}
NOWHERE = {"nodeSelector": {"no-such": "node"}}


@pytest.fixture
def objects(api):
    return Objects(api, lambda _: None)


@pytest.fixture
def here(api, namespace):
    """Puts an object into the test's namespace; a cluster-wide one is named after it and deleted later."""
    made = []

    def placed(wanted):
        if api.kind(wanted["apiVersion"], wanted["kind"]).namespaced:
            return {**wanted, "metadata": {**wanted["metadata"], "namespace": namespace}}
        made.append({**wanted, "metadata": {**wanted["metadata"], "name": namespace}})
        return made[-1]

    yield placed
    for each in made:
        api.delete(api.reference(each), propagation="Background")


def config_map(namespace, name="a", **data):
    return manifest("ConfigMap", name, namespace, data=data)


def web(namespace, pod=POD, **spec):
    return deployment("web", namespace, {**POD, **pod}, **spec)


def apply(objects, wanted, *, wait=True):
    return objects.apply(wanted, timeout_seconds=SECONDS, wait=wait)


def change_of(objects, wanted):
    return apply(objects, wanted, wait=False).change


def refusal(objects, wanted, seconds=SECONDS):
    with pytest.raises(ClusterError) as caught:
        objects.apply(wanted, timeout_seconds=seconds)
    return str(caught.value)


def until_pods_wait(api, stuck, count):
    """Until a Deployment has so many pods and knows it, and the scheduler has said of each that it fits nowhere."""

    def reasons():
        pods = api.list("v1", "Pod", namespace=stuck["metadata"]["namespace"])
        return [each["reason"] for pod in pods for each in pod["status"].get("conditions") or () if "reason" in each]

    until(lambda: reasons() == ["Unschedulable"] * count, reasons)
    until(lambda: live(api, stuck)["status"].get("updatedReplicas") == count, lambda: live(api, stuck))


def hold(api, wanted):
    api.apply({**wanted, "metadata": {**wanted["metadata"], "finalizers": ["trn.test/held"]}})
    api.delete(api.reference(wanted), propagation="Background")


def release(api, held):
    patch(api, held, {"metadata": {"finalizers": None}})


def test_object_is_created_unchanged_and_updated(objects, api, namespace):
    first = apply(objects, config_map(namespace, one="1", two="2"))
    assert first.change is Change.CREATED
    assert first.outputs["metadata"]["uid"]
    assert "managedFields" not in first.outputs["metadata"]
    time.sleep(1.1)  # managedFields count in seconds: an apply that touched the object would show
    assert change_of(objects, config_map(namespace, one="1", two="2")) is Change.SAME
    assert change_of(objects, config_map(namespace, one="one")) is Change.UPDATED
    found = live(api, config_map(namespace))
    assert found["data"] == {"one": "one"}, "what left the manifest leaves the object"


def test_drift_is_repaired_and_foreign_fields_are_kept(objects, api, namespace):
    api.create(config_map(namespace, one="theirs"))
    assert change_of(objects, config_map(namespace, one="1")) is Change.UPDATED, "it is taken over"
    for theirs, change in (({"theirs": "x"}, Change.SAME), ({"one": "drifted"}, Change.UPDATED)):
        patch(api, config_map(namespace), {"data": theirs})
        again = apply(objects, config_map(namespace, one="1"))
        assert (again.change, again.outputs["data"]) == (change, {"one": "1", "theirs": "x"})


def test_plain_text_secret_is_unchanged_the_second_time(objects, namespace):
    secret = manifest("Secret", "s", namespace, stringData={"key": "a"})
    assert [change_of(objects, secret) for _ in range(2)] == [Change.CREATED, Change.SAME]
    updated = apply(objects, {**secret, "stringData": {"key": "b"}})
    assert (updated.change, updated.outputs["data"]) == (Change.UPDATED, {"key": "Yg=="})


def it(kind, api_version="", **fields):
    return manifest(kind, "it", api_version=api_version, **fields)


def referring(kind, role):
    return it(kind, roleRef={"apiGroup": RBAC, "kind": role, "name": "x"})


SELECTED = {"selector": {"matchLabels": {"app": "a"}}}
SELECTED["template"] = {"metadata": {"labels": {"app": "a", "tier": "b"}}, "spec": POD}

REPLACED = {
    "a Job's template": (
        it("Job", spec={"template": NEVER}),
        {"spec": {"template": {"metadata": {"annotations": {"new": "x"}}}}},
    ),
    "a Deployment's selector": (
        it("Deployment", spec=SELECTED),
        {"spec": {"selector": {"matchLabels": {"tier": "b"}}}},
    ),
    "a StatefulSet's service": (
        it("StatefulSet", spec={"serviceName": "x", **SELECTED}),
        {"spec": {"serviceName": "y"}},
    ),
    "a claim's access modes": (claim("it", ""), {"spec": {"accessModes": ["ReadWriteOnce"]}}),
    "a Service's cluster IP": (it("Service", spec={"ports": [{"port": 80}]}), {"spec": {"clusterIP": "None"}}),
    "an immutable ConfigMap's data": (it("ConfigMap", immutable=True, data={"a": "b"}), {"data": {"a": "c"}}),
    "an immutable Secret's data": (it("Secret", immutable=True, stringData={"a": "b"}), {"stringData": {"a": "c"}}),
    "a Secret's type": (it("Secret", type="Opaque"), {"type": "example.com/other"}),
    "a RoleBinding's role": (referring("RoleBinding", "Role"), {"roleRef": {"name": "y"}}),
    "a Pod's container": (it("Pod", spec=POD), {"spec": {"hostNetwork": True}}),
    "a StorageClass' parameters": (
        it("StorageClass", provisioner="p", parameters={"a": "b"}),
        {"parameters": {"a": "c"}},
    ),
    "several fields of a StorageClass": (
        it("StorageClass", provisioner="p"),
        {"provisioner": "q", "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"},
    ),
    "a volume's source": (volume("it"), {"spec": {"csi": {"volumeHandle": "fs-2"}}}),
    "a PriorityClass' value": (it("PriorityClass", value=1), {"value": 2}),
    "a ClusterRoleBinding's role": (referring("ClusterRoleBinding", "ClusterRole"), {"roleRef": {"name": "y"}}),
    "a RuntimeClass' handler": (it("RuntimeClass", "node.k8s.io/v1", handler="a"), {"handler": "b"}),
}


def merged(old, new):
    """New scalars and lists in the place of old ones; ``matchLabels`` as a whole."""
    result = dict(old)
    for key, value in new.items():
        deeper = isinstance(value, dict) and isinstance(old.get(key), dict) and key != "matchLabels"
        result[key] = merged(old[key], value) if deeper else value
    return result


@pytest.mark.parametrize(("before", "change"), REPLACED.values(), ids=REPLACED)
def test_immutable_change_replaces_the_object(objects, here, before, change):
    before = here(before)
    created = apply(objects, before, wait=False)
    replaced = apply(objects, merged(before, change), wait=False)
    assert replaced.change is Change.REPLACED
    assert replaced.outputs["metadata"]["uid"] != created.outputs["metadata"]["uid"]
    assert change_of(objects, merged(before, change)) is Change.SAME


def test_object_that_cannot_be_recreated_is_not_deleted(objects, api, namespace):
    job = manifest("Job", "train", namespace, spec={"template": NEVER})
    uid = apply(objects, job, wait=False).outputs["metadata"]["uid"]
    changed = {"spec": {"parallelism": -1, "template": {"metadata": {"annotations": {"new": "x"}}}}}
    assert refusal(objects, merged(job, changed)) == (
        f'Job {namespace}/train: Job.batch "train" is invalid: '
        "spec.parallelism: Invalid value: -1: must be greater than or equal to 0"
    )
    assert live(api, job)["metadata"]["uid"] == uid
    assert "deletionTimestamp" not in live(api, job)["metadata"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            web("NS", {"containers": [{"name": "main", "image": "x", "resource": {}}]}),
            r'Deployment NS/web: (?s:.*)\.spec\.template\.spec\.containers\[name="main"\]\.resource: '
            r"field not declared in schema(?s:.*)",
        ),
        (
            web("NS", replicas=-1, selector={"matchLabels": {"app": "other"}}),
            r'Deployment NS/web: Deployment\.apps "web" is invalid:\n  spec\.replicas: .*'
            r"\n  spec\.template\.metadata\.labels: .*",
        ),
        (config_map("NS-not"), 'ConfigMap NS-not/a: namespaces "NS-not" not found'),
        (
            {**config_map("NS"), "kind": "Confmap"},
            r"Confmap NS/a: the API server serves no Confmap in v1; there it serves .*ConfigMap, .*",
        ),
    ],
    ids=["unknown field", "each fault on a line", "no namespace", "no such kind"],
)
def test_refusal_names_the_object_and_the_fault(objects, namespace, wanted, said):
    placed = {**wanted, "metadata": {**wanted["metadata"]}}
    placed["metadata"]["namespace"] = wanted["metadata"]["namespace"].replace("NS", namespace)
    text = refusal(objects, placed)
    assert re.fullmatch(said.replace("NS", namespace), text), text


def test_refusal_shows_the_admission_policys_message(objects, api, namespace, here):
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    refuses = [{"expression": "object.metadata.name != 'a'", "message": "no ConfigMap is called a"}]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": refuses}
    selected = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": selected}
    apply(objects, here(it("ValidatingAdmissionPolicy", spec=spec)))
    apply(objects, here(it("ValidatingAdmissionPolicyBinding", spec=binding)))
    until(lambda: is_refused(api, config_map(namespace)), "a policy takes a moment to be in force")
    text = refusal(objects, config_map(namespace))
    assert text.startswith(f"ConfigMap {namespace}/a: ")
    assert text.endswith("denied request: no ConfigMap is called a")


def test_a_deployment_and_its_service_are_awaited_until_pods_are_ready(objects, namespace, node):
    service = manifest("Service", "web", namespace, spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})
    text = refusal(objects, service, seconds=1)
    found = rf"Service {namespace}/web was not ready after \d+ s: no pod that it selects is ready"
    assert re.fullmatch(found, text), text
    there = {"nodeSelector": {"for": node}}
    applied = apply(objects, web(namespace, there, replicas=2))
    assert applied.outputs["status"]["availableReplicas"] == 2
    assert apply(objects, service).change is Change.SAME
    applied = apply(objects, web(namespace, pod_spec("y", **there), replicas=3))
    assert applied.change is Change.UPDATED
    assert applied.outputs["status"]["updatedReplicas"] == applied.outputs["status"]["availableReplicas"] == 3


def test_job_is_awaited_until_complete_and_a_failed_one_shows_its_reason(objects, namespace, node):
    pod = {"spec": {**NEVER["spec"], "nodeSelector": {"for": node}}}
    applied = apply(objects, manifest("Job", "whole", namespace, spec={"template": pod}))
    assert applied.outputs["status"]["succeeded"] == 1
    spec = {"activeDeadlineSeconds": 1, "template": {"spec": {**NEVER["spec"], **NOWHERE}}}
    text = refusal(objects, manifest("Job", "train", namespace, spec=spec))
    # Not that it was not ready in time.
    assert text.startswith(f"Job {namespace}/train failed: DeadlineExceeded: ")


def test_timeout_shows_why_the_pods_are_waiting(objects, api, namespace):
    stuck = web(namespace, NOWHERE, replicas=2)
    stuck["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    assert apply(objects, stuck).change is Change.CREATED
    until_pods_wait(api, stuck, 2)
    stuck["metadata"]["annotations"] = {"pulumi.com/timeoutSeconds": "1"}
    started = time.monotonic()
    lines = refusal(objects, stuck).split("\n")
    assert time.monotonic() - started < SECONDS / 2, "Pulumi's annotation goes before"
    found = rf"Deployment {namespace}/web was not ready after \d+ s: 0 of 2 pods are available"
    assert re.fullmatch(found, lines[0]), lines
    assert lines[1].startswith("  2 pods: not scheduled: Unschedulable: ")
    assert "node" in lines[1]


def test_timeout_shows_why_pods_are_not_created(objects, api, namespace):
    stuck = web(namespace, {"serviceAccountName": "missing"})
    change_of(objects, stuck)
    until(lambda: api.list("v1", "Event", namespace=namespace, fields="reason=FailedCreate"), "it is an event")
    text = refusal(objects, stuck, seconds=1)
    assert "\n  FailedCreate: " in text
    assert 'serviceaccount "missing" not found' in text


def test_volume_and_claim_are_awaited_until_bound_or_waiting_for_a_pod(objects, api, namespace, here):
    retained = {"persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": namespace, "name": "data"}}
    of_fsx, data = here(volume("it", **retained)), claim("data", namespace, volumeName=namespace)
    apply(objects, of_fsx)
    assert apply(objects, data).outputs["status"]["phase"] == "Bound"
    assert change_of(objects, of_fsx) is Change.SAME, "the binder's part of claimRef is not ours"
    objects.delete(api.reference(data), timeout_seconds=SECONDS)
    until(lambda: live(api, of_fsx)["status"]["phase"] == "Released", lambda: live(api, of_fsx))
    text = refusal(objects, of_fsx)
    assert f"it is Released: it still names the claim {namespace}/data that is gone" in text

    # A claim that waits for its first pod is not awaited.
    apply(objects, here(it("StorageClass", provisioner="ebs.csi.aws.com", volumeBindingMode="WaitForFirstConsumer")))
    waits = claim("waits", namespace, accessModes=["ReadWriteOnce"], storageClassName=namespace)
    assert apply(objects, waits).outputs["status"]["phase"] == "Pending"


def test_custom_object_is_created_right_after_its_definition(objects, api, namespace):
    group = f"{namespace}.example.com"
    spec = {"type": "object", "properties": {"weight": {"type": "integer"}}}
    defined = definition(
        "Queue", "queues", group, scope="Cluster", schema={"type": "object", "properties": {"spec": spec}}
    )
    queue = manifest("Queue", "q", api_version=f"{group}/v1", spec={"weight": 1})
    try:
        assert "nor any other kind" in refusal(objects, queue)
        apply(objects, defined)
        reference = api.reference(queue)
        assert [apply(objects, queue).change for _ in range(2)] == [Change.CREATED, Change.SAME]
        assert apply(objects, defined).change is Change.SAME
        assert "weigth" in refusal(objects, {**queue, "spec": {"weigth": 1}})
    finally:
        objects.delete(api.reference(defined), timeout_seconds=SECONDS)
    objects.delete(reference, timeout_seconds=SECONDS)  # gone with its kind


@pytest.mark.slow
def test_quota_counts_a_newly_defined_kind_at_once(objects, api, namespace):
    """Kubernetes by itself would refuse the kind's objects for up to 5 minutes."""
    group = f"{namespace}.example.org"
    limits = {"hard": {f"count/gears.{group}": "1", f"count/none.{group}": "1"}}
    quota = manifest("ResourceQuota", "team", namespace, spec=limits)
    apply(objects, quota)
    defined = definition("Gear", "gears", group)
    try:
        apply(objects, defined)
        gears = [manifest("Gear", name, namespace, api_version=f"{group}/v1") for name in "ab"]
        api.create(gears[0])
        assert is_refused(api, gears[1], "exceeded quota")
        assert apply(objects, quota).change is Change.SAME
    finally:
        api.delete(api.reference(defined), propagation="Background")


def test_long_wait_is_reported_once_and_ends_on_stop(api, namespace):
    told = []
    stopping = threading.Event()

    def tell(line):
        told.append(line)
        threading.Timer(1, stopping.set).start()  # the same is not told again meanwhile

    stuck = web(namespace, NOWHERE)
    change_of(Objects(api, tell), stuck)
    until_pods_wait(api, stuck, 1)
    assert "was not ready when everything was stopped" in refusal(Objects(api, tell, stopping), stuck)
    assert told == [f"Deployment {namespace}/web: 0 of 1 pods are available"]


def test_terminating_object_is_recreated(objects, api, namespace):
    hold(api, config_map(namespace, one="old"))
    text = refusal(objects, config_map(namespace), seconds=1)
    found = rf"ConfigMap {namespace}/a was not gone after \d+ s\n  held by finalizers: trn\.test/held"
    assert re.fullmatch(found, text), text
    threading.Timer(0.5, release, (api, config_map(namespace))).start()
    applied = apply(objects, config_map(namespace, one="new"))
    assert (applied.change, applied.outputs["data"]) == (Change.CREATED, {"one": "new"})


def test_deletion_waits_for_owned_objects(objects, api, namespace, node):
    made = web(namespace, {"nodeSelector": {"for": node}}, replicas=3)
    apply(objects, made)
    objects.delete(api.reference(made), timeout_seconds=SECONDS)
    assert live(api, made) == {}
    assert api.list("v1", "Pod", namespace=namespace) == []
    objects.delete(api.reference(made), timeout_seconds=SECONDS)  # absent is fine


def test_claim_in_use_names_its_pods(objects, api, namespace):
    mounted = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    user = manifest("Pod", "user", namespace, spec={**POD, "volumes": mounted, "nodeName": "no-such-node"})
    for each in (claim("data", namespace), user):
        apply(objects, each, wait=False)
    with pytest.raises(ClusterError) as caught:
        objects.delete(api.reference(claim("data", namespace)), timeout_seconds=1)
    held = "is not deleted while pods hold it, finished ones too: user (Pending)"
    assert str(caught.value).startswith(f"PersistentVolumeClaim {namespace}/data {held}\n")
    api.request("DELETE", path(api, user), query={"gracePeriodSeconds": "0"})
