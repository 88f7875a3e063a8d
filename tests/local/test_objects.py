"""Objects on a real API server: applied, awaited, replaced and deleted as Pulumi's Kubernetes provider does."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from waiting import until

from trainium_eks.kube import api as api_module
from trainium_eks.kube.api import Api, ApiError, ObjectReference, in_parallel
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import Change
from trainium_eks.local.objects.apply import Objects

Manifest = dict[str, Any]

SECONDS = 300.0
POD = {"metadata": {"labels": {"app": "a", "tier": "b"}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
NEVER = {**POD, "spec": {**POD["spec"], "restartPolicy": "Never"}}
NOWHERE = {"nodeSelector": {"no-such": "node"}}
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def objects(api: Api) -> Objects:
    return Objects(api, lambda _: None)


@pytest.fixture
def unnamespaced(api: Api, namespace: str) -> Iterator[Callable[[Manifest], Manifest]]:
    """Names an object outside namespaces after the test's namespace, and deletes it at the end."""
    made: list[ObjectReference] = []

    def named(manifest: Manifest) -> Manifest:
        result = {**manifest, "metadata": {**manifest.get("metadata", {}), "name": namespace}}
        made.append(ObjectReference(manifest["apiVersion"], manifest["kind"], "", namespace))
        return result

    yield named
    for reference in made:
        api.delete(reference, propagation="Background")


@pytest.fixture
def node(api: Api, namespace: str) -> Iterator[str]:
    """A simulated node, which only pods that select it by its name's label are put on."""
    room = {"cpu": "8", "memory": "8Gi", "pods": "20"}
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": namespace,
                "labels": {"for": namespace},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "status": {"capacity": room, "allocatable": room},
        }
    )
    yield namespace
    api.delete(ObjectReference("v1", "Node", "", namespace))


