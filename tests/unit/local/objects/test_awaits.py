"""When objects are ready: Pulumi's rules, kind by kind, on objects as the API server shows them."""

from typing import Any

import pytest

from trainium_eks.local.objects.awaits import (
    FailedState,
    Ready,
    RelatedObjects,
    Waiting,
    pods_wait_for,
    readiness,
    relates_to,
    timeout_seconds,
    warnings,
)

GROUPS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "Ingress": "networking.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "APIService": "apiregistration.k8s.io/v1",
}


def live(kind: str, status: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **rest: Any) -> Any:
    metadata = {"name": "it", "namespace": "ns", "generation": 2, **rest.pop("metadata", {})}
    return {
        "apiVersion": GROUPS.get(kind, "v1"),
        "kind": kind,
        "metadata": metadata,
        "spec": spec or {},
        "status": status or {},
        **rest,
    }


def condition(type_: str, status: str = "True", **rest: str) -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": status, **rest}]}


SEEN = {"observedGeneration": 2}
THREE = {"replicas": 3}
READY = [
    live("Deployment", {**SEEN, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}, THREE),
    live("Deployment", SEEN, {"replicas": 0}),
    live("Deployment", SEEN, {"replicas": 3, "paused": True}),
    live("StatefulSet", {**SEEN, "readyReplicas": 3, "updateRevision": "b", "currentRevision": "b"}, THREE),
    live(
        "StatefulSet",
        {**SEEN, "readyReplicas": 3, "updatedReplicas": 1, "updateRevision": "b", "currentRevision": "a"},
        {**THREE, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
    ),
    live(
        "StatefulSet",
        {**SEEN, "readyReplicas": 3, "updateRevision": "b", "currentRevision": "a"},
        {**THREE, "updateStrategy": {"type": "OnDelete"}},
    ),
    live("DaemonSet", {**SEEN, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}),
    live("DaemonSet", {**SEEN, "desiredNumberScheduled": 0}),
    live(
        "DaemonSet",
        {**SEEN, "desiredNumberScheduled": 2, "numberAvailable": 2},
        {"updateStrategy": {"type": "OnDelete"}},
    ),
    live("ReplicationController", {**SEEN, "availableReplicas": 1}),
    live("Job", condition("Complete")),
    live("Job", {}, {"suspend": True}),
    live("Pod", {"phase": "Running", **condition("Ready")}),
    live("Pod", {"phase": "Succeeded", **condition("Ready", "False", reason="PodCompleted")}),
    live("PersistentVolumeClaim", {"phase": "Bound"}),
    live("PersistentVolume", {"phase": "Available"}),
    live("PersistentVolume", {"phase": "Bound"}),
    live("Service", {}, {"type": "ExternalName", "selector": {"app": "a"}}),
    live("Service", {}, {"clusterIP": "None"}),
    live("Service", {"loadBalancer": {"ingress": [{"hostname": "h"}]}}, {"type": "LoadBalancer"}),
    live("Ingress", {"loadBalancer": {"ingress": [{"hostname": "h"}]}}),
    live("CustomResourceDefinition", condition("Established")),
    live("APIService", condition("Available")),
    live("Namespace", {"phase": "Active"}),
    live("ResourceQuota", {"hard": {"pods": "1"}}, {"hard": {"pods": "1"}}),
    live("Secret"),
    live("Secret", type="kubernetes.io/service-account-token", data={"token": "x"}),
    live("ConfigMap"),
    live("Queue"),
    live("Deployment", metadata={"annotations": {"pulumi.com/skipAwait": "true"}}),
    {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}, "status": {}},
]

