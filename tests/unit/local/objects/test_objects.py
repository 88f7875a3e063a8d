"""Objects: when they are ready, by Pulumi's rules, kind by kind; and what applying them decides without a server."""

import json

import pytest
from manifests import manifest

from components.volcano_stack import queue_spec
from trainium_eks.kube.api import ApiError, Cause
from trainium_eks.local.objects.apply import _is_immutable, _selector
from trainium_eks.local.objects.awaits import pods_wait_for, readiness
from trainium_eks.local.objects.placeholders import definitions
from trainium_eks.model.sizing.queues import QueueConfig

GROUPS = {"Ingress": "networking.k8s.io/v1", "APIService": "apiregistration.k8s.io/v1"}
OBSERVED = {"Deployment", "StatefulSet", "DaemonSet", "ReplicationController"}
"""Kinds whose controller says which generation it has seen: here, the newest."""


def live(kind, spec=None, top=None, **status):
    seen = {"observedGeneration": 2} if kind in OBSERVED else {}
    made = manifest(kind, "it", "ns", api_version=GROUPS.get(kind, ""), metadata={"generation": 2})
    return {**made, "spec": spec or {}, "status": {**seen, **status}, **(top or {})}


def condition(type_, status="True", **rest):
    return {"conditions": [{"type": type_, "status": status, **rest}]}


THREE = {"replicas": 3}
ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}
PARTITION = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}
APP = {"selector": {"app": "a"}}
OLD = {"readyReplicas": 3, "updateRevision": "b", "currentRevision": "a"}
TWO = {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2}
ADDRESS = {"loadBalancer": {"ingress": [{"hostname": "h"}]}}
TOKEN = {"type": "kubernetes.io/service-account-token"}
SKIPPED = {"metadata": {"annotations": {"pulumi.com/skipAwait": "true"}}}
UNSEEN = "its controller has not seen it"
STUCK = condition("Progressing", "False", message='ReplicaSet "it-1" has timed out progressing.')
FULL = condition("PodScheduled", "False", reason="Unschedulable", message="full")
TOO_OFTEN = condition("Failed", reason="BackoffLimitExceeded", message="too often")
TAKEN = condition("NamesAccepted", "False", message='"queues" is already in use')