def config_map(namespace: str, name: str = "a", **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def deployment(namespace: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": deepcopy(POD), **spec},
    }


def on_node(node: str) -> Manifest:
    return {**POD, "spec": {**POD["spec"], "nodeSelector": {"for": node}}}


def change_of(objects: Objects, manifest: Mapping[str, Any]) -> Change:
    return objects.apply(manifest, timeout_seconds=SECONDS, wait=False).change


def refusal(objects: Objects, manifest: Mapping[str, Any], seconds: float = SECONDS) -> str:
    with pytest.raises(ClusterError) as caught:
        objects.apply(manifest, timeout_seconds=seconds)
    return str(caught.value)


def until_pods_wait(api: Api, namespace: str, count: int) -> None:
    """Until a Deployment has so many pods and knows it, and the scheduler has said of each that it fits nowhere."""

    def reasons() -> list[str]:
        pods = api.list("v1", "Pod", namespace=namespace)
        return [each["reason"] for pod in pods for each in pod["status"].get("conditions") or () if "reason" in each]

    until(lambda: reasons() == ["Unschedulable"] * count, reasons)
    web = ObjectReference("apps/v1", "Deployment", namespace, "web")
    until(lambda: (api.get(web) or {})["status"].get("updatedReplicas") == count, lambda: api.get(web))


def hold(api: Api, manifest: Manifest) -> ObjectReference:
    """Makes an object that a finalizer keeps, and asks for its deletion."""
    held = {**manifest, "metadata": {**manifest["metadata"], "finalizers": ["trn.test/held"]}}
    reference = api.reference(held)
    api.apply(held)
    api.delete(reference, propagation="Background")
    return reference


def release(api: Api, reference: ObjectReference) -> None:
    path = api.kind(reference.api_version, reference.kind).path(reference.namespace, reference.name)
    body = {"metadata": {"finalizers": None}}
    api.request("PATCH", path, body, content_type="application/merge-patch+json")


# --- What changed -------------------------------------------------------------------------------------------------


def test_an_object_is_created_then_the_same_then_updated(objects: Objects, api: Api, namespace: str) -> None:
    first = objects.apply(config_map(namespace, one="1", two="2"), timeout_seconds=SECONDS)
    assert first.change is Change.CREATED
    assert first.outputs["metadata"]["uid"]
    assert "managedFields" not in first.outputs["metadata"]
    time.sleep(1.1)  # managedFields count in seconds: an apply that touched the object would show
    assert change_of(objects, config_map(namespace, one="1", two="2")) is Change.SAME
    assert change_of(objects, config_map(namespace, one="one")) is Change.UPDATED
    live = api.get(ObjectReference("v1", "ConfigMap", namespace, "a"))
    assert live is not None
    assert live["data"] == {"one": "one"}, "what left the manifest leaves the object"


def test_a_repaired_drift_is_an_update(objects: Objects, api: Api, namespace: str) -> None:
    change_of(objects, config_map(namespace, one="1"))
    path = f"/api/v1/namespaces/{namespace}/configmaps/a"
    api.request("PATCH", path, {"data": {"one": "drifted"}}, content_type="application/merge-patch+json")
    repaired = objects.apply(config_map(namespace, one="1"), timeout_seconds=SECONDS)
    assert (repaired.change, repaired.outputs["data"]) == (Change.UPDATED, {"one": "1"})


def test_what_others_add_is_no_change(objects: Objects, api: Api, namespace: str) -> None:
    change_of(objects, config_map(namespace, one="1"))
    path = f"/api/v1/namespaces/{namespace}/configmaps/a"
    api.request("PATCH", path, {"data": {"theirs": "x"}}, content_type="application/merge-patch+json")
    same = objects.apply(config_map(namespace, one="1"), timeout_seconds=SECONDS)
    assert (same.change, same.outputs["data"]) == (Change.SAME, {"one": "1", "theirs": "x"})


def test_an_object_of_somebody_else_is_taken_over(objects: Objects, api: Api, namespace: str) -> None:
    api.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", config_map(namespace, one="theirs"))
    assert change_of(objects, config_map(namespace, one="ours")) is Change.UPDATED


def test_a_secret_in_plain_text_is_the_same_the_second_time(objects: Objects, namespace: str) -> None:
    def secret(value: str) -> Manifest:
        metadata = {"name": "s", "namespace": namespace}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": value}}

    assert change_of(objects, secret("a")) is Change.CREATED
    assert change_of(objects, secret("a")) is Change.SAME
    updated = objects.apply(secret("b"), timeout_seconds=SECONDS)
    assert (updated.change, updated.outputs["data"]) == (Change.UPDATED, {"key": "Yg=="})


# --- Replaced -----------------------------------------------------------------------------------------------------

NAMESPACED: dict[str, tuple[Manifest, Manifest]] = {
    "a Job's template": (
        {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": NEVER}},
        {"spec": {"template": {"metadata": {"annotations": {"new": "x"}}}}},
    ),
    "a Deployment's selector": (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": POD},
        },
        {"spec": {"selector": {"matchLabels": {"tier": "b"}}}},
    ),
    "a StatefulSet's service": (
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "spec": {"serviceName": "x", "selector": {"matchLabels": {"app": "a"}}, "template": POD},
        },
        {"spec": {"serviceName": "y"}},
    ),
    "a claim's access modes": (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        {"spec": {"accessModes": ["ReadWriteOnce"]}},
    ),
    "a Service's cluster IP": (
        {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}},
        {"spec": {"clusterIP": "None"}},
    ),
    "an immutable ConfigMap's data": (
        {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "data": {"a": "b"}},
        {"data": {"a": "c"}},
    ),
    "an immutable Secret's data": (
        {"apiVersion": "v1", "kind": "Secret", "immutable": True, "stringData": {"a": "b"}},
        {"stringData": {"a": "c"}},
    ),
    "a Secret's type": (
        {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"},
        {"type": "example.com/other"},
    ),
    "a RoleBinding's role": (
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "x"},
        },
        {"roleRef": {"name": "y"}},
    ),
    "a Pod's container": (
        {"apiVersion": "v1", "kind": "Pod", "spec": POD["spec"]},
        {"spec": {"hostNetwork": True}},
    ),
}