WAITING = [
    (live("Deployment", {"observedGeneration": 1}, THREE), "its controller has not seen it"),
    (live("DaemonSet", {}), "its controller has not seen it"),
    (live("Deployment", {**SEEN, "updatedReplicas": 1}, THREE), "1 of 3 pods are of the newest template"),
    (live("Deployment", {**SEEN, "replicas": 4, "updatedReplicas": 3}, THREE), "1 old pods still run"),
    (
        live("Deployment", {**SEEN, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 2}, THREE),
        "2 of 3 pods are available",
    ),
    (
        live(
            "Deployment",
            {
                **SEEN,
                "replicas": 1,
                "updatedReplicas": 1,
                **condition("Progressing", "False", message='ReplicaSet "it-1" has timed out progressing.'),
            },
        ),
        '0 of 1 pods are available (ReplicaSet "it-1" has timed out progressing.)',
    ),
    (live("StatefulSet", {**SEEN, "readyReplicas": 1}, THREE), "1 of 3 pods are ready"),
    (
        live(
            "StatefulSet",
            {**SEEN, "readyReplicas": 3, "updatedReplicas": 1, "updateRevision": "b", "currentRevision": "a"},
            THREE,
        ),
        "1 of 3 pods are of the newest template",
    ),
    (
        live("DaemonSet", {**SEEN, "desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2}),
        "1 of 2 pods are of the newest template",
    ),
    (
        live("DaemonSet", {**SEEN, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2}),
        "0 of 2 pods are available",
    ),
    (live("ReplicationController", SEEN, THREE), "0 of 3 pods are available"),
    (
        live("Job", {"active": 1, "failed": 2}, {"completions": 3}),
        "0 of 3 pods have succeeded, 1 active, 2 failed",
    ),
    (live("Pod", {"phase": "Pending"}), "it is Pending"),
    (
        live("Pod", {"phase": "Pending", **condition("PodScheduled", "False", reason="Unschedulable", message="full")}),
        "not scheduled: Unschedulable: full",
    ),
    (live("PersistentVolumeClaim", {"phase": "Pending"}), "it is Pending, not Bound"),
    (live("PersistentVolume", {}), "it is not yet seen by the controller, neither Available nor Bound"),
    (live("PersistentVolume", {"phase": "Released"}), "it is Released, neither Available nor Bound"),
    (live("Service", {}, {"selector": {"app": "a"}}), "no pod that it selects is ready"),
    (live("Service", {"loadBalancer": {}}, {"type": "LoadBalancer"}), "no load balancer has an address for it"),
    (live("Ingress"), "no ingress controller has given it an address"),
    (live("CustomResourceDefinition"), "it is not Established"),
    (live("APIService", condition("Available", "False", message="no endpoints")), "no endpoints"),
    (live("Namespace", {"phase": "Terminating"}), "it is Terminating"),
    (live("ResourceQuota", {}, {"hard": {"pods": "1"}}), "the controller has not seen its limits"),
    (live("Secret", type="kubernetes.io/service-account-token"), "its service account's token is not made"),
    (live("ConfigMap", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "it is being deleted"),
]

FAILED = [
    (
        live("Job", condition("Failed", reason="BackoffLimitExceeded", message="Job has reached the backoff limit")),
        "BackoffLimitExceeded: Job has reached the backoff limit",
    ),
    (live("Pod", {"phase": "Failed", "reason": "Evicted", "message": "disk"}), "the pod failed: Evicted: disk"),
    (live("PersistentVolumeClaim", {"phase": "Lost"}, {"volumeName": "v"}), "its volume v is gone"),
    (live("PersistentVolume", {"phase": "Failed", "message": "no deleter"}), "it is Failed: no deleter"),
    (
        live("CustomResourceDefinition", condition("NamesAccepted", "False", message='"queues" is already in use')),
        'its names are taken: "queues" is already in use',
    ),
]


def names(cases: list[Any]) -> list[str]:
    return [f"{(case[0] if isinstance(case, tuple) else case)['kind']}-{number}" for number, case in enumerate(cases)]


@pytest.mark.parametrize("object_", READY, ids=names(READY))
def test_an_object_is_ready(object_: Any) -> None:
    assert readiness(object_) == Ready()


@pytest.mark.parametrize(("object_", "reason"), WAITING, ids=names(WAITING))
def test_an_object_is_waited_for_with_its_reason(object_: Any, reason: str) -> None:
    assert readiness(object_) == Waiting(reason)


@pytest.mark.parametrize(("object_", "reason"), FAILED, ids=names(FAILED))
def test_an_object_fails_with_its_reason(object_: Any, reason: str) -> None:
    assert readiness(object_) == FailedState(reason)


def test_a_service_is_ready_with_one_ready_endpoint() -> None:
    service = live("Service", {}, {"selector": {"app": "a"}})
    assert relates_to(service) == "EndpointSlice"

    def with_ready(*ready: bool) -> RelatedObjects:
        return RelatedObjects(endpoint_slices=[{"endpoints": [{"conditions": {"ready": each}} for each in ready]}])

    assert readiness(service, with_ready(False, True)) == Ready()
    assert isinstance(readiness(service, with_ready(False, False)), Waiting)
    assert isinstance(readiness(service, RelatedObjects(endpoint_slices=[{"endpoints": None}])), Waiting)


def test_a_failed_job_names_what_its_pods_died_of() -> None:
    job = live("Job", condition("Failed", reason="BackoffLimitExceeded", message="too often"))
    assert relates_to(job) == "Pod"
    died = {"name": "main", "state": {"terminated": {"reason": "Error", "exitCode": 3}}}
    pod = live("Pod", {"phase": "Failed", "containerStatuses": [died]})
    state = readiness(job, RelatedObjects(pods=[pod, pod]))
    assert state == FailedState("BackoffLimitExceeded: too often\n  2 pods: container main: Error (exit code 3)")


def test_nothing_else_is_read_where_the_object_is_enough() -> None:
    without = [
        live("Deployment"),
        live("PersistentVolumeClaim", {"phase": "Bound"}),
        live("Service", {}, {"type": "ExternalName", "selector": {"app": "a"}}),
        live("Job"),
    ]
    assert [relates_to(each) for each in without] == ["", "", "", ""]


def test_pods_are_counted_by_what_they_wait_for() -> None:
    image = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}
    creating = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    crashed = {
        "name": "main",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    recovered = {"name": "main", "ready": True, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    unscheduled = condition("PodScheduled", "False", reason="Unschedulable", message="0/2 nodes are available")
    pods = [
        live("Pod", {"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": image}}]}),
        live("Pod", {"phase": "Pending", **unscheduled}),
        live("Pod", {"phase": "Pending", **unscheduled}),
        live("Pod", {"phase": "Running", "containerStatuses": [crashed]}),
        live("Pod", {"phase": "Running", **condition("Ready")}),
        live("Pod", {"phase": "Pending", "containerStatuses": [creating]}),
        live("Pod", {"phase": "Running", "containerStatuses": [recovered]}),
        live(
            "Pod",
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "init", "state": {"waiting": image}}],
                "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}],
            },
        ),
    ]
    assert pods_wait_for(pods) == [
        "2 pods: not scheduled: Unschedulable: 0/2 nodes are available",
        '1 pod: container main: ImagePullBackOff: Back-off pulling image "x"',
        "1 pod: container main: CrashLoopBackOff: back-off 10s (last exit code 137)",
        '1 pod: container init: ImagePullBackOff: Back-off pulling image "x"',
    ]


