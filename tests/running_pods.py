"""Pods with local images, for tests on a real control plane: made, looked at, waited for."""

import uuid
from contextlib import contextmanager

import psutil
from manifests import live, manifest, refusal
from waiting import SECONDS, until

from trainium_eks.kube.api import ApiError
from trainium_eks.local.nodes.node_pools import pool_of
from trainium_eks.local.nodes.simulated import Nodes
from trainium_eks.local.spec.plan import PodDirectory
from trainium_eks.model.catalogue.instances import CATALOGUE

ENDLESS = 3600
"""Seconds that no test lasts: for what must not end by itself."""
TOLD = 'until [ -e "${TMPDIR:-/tmp}/go" ]; do sleep 0.1; done'
"""A line of shell that goes on when :func:`go_on` says so, and not before."""


class Pods:
    def __init__(self, api, namespace):
        self.api = api
        self.namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"

    def make(self, script=None, name="", spec=None, **container):
        """A pod of one container, which runs a line of shell; its name."""
        name = name or f"pod-{uuid.uuid4().hex[:8]}"
        first = {"name": "c", "image": "local/python", **({"command": ["sh", "-c", script]} if script else {})}
        whole = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": [{**first, **container}],
            **(spec or {}),
        }
        self.api.create(manifest("Pod", name, self.namespace, metadata={"labels": {"app": name}}, spec=whole))
        return name

    def get(self, name):
        return self.api.get(self.api.reference(manifest("Pod", name, self.namespace)))

    def when(self, name, is_so):
        """The pod, once it is so. The state must last until it was read, however late."""

        def found():
            pod = self.get(name)
            assert pod is not None, f"{name} is gone"
            return pod if is_so(pod) else {}

        return until(found, lambda: (self.get(name) or {}).get("status"))

    def running(self, name):
        """The pod, once it runs; it must not end by itself (:data:`TOLD`)."""
        return self.when(name, lambda pod: phase(pod) == "Running" and "running" in state(pod))

    def ended(self, name):
        return self.when(name, lambda pod: phase(pod) in ("Succeeded", "Failed"))

    def await_deleted(self, name):
        until(lambda: self.get(name) is None, f"{name} is gone")

    def log(self, name, **query):
        return self.api.text("GET", f"{self._path}/{name}/log", query=query)

    def await_log(self, name, text):
        """The log, once the text is in it."""

        def found():
            try:
                log = self.log(name)
            except ApiError:  # not yet
                return ""
            return log if text in log else ""

        return until(found, lambda: self.log(name))

    def followed(self, name):
        """The lines of the log as they come, to its end. There must be one when the first line is asked for."""
        return self.api.lines(f"{self._path}/{name}/log", query={"follow": "true"}, quiet_seconds=SECONDS)

    def delete(self, name, **options):
        self.api.request("DELETE", f"{self._path}/{name}", {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    def outcome(self, script=None, **given):
        """What a pod says that ends well."""
        name = self.make(script, **given)
        pod = self.ended(name)
        log = self.log(name)
        assert phase(pod) == "Succeeded", (log, pod["status"])
        return log


def go_on(paths, pod, container="c"):
    """Lets a container go on that waits for it (:data:`TOLD`)."""
    (PodDirectory(paths.pods / pod["metadata"]["uid"]).scratch(container) / "go").touch()


def may(api, whose, namespace, verb, resource, subresource=""):
    """Whether a group, or a user, may do something: as ``create``, ``jobs.batch``; in no namespace, cluster-wide."""
    plural, _, api_group = resource.partition(".")
    asked = {"namespace": namespace, "verb": verb, "resource": plural, "group": api_group, "subresource": subresource}
    spec = {"user": whose, "groups": [whose], "resourceAttributes": asked}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def await_right(api, whose, namespace, verb, resource):
    """Waits until a right is in force that a role gives: the API server's authorizer learns of roles by a watch."""
    where = namespace or "the cluster"
    until(lambda: may(api, whose, namespace, verb, resource), f"{whose} may {verb} {resource} in {where}")


def await_admission(api, manifest):
    """Waits until an object is admitted that should be: quotas, policies and roles are in force a moment after they
    are there, and a quota refuses all until its controller has counted."""

    def is_admitted():
        error = refusal(api, manifest)
        if error is not None and error.status not in (403, 404):  # 404: of a kind that is not served yet
            raise error
        return error is None

    until(is_admitted, f"the {manifest['kind']} is admitted")


def await_account(api, namespace):
    """Waits for what the controllers put into each namespace and its pods need."""
    needed = (manifest("ServiceAccount", "default", namespace), manifest("ConfigMap", "kube-root-ca.crt", namespace))
    until(lambda: all(live(api, each) for each in needed), f"{namespace} has its service account")


def phase(pod):
    return str((pod.get("status") or {}).get("phase"))


def status(pod, container=0):
    found = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return found[container]


def state(pod, container=0):
    return status(pod, container).get("state") or {}


def condition(pod, kind):
    return next(each["status"] for each in pod["status"]["conditions"] if each["type"] == kind)


def failures_of(job):
    """Why a Job has failed, in Kubernetes' words: ``PodFailurePolicy``, ``BackoffLimitExceeded``."""
    return [each["reason"] for each in job["status"].get("conditions") or () if each["type"] == "Failed"]


def processes_of(paths, uid):
    found = []
    for process in psutil.process_iter():
        try:
            if f"{paths.pods}/{uid}" in (*process.cmdline(), process.environ().get("TRN_POD_DIRECTORY", "")):
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def cpu_nodes(api, size=2, labels=None):
    key = f"cpu-{uuid.uuid4().hex[:8]}"
    inputs = {
        "instanceTypes": ["m7i.4xlarge"],
        "version": "1.35",
        "subnetIds": ["s"],
        "labels": dict(labels or {}),
        "scalingConfig": {"minSize": 0, "maxSize": max(size, 4), "desiredSize": size},
    }
    pool = pool_of(inputs, {"nodeGroupName": key}, zones={"s": "usw2-az4"}, region="us-west-2", catalogue=CATALOGUE)
    nodes = Nodes(api, drivers=[])
    nodes.apply(pool)
    try:
        yield key
    finally:
        nodes.delete(key)


@contextmanager
def a_namespace(api):
    name = f"test-{uuid.uuid4().hex[:10]}"
    api.create(manifest("Namespace", name))
    await_account(api, name)
    yield Pods(api, name)
    api.request("DELETE", f"/api/v1/namespaces/{name}")