UNNAMESPACED: dict[str, tuple[Manifest, Manifest]] = {
    "a StorageClass' parameters": (
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p", "parameters": {"a": "b"}},
        {"parameters": {"a": "c"}},
    ),
    "several fields of a StorageClass": (
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p"},
        {"provisioner": "q", "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"},
    ),
    "a volume's source": (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "csi": {"driver": "fsx.csi.aws.com", "volumeHandle": "fs-1"},
            },
        },
        {"spec": {"csi": {"volumeHandle": "fs-2"}}},
    ),
    "a PriorityClass' value": (
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1},
        {"value": 2},
    ),
    "a ClusterRoleBinding's role": (
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "x"},
        },
        {"roleRef": {"name": "y"}},
    ),
    "a RuntimeClass' handler": (
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "a"},
        {"handler": "b"},
    ),
}


def merged(old: Manifest, new: Manifest) -> Manifest:
    """New scalars and lists in the place of old ones; ``matchLabels`` as a whole."""
    result = dict(old)
    for key, value in new.items():
        deeper = isinstance(value, dict) and isinstance(old.get(key), dict) and key != "matchLabels"
        result[key] = merged(old[key], value) if deeper else value
    return result


def check_replaced(objects: Objects, before: Manifest, change: Manifest) -> None:
    created = objects.apply(before, timeout_seconds=SECONDS, wait=False)
    replaced = objects.apply(merged(before, change), timeout_seconds=SECONDS, wait=False)
    assert replaced.change is Change.REPLACED
    assert replaced.outputs["metadata"]["uid"] != created.outputs["metadata"]["uid"]
    again = objects.apply(merged(before, change), timeout_seconds=SECONDS, wait=False)
    assert again.change is Change.SAME


@pytest.mark.parametrize("what", NAMESPACED)
def test_an_immutable_field_of_a_namespaced_object_replaces_it(objects: Objects, namespace: str, what: str) -> None:
    before, change = NAMESPACED[what]
    check_replaced(objects, {**before, "metadata": {"name": "it", "namespace": namespace}}, change)


@pytest.mark.parametrize("what", UNNAMESPACED)
def test_an_immutable_field_outside_namespaces_replaces_it(
    objects: Objects, unnamespaced: Callable[[Manifest], Manifest], what: str
) -> None:
    before, change = UNNAMESPACED[what]
    check_replaced(objects, unnamespaced(before), change)


def test_what_cannot_be_made_again_is_not_deleted(objects: Objects, api: Api, namespace: str) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"template": NEVER},
    }
    uid = objects.apply(job, timeout_seconds=SECONDS, wait=False).outputs["metadata"]["uid"]
    changed = {"spec": {"parallelism": -1, "template": {"metadata": {"annotations": {"new": "x"}}}}}
    text = refusal(objects, merged(job, changed))
    assert text == (
        f'Job {namespace}/train: Job.batch "train" is invalid: '
        "spec.parallelism: Invalid value: -1: must be greater than or equal to 0"
    )
    live = api.get(ObjectReference("batch/v1", "Job", namespace, "train"))
    assert live is not None
    assert live["metadata"]["uid"] == uid
    assert "deletionTimestamp" not in live["metadata"]


# --- Refused ------------------------------------------------------------------------------------------------------


def test_an_unknown_field_is_named(objects: Objects, namespace: str) -> None:
    wrong = deployment(namespace)
    wrong["spec"]["template"]["spec"]["containers"][0]["resource"] = {}
    text = refusal(objects, wrong)
    assert text.startswith(f"Deployment {namespace}/web: ")
    assert '.spec.template.spec.containers[name="main"].resource: field not declared in schema' in text