def test_warnings_are_the_objects_own_latest_first_and_once() -> None:
    def event(name: str, reason: str, time: str, type_: str = "Warning") -> dict[str, Any]:
        return {
            "type": type_,
            "reason": reason,
            "message": f" {reason} happened ",
            "lastTimestamp": time,
            "involvedObject": {"name": name},
        }

    events = [
        event("web", "Old", "2026-01-01T00:00:01Z"),
        event("web-7c9d", "FailedCreate", "2026-01-01T00:00:03Z"),
        event("web-7c9d", "FailedCreate", "2026-01-01T00:00:02Z"),
        event("website", "Other", "2026-01-01T00:00:04Z"),
        event("web", "Fine", "2026-01-01T00:00:05Z", "Normal"),
        {**event("web", "New", ""), "lastTimestamp": None, "eventTime": "2026-01-01T00:00:06.1Z"},
    ]
    assert warnings(events, "web") == ["New: New happened", "FailedCreate: FailedCreate happened", "Old: Old happened"]
    assert warnings(events, "web", most=1) == ["New: New happened"]


def test_the_annotation_decides_how_long_is_waited_and_must_be_a_positive_number() -> None:
    def annotated(value: str) -> Any:
        return live("Job", metadata={"annotations": {"pulumi.com/timeoutSeconds": value}})

    assert timeout_seconds(annotated("7"), 300) == 7
    assert timeout_seconds(live("Job"), 300) == 300
    for value in ("soon", "0", "-1", "nan", "inf"):
        with pytest.raises(ValueError, match=r"must be a positive number of seconds"):
            timeout_seconds(annotated(value), 300)