CASES = [
    (live("Deployment", THREE, replicas=3, updatedReplicas=3, availableReplicas=3), "ready"),
    (live("Deployment", {"replicas": 0}), "ready"),
    (live("Deployment", {"replicas": 3, "paused": True}), "ready"),
    (live("Deployment", THREE, SKIPPED), "ready"),
    (live("Deployment", THREE, observedGeneration=1), UNSEEN),
    (live("Deployment", THREE, updatedReplicas=1), "1 of 3 pods are of the newest template"),
    (live("Deployment", THREE, replicas=4, updatedReplicas=3), "1 old pods still run"),
    (live("Deployment", THREE, replicas=3, updatedReplicas=3, availableReplicas=2), "2 of 3 pods are available"),
    (
        live("Deployment", replicas=1, updatedReplicas=1, **STUCK),
        '0 of 1 pods are available (ReplicaSet "it-1" has timed out progressing.)',
    ),
    (live("StatefulSet", THREE, readyReplicas=3, updateRevision="b", currentRevision="b"), "ready"),
    (live("StatefulSet", {**THREE, **PARTITION}, **OLD, updatedReplicas=1), "ready"),
    (live("StatefulSet", {**THREE, **PARTITION}, **OLD), "0 of 1 pods are of the newest template"),
    (live("StatefulSet", {**THREE, **ON_DELETE}, **OLD), "ready"),
    (live("StatefulSet", THREE, readyReplicas=1), "1 of 3 pods are ready"),
    (live("StatefulSet", THREE, **OLD, updatedReplicas=1), "1 of 3 pods are of the newest template"),
    (live("DaemonSet", **TWO, numberAvailable=2), "ready"),
    (live("DaemonSet", desiredNumberScheduled=0), "ready"),
    (live("DaemonSet", ON_DELETE, desiredNumberScheduled=2, numberAvailable=2), "ready"),
    (live("DaemonSet", desiredNumberScheduled=2, updatedNumberScheduled=1), "1 of 2 pods are of the newest template"),
    (live("DaemonSet", **TWO), "0 of 2 pods are available"),
    (live("DaemonSet", observedGeneration=0), UNSEEN),
    (live("ReplicationController", availableReplicas=1), "ready"),
    (live("ReplicationController", THREE), "0 of 3 pods are available"),
    (live("Job", **condition("Complete")), "ready"),
    (live("Job", {"suspend": True}), "ready"),
    (live("Job", {"completions": 3}, active=1, failed=2), "0 of 3 pods have succeeded, 1 active, 2 failed"),
    (live("Job", **TOO_OFTEN), "FAILED BackoffLimitExceeded: too often"),
    (live("Job", top={"apiVersion": "batch.volcano.sh/v1alpha1"}), "ready"),
    (live("Pod", phase="Running", **condition("Ready")), "ready"),
    (live("Pod", phase="Succeeded", **condition("Ready", "False", reason="PodCompleted")), "ready"),
    (live("Pod", phase="Pending"), "it is Pending"),
    (live("Pod", phase="Pending", **FULL), "not scheduled: Unschedulable: full"),
    (live("Pod", phase="Failed", reason="Evicted", message="disk"), "FAILED the pod failed: Evicted: disk"),
    (live("PersistentVolumeClaim", phase="Bound"), "ready"),
    (live("PersistentVolumeClaim", phase="Pending"), "it is Pending, not Bound"),
    (live("PersistentVolumeClaim", {"volumeName": "v"}, phase="Lost"), "FAILED its volume v is gone"),
    (live("PersistentVolume", phase="Available"), "ready"),
    (live("PersistentVolume", phase="Bound"), "ready"),
    (live("PersistentVolume"), "it is not yet seen by the controller, neither Available nor Bound"),
    (live("PersistentVolume", phase="Released"), "it is Released, neither Available nor Bound"),
    (live("PersistentVolume", phase="Failed", message="no deleter"), "FAILED it is Failed: no deleter"),
    (live("Service", {**APP, "type": "ExternalName"}), "ready"),
    (live("Service", {"clusterIP": "None"}), "ready"),
    (live("Service", {"type": "LoadBalancer"}, **ADDRESS), "ready"),
    (live("Service", APP), "no pod that it selects is ready"),
    (live("Service", {"type": "LoadBalancer"}, loadBalancer={}), "no load balancer has an address for it"),
    (live("Ingress", **ADDRESS), "ready"),
    (live("Ingress"), "no ingress controller has given it an address"),
    (live("CustomResourceDefinition", **condition("Established")), "ready"),
    (live("CustomResourceDefinition"), "it is not Established"),
    (live("CustomResourceDefinition", **TAKEN), 'FAILED its names are taken: "queues" is already in use'),
    (live("APIService", **condition("Available")), "ready"),
    (live("APIService", **condition("Available", "False", message="no endpoints")), "no endpoints"),
    (live("Namespace", phase="Active"), "ready"),
    (live("Namespace", phase="Terminating"), "it is Terminating"),
    (live("ResourceQuota", {"hard": {"pods": "1"}}, hard={"pods": "1"}), "ready"),
    (live("ResourceQuota", {"hard": {"pods": "1"}}), "the controller has not seen its limits"),
    (live("Secret"), "ready"),
    (live("Secret", top={**TOKEN, "data": {"token": "x"}}), "ready"),
    (live("Secret", top=TOKEN), "its service account's token is not made"),
    (live("ConfigMap", top={"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), "it is being deleted"),
    (live("Queue"), "ready"),
]


def describe_readiness(object_, **related):
    state = readiness(object_, lambda kind: related.get(kind, ()))
    return f"FAILED {state.reason}" if state.failed else state.reason or "ready"


@pytest.mark.parametrize(("object_", "state"), CASES, ids=[f"{case['kind']}-{state}" for case, state in CASES])
def test_readiness_is_ready_waiting_or_failed_with_a_reason(object_, state):
    assert describe_readiness(object_) == state


def test_service_needs_a_ready_endpoint_and_a_failed_job_names_the_cause():
    def with_ready(*ready):
        slices = [{"endpoints": [{"conditions": {"ready": each}} for each in ready] or None}]
        return describe_readiness(live("Service", APP), EndpointSlice=slices)

    assert [with_ready(*each) == "ready" for each in ((False, True), (False, False), ())] == [True, False, False]
    died = {"name": "main", "state": {"terminated": {"reason": "Error", "exitCode": 3}}}
    pod = live("Pod", phase="Failed", containerStatuses=[died])
    reasons = "BackoffLimitExceeded: too often\n  2 pods: container main: Error (exit code 3)"
    assert describe_readiness(live("Job", **TOO_OFTEN), Pod=[pod, pod]) == f"FAILED {reasons}"
    waits = {"volumeBindingMode": "WaitForFirstConsumer"}
    assert describe_readiness(live("PersistentVolumeClaim", phase="Pending"), StorageClass=[waits]) == "ready"


def test_waiting_pods_are_counted_by_reason():
    def waits(reason, name="main", **more):
        return {"name": name, "state": {"waiting": {"reason": reason, "message": "why"}}, **more}

    died = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    pods = [
        live("Pod", phase="Pending", containerStatuses=[waits("ImagePullBackOff")]),
        live("Pod", phase="Pending", **FULL),
        live("Pod", phase="Pending", **FULL),
        live("Pod", phase="Running", containerStatuses=[waits("CrashLoopBackOff", **died)]),
        live("Pod", phase="Running", **condition("Ready")),
        live("Pod", phase="Pending", containerStatuses=[waits("ContainerCreating")]),
        live("Pod", phase="Running", containerStatuses=[{"name": "main", "ready": True, **died}]),
        live(
            "Pod", initContainerStatuses=[waits("ErrImagePull", "init")], containerStatuses=[waits("PodInitializing")]
        ),
    ]
    assert pods_wait_for(pods) == [
        "2 pods: not scheduled: Unschedulable: full",
        "1 pod: container main: ImagePullBackOff: why",
        "1 pod: container main: CrashLoopBackOff: why (last exit code 137)",
        "1 pod: container init: ErrImagePull: why",
    ]


def test_other_refusal_is_not_taken_for_an_immutable_change():
    """The object would be deleted for it. tests/local/test_objects.py has the changes that are immutable."""
    for reason, message in (
        ("Forbidden", "spec.persistentvolumesource is immutable after creation"),
        ("Invalid", "Invalid value: -1: must be greater than or equal to 0"),
        ("Invalid", 'Required value: valid values: "OnFailure", "Never"'),
        ("Invalid", "Forbidden: may not be specified when `type` is ExternalName"),
        ("Invalid", "Invalid value: 30080: provided port is already allocated"),
    ):
        assert not _is_immutable(ApiError(422, reason, "m", [Cause("spec", "FieldValueInvalid", message)])), message


def test_selector_is_converted_to_the_apis_form():
    listed = [{"key": "x", "operator": "In", "values": ["1", "2"]}, {"key": "y", "operator": "NotIn", "values": ["3"]}]
    expressions = [*listed, {"key": "z", "operator": "Exists"}, {"key": "w", "operator": "DoesNotExist"}]
    for selector, text in (
        (None, ""),
        ({"app": "a", "tier": "b"}, "app=a,tier=b"),
        ({"matchLabels": {"app": "a"}, "matchExpressions": expressions}, "app=a,x in (1,2),y notin (3),z,!w"),
        ("10.0.0.1", ""),
    ):
        assert _selector({"spec": {"selector": selector}}) == text


def test_queue_schema_defines_every_used_field_and_drops_unknown_ones():
    assert definitions("neuron-helm-chart") == []
    (definition,) = definitions("volcano")
    (version,) = definition["spec"]["versions"]
    assert "x-kubernetes-preserve-unknown-fields" not in json.dumps(version)
    shares = {share: {"aws.amazon.com/neuron": 16} for share in ("capability", "deserved", "guarantee")}
    spec = queue_spec(QueueConfig(name="q", parent="p", **shares))
    properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(spec) <= set(properties)
    assert set(spec["guarantee"]) <= set(properties["guarantee"]["properties"])