def test_each_fault_has_a_line_of_its_own(objects: Objects, namespace: str) -> None:
    lines = refusal(objects, deployment(namespace, replicas=-1, selector={"matchLabels": {"app": "other"}})).split("\n")
    assert lines[0] == f'Deployment {namespace}/web: Deployment.apps "web" is invalid:'
    assert [line.split(": ")[0] for line in lines[1:]] == ["  spec.replicas", "  spec.template.metadata.labels"]


def test_a_policy_speaks_for_itself(
    objects: Objects, api: Api, namespace: str, unnamespaced: Callable[[Manifest], Manifest]
) -> None:
    group = "admissionregistration.k8s.io/v1"
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    policy = unnamespaced(
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "object.metadata.name != 'a'", "message": "no ConfigMap is called a"}],
            },
        }
    )
    binding = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": here}
    objects.apply(policy, timeout_seconds=SECONDS)
    objects.apply(
        unnamespaced({"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding}),
        timeout_seconds=SECONDS,
    )

    def is_in_force() -> bool:
        try:
            api.apply(config_map(namespace), dry_run=True)
        except ApiError as error:
            return "denied request" in error.message
        return False

    until(is_in_force, "a policy takes a moment to be in force")
    text = refusal(objects, config_map(namespace))
    assert text.startswith(f"ConfigMap {namespace}/a: ")
    assert text.endswith("denied request: no ConfigMap is called a")


def test_a_missing_namespace_is_named(objects: Objects, namespace: str) -> None:
    text = refusal(objects, config_map(f"{namespace}-not"))
    assert text == f'ConfigMap {namespace}-not/a: namespaces "{namespace}-not" not found'


def test_a_kind_that_is_not_served_is_named_with_what_is(objects: Objects, namespace: str) -> None:
    text = refusal(objects, {**config_map(namespace), "kind": "Confmap"})
    assert text.startswith(f"Confmap {namespace}/a: the API server serves no Confmap in v1; there it serves ")
    assert "ConfigMap, " in text


def test_a_patch_resource_is_refused(objects: Objects, namespace: str) -> None:
    text = refusal(objects, {**config_map(namespace), "kind": "ConfigMapPatch"})
    assert "a Patch resource changes an object that somebody else owns" in text


def test_a_wrong_timeout_annotation_is_refused(objects: Objects, namespace: str) -> None:
    wrong = config_map(namespace)
    wrong["metadata"]["annotations"] = {"pulumi.com/timeoutSeconds": "soon"}
    assert "pulumi.com/timeoutSeconds must be a positive number of seconds, not 'soon'" in refusal(objects, wrong)


# --- Awaited ------------------------------------------------------------------------------------------------------


def test_a_deployment_is_awaited_until_its_pods_are_available(objects: Objects, namespace: str, node: str) -> None:
    applied = objects.apply(deployment(namespace, replicas=2, template=on_node(node)), timeout_seconds=SECONDS)
    assert applied.outputs["status"]["availableReplicas"] == 2
    updated = deployment(namespace, replicas=3, template=on_node(node))
    updated["spec"]["template"]["spec"]["containers"] = [{"name": "main", "image": "y"}]
    applied = objects.apply(updated, timeout_seconds=SECONDS)
    assert applied.change is Change.UPDATED
    assert applied.outputs["status"]["updatedReplicas"] == applied.outputs["status"]["availableReplicas"] == 3


def test_a_service_is_awaited_until_a_pod_that_it_selects_is_ready(objects: Objects, namespace: str, node: str) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]},
    }
    text = refusal(objects, service, seconds=1)
    found = rf"Service {namespace}/web was not ready after \d+ s: no pod that it selects is ready"
    assert re.fullmatch(found, text), text
    objects.apply(deployment(namespace, template=on_node(node)), timeout_seconds=SECONDS)
    assert objects.apply(service, timeout_seconds=SECONDS).change is Change.SAME


def test_a_job_is_awaited_until_it_is_complete(objects: Objects, namespace: str, node: str) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"template": {**NEVER, "spec": {**NEVER["spec"], "nodeSelector": {"for": node}}}},
    }
    applied = objects.apply(job, timeout_seconds=SECONDS)
    assert applied.outputs["status"]["succeeded"] == 1


