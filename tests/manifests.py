"""Manifests of Kubernetes' objects, of which a test says only what matters to it; and what becomes of them."""

from collections.abc import Mapping
from typing import Any

from trainium_eks.kube.api import ApiError

RBAC = "rbac.authorization.k8s.io"
ANYTHING: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of a kind whose fields are taken as they are."""

_API_VERSIONS = {
    **dict.fromkeys(("DaemonSet", "Deployment", "StatefulSet"), "apps/v1"),
    **dict.fromkeys(("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"), f"{RBAC}/v1"),
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "Job": "batch/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "Queue": "scheduling.volcano.sh/v1beta1",
    "StorageClass": "storage.k8s.io/v1",
    "SubjectAccessReview": "authorization.k8s.io/v1",
    **dict.fromkeys(
        ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"),
        "admissionregistration.k8s.io/v1",
    ),
}


def manifest(kind, name, namespace="", /, api_version="", metadata=None, **fields):
    """An object; ``metadata`` is what it has beside its name."""
    named = {"name": name, **({"namespace": namespace} if namespace else {}), **(metadata or {})}
    return {"apiVersion": api_version or _API_VERSIONS.get(kind, "v1"), "kind": kind, "metadata": named, **fields}


def pod_spec(image="x", /, resources=None, **spec):
    """A pod's spec with one container; ``resources`` are its limits and its requests."""
    amounts = {"resources": {"limits": {**resources}, "requests": {**resources}}} if resources else {}
    return {"containers": [{"name": "main", "image": image, **amounts}], **spec}


def deployment(name, namespace, pod, **spec):
    """A Deployment of pods with the label ``app``."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    whole = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return manifest("Deployment", name, namespace, spec=whole)


def gang(name, namespace, queue, nodes, pod, **labels):
    """A Volcano job of pods that start together."""
    template = {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", **pod}}
    task = {"name": "node", "replicas": nodes, "template": template}
    spec = {"schedulerName": "volcano", "queue": queue, "minAvailable": nodes, "tasks": [task]}
    return manifest("Job", name, namespace, api_version="batch.volcano.sh/v1alpha1", spec=spec)


def definition(kind, plural, group, version="v1", scope="Namespaced", schema=ANYTHING):
    """A CustomResourceDefinition."""
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    spec = {
        "group": group,
        "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
        "scope": scope,
        "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
    }
    return manifest("CustomResourceDefinition", f"{plural}.{group}", spec=spec)


def simulated_node(name, taints=(), **devices):
    """A node that kwok plays; pods choose it by the label ``for``, which is its name."""
    room = {"cpu": "128", "memory": "500Gi", "pods": "50", **devices}
    metadata = {"labels": {"for": name}, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    status = {"capacity": room, "allocatable": room}
    return manifest("Node", name, metadata=metadata, spec={"taints": [*taints]}, status=status)


_SHARED = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}


def volume(name, **spec):
    source = {"capacity": {"storage": "1Gi"}, "csi": {"driver": "fsx.csi.aws.com", "volumeHandle": "fs-1"}}
    return manifest("PersistentVolume", name, spec={**_SHARED, **source, **spec})


def claim(name, namespace, size="1Gi", **spec):
    asked = {**_SHARED, "resources": {"requests": {"storage": size}}, **spec}
    return manifest("PersistentVolumeClaim", name, namespace, spec=asked)


def role(name, namespace, rules, *subjects):
    """A Role, or a ClusterRole where there is no namespace, and its binding."""
    kind = "Role" if namespace else "ClusterRole"
    given = {"apiGroup": RBAC, "kind": kind, "name": name}
    bound = manifest(f"{kind}Binding", name, namespace, roleRef=given, subjects=[*subjects])
    return [manifest(kind, name, namespace, rules=[*rules]), bound]


def group(name):
    return {"apiGroup": RBAC, "kind": "Group", "name": name}


def path(api, manifest, below=""):
    """The path of an object, or of something below it: ``/status``."""
    named = api.reference(manifest)
    return api.kind(named.api_version, named.kind).path(named.namespace, named.name) + below


def live(api, manifest):
    """The object as it is, or an empty dictionary."""
    return api.get(api.reference(manifest)) or {}


def patch(api, manifest, change, below="", **query):
    """Change an object by a merge, as a person would."""
    api.request("PATCH", path(api, manifest, below), change, query=query, content_type="application/merge-patch+json")


def refusal(api, manifest):
    try:
        api.create(manifest, dry_run=True)
    except ApiError as error:
        return error
    return None


def is_taken(api, manifest):
    return refusal(api, manifest) is None


def is_refused(api, manifest, words="denied request"):
    """Whether a policy refuses an object: it may be refused as well where its namespace has no default account yet."""
    error = refusal(api, manifest)
    return error is not None and words in error.message