def test_a_failed_job_says_why_at_once(objects: Objects, namespace: str) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"activeDeadlineSeconds": 1, "template": {**NEVER, "spec": {**NEVER["spec"], **NOWHERE}}},
    }
    text = refusal(objects, job)
    # Not that it was not ready in time.
    assert text.startswith(f"Job {namespace}/train failed: DeadlineExceeded: ")


def test_a_time_out_says_what_the_pods_wait_for(objects: Objects, api: Api, namespace: str) -> None:
    stuck = deployment(namespace, replicas=2, template={**POD, "spec": {**POD["spec"], **NOWHERE}})
    change_of(objects, stuck)
    until_pods_wait(api, namespace, 2)
    lines = refusal(objects, stuck, seconds=1).split("\n")
    found = rf"Deployment {namespace}/web was not ready after \d+ s: 0 of 2 pods are available"
    assert re.fullmatch(found, lines[0]), lines
    assert lines[1].startswith("  2 pods: not scheduled: Unschedulable: ")
    assert "node" in lines[1]


def test_a_time_out_says_why_pods_are_not_made(objects: Objects, api: Api, namespace: str) -> None:
    stuck = deployment(namespace, template={**POD, "spec": {**POD["spec"], "serviceAccountName": "missing"}})
    change_of(objects, stuck)
    until(lambda: api.list("v1", "Event", namespace=namespace, fields="reason=FailedCreate"), "it is an event")
    text = refusal(objects, stuck, seconds=1)
    assert "\n  FailedCreate: " in text
    assert 'serviceaccount "missing" not found' in text


def test_the_annotations_of_pulumi_are_honoured(objects: Objects, namespace: str) -> None:
    stuck = deployment(namespace, template={**POD, "spec": {**POD["spec"], **NOWHERE}})
    stuck["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    assert objects.apply(stuck, timeout_seconds=SECONDS).change is Change.CREATED
    stuck["metadata"]["annotations"] = {"pulumi.com/timeoutSeconds": "1"}
    started = time.monotonic()
    assert re.search(r" was not ready after \d+ s: ", refusal(objects, stuck))
    assert time.monotonic() - started < SECONDS / 2


def test_a_volume_and_its_claim_are_awaited_until_bound(
    objects: Objects, api: Api, namespace: str, unnamespaced: Callable[[Manifest], Manifest]
) -> None:
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = unnamespaced(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "spec": {
                **common,
                "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": namespace, "name": "data"},
                "csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1"},
            },
        }
    )
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": namespace},
        "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": namespace},
    }
    objects.apply(volume, timeout_seconds=SECONDS)
    assert objects.apply(claim, timeout_seconds=SECONDS).outputs["status"]["phase"] == "Bound"
    assert change_of(objects, volume) is Change.SAME, "the binder's part of claimRef is not ours"
    objects.delete(ObjectReference("v1", "PersistentVolumeClaim", namespace, "data"), timeout_seconds=SECONDS)
    reference = ObjectReference("v1", "PersistentVolume", "", namespace)
    until(lambda: (api.get(reference) or {})["status"]["phase"] == "Released", lambda: api.get(reference))
    text = refusal(objects, volume)
    assert f"it is Released: it still names the claim {namespace}/data that is gone" in text


def test_a_claim_that_waits_for_its_first_pod_is_not_awaited(
    objects: Objects, namespace: str, unnamespaced: Callable[[Manifest], Manifest]
) -> None:
    common = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "ebs.csi.aws.com"}
    objects.apply(
        unnamespaced({**common, "volumeBindingMode": "WaitForFirstConsumer"}),
        timeout_seconds=SECONDS,
    )
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": namespace,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    assert objects.apply(claim, timeout_seconds=SECONDS).outputs["status"]["phase"] == "Pending"


def test_a_custom_object_follows_its_definition_at_once(objects: Objects, api: Api, namespace: str) -> None:
    group = f"{namespace}.example.com"
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"weight": {"type": "integer"}}}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"queues.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "queues", "kind": "Queue"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    queue = {"apiVersion": f"{group}/v1", "kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}}
    reference = ObjectReference("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", f"queues.{group}")
    try:
        assert "nor any other kind" in refusal(objects, queue)
        objects.apply(definition, timeout_seconds=SECONDS)
        assert objects.apply(queue, timeout_seconds=SECONDS).change is Change.CREATED
        assert objects.apply(queue, timeout_seconds=SECONDS).change is Change.SAME
        assert objects.apply(definition, timeout_seconds=SECONDS).change is Change.SAME
        assert "weigth" in refusal(objects, {**queue, "spec": {"weigth": 1}})
    finally:
        objects.delete(reference, timeout_seconds=SECONDS)
    objects.delete(ObjectReference(f"{group}/v1", "Queue", "", "q"), timeout_seconds=SECONDS)  # gone with its kind


@pytest.mark.slow
def test_a_quota_counts_a_kind_that_is_newer_at_once(objects: Objects, api: Api, namespace: str) -> None:
    """Kubernetes by itself would refuse the kind's objects for up to 5 minutes."""
    group = f"{namespace}.example.org"
    limits = {"hard": {f"count/gears.{group}": "1", f"count/none.{group}": "1"}}
    metadata = {"name": "team", "namespace": namespace}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": limits}
    objects.apply(quota, timeout_seconds=SECONDS)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Gear", "plural": "gears", "singular": "gear"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gears.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }
    try:
        objects.apply(definition, timeout_seconds=SECONDS)
        gear = {"apiVersion": f"{group}/v1", "kind": "Gear", "metadata": {"name": "a", "namespace": namespace}}
        api.create(gear)
        with pytest.raises(ApiError, match="exceeded quota"):
            api.create({**gear, "metadata": {**gear["metadata"], "name": "b"}})  # type: ignore[dict-item]
        assert objects.apply(quota, timeout_seconds=SECONDS).change is Change.SAME
    finally:
        api.delete(api.reference(definition), propagation="Background")


def test_a_wait_ends_when_all_is_stopped(api: Api, namespace: str) -> None:
    stopping = threading.Event()
    threading.Timer(0.5, stopping.set).start()
    stuck = deployment(namespace, template={**POD, "spec": {**POD["spec"], **NOWHERE}})
    started = time.monotonic()
    text = refusal(Objects(api, lambda _: None, stopping), stuck)
    assert "was not ready when everything was stopped" in text
    assert time.monotonic() - started < SECONDS / 2


def test_a_long_wait_is_told(api: Api, namespace: str) -> None:
    told: list[str] = []
    stopping = threading.Event()

    def tell(line: str) -> None:
        told.append(line)
        threading.Timer(1, stopping.set).start()  # the same is not told again meanwhile

    stuck = deployment(namespace, template={**POD, "spec": {**POD["spec"], **NOWHERE}})
    change_of(Objects(api, tell), stuck)
    until_pods_wait(api, namespace, 1)
    refusal(Objects(api, tell, stopping), stuck)
    assert told == [f"Deployment {namespace}/web: 0 of 1 pods are available"]


# --- On its way out -----------------------------------------------------------------------------------------------


def test_an_object_that_is_being_deleted_is_made_anew(objects: Objects, api: Api, namespace: str) -> None:
    reference = hold(api, config_map(namespace, one="old"))
    threading.Timer(0.5, release, (api, reference)).start()
    applied = objects.apply(config_map(namespace, one="new"), timeout_seconds=SECONDS)
    assert (applied.change, applied.outputs["data"]) == (Change.CREATED, {"one": "new"})


def test_an_object_that_does_not_go_is_told_with_its_finalizers(objects: Objects, api: Api, namespace: str) -> None:
    reference = hold(api, config_map(namespace))
    try:
        text = refusal(objects, config_map(namespace), seconds=1)
        found = rf"ConfigMap {namespace}/a was not gone after \d+ s\n  held by finalizers: trn\.test/held"
        assert re.fullmatch(found, text), text
    finally:
        release(api, reference)


def test_a_namespace_that_ends_is_awaited_and_made_anew(objects: Objects, api: Api, namespace: str) -> None:
    name = f"{namespace}-ends"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    uid = objects.apply(manifest, timeout_seconds=SECONDS).outputs["metadata"]["uid"]
    reference = hold(api, config_map(name))
    api.delete(ObjectReference("v1", "Namespace", "", name))
    threading.Timer(0.5, release, (api, reference)).start()
    # What is in it fails after it, in the API server's words, not half-way.
    text = refusal(objects, config_map(name, "other"), seconds=SECONDS)
    assert text == f'ConfigMap {name}/other: namespaces "{name}" not found'
    anew = objects.apply(manifest, timeout_seconds=SECONDS)
    assert anew.change is Change.CREATED
    assert anew.outputs["metadata"]["uid"] != uid
    objects.delete(ObjectReference("v1", "Namespace", "", name), timeout_seconds=SECONDS)
    assert api.get(ObjectReference("v1", "Namespace", "", name)) is None


def test_a_deletion_waits_for_what_the_object_owns(objects: Objects, api: Api, namespace: str, node: str) -> None:
    objects.apply(deployment(namespace, replicas=3, template=on_node(node)), timeout_seconds=SECONDS)
    reference = ObjectReference("apps/v1", "Deployment", namespace, "web")
    objects.delete(reference, timeout_seconds=SECONDS)
    assert api.get(reference) is None
    assert api.list("v1", "Pod", namespace=namespace) == []
    objects.delete(reference, timeout_seconds=SECONDS)  # absent is fine


def test_a_claim_in_use_says_by_which_pods(objects: Objects, api: Api, namespace: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user", "namespace": namespace},
        "spec": {**POD["spec"], "volumes": [volume], "nodeName": "no-such-node"},
    }
    objects.apply(claim, timeout_seconds=SECONDS, wait=False)
    objects.apply(pod, timeout_seconds=SECONDS, wait=False)
    with pytest.raises(ClusterError) as caught:
        objects.delete(ObjectReference("v1", "PersistentVolumeClaim", namespace, "data"), timeout_seconds=1)
    held = "is not deleted while pods hold it, finished ones too: user (Pending)"
    assert str(caught.value).startswith(f"PersistentVolumeClaim {namespace}/data {held}\n")
    api.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/user", query={"gracePeriodSeconds": "0"})


# --- Many ---------------------------------------------------------------------------------------------------------


def test_many_threads_share_one_connection_pool(objects: Objects, namespace: str) -> None:
    manifests = [config_map(namespace, f"c-{number}", n=str(number)) for number in range(100)]
    changes = in_parallel(lambda each: change_of(objects, each), manifests, threads=32)
    assert changes == [Change.CREATED] * 100
    assert in_parallel(lambda each: change_of(objects, each), manifests, threads=32) == [Change.SAME] * 100


def test_lists_are_complete_beyond_a_page(api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PAGE", 4)
    labelled = [config_map(namespace, f"c-{number}") for number in range(10)]
    for each in labelled:
        each["metadata"]["labels"] = {"of": "test"}
    in_parallel(api.create_or_apply, [*labelled, config_map(namespace, "other")])
    in_parallel(api.create_or_apply, labelled)  # a second time is fine
    found = api.list("v1", "ConfigMap", namespace=namespace, labels="of=test")
    assert [each["metadata"]["name"] for each in found] == sorted(each["metadata"]["name"] for each in labelled)
    assert {(each["apiVersion"], each["kind"]) for each in found} == {("v1", "ConfigMap")}
    assert api.delete_all("v1", "ConfigMap", namespace=namespace, labels="of=test") == 10
    left = [each["metadata"]["name"] for each in api.list("v1", "ConfigMap", namespace=namespace)]
    assert "other" in left
    assert not [name for name in left if name.startswith("c-")]
