"""Facts that a job's plan depends on, queried from a researcher's API server."""

from collections.abc import Iterable, Mapping
from typing import Any

from trainium_eks.jobs.data import staging
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.jobs.objects.forms import KINDS
from trainium_eks.jobs.objects.identity import JOB_API, KIND_LABEL
from trainium_eks.jobs.objects.options import Form
from trainium_eks.jobs.observed.watched import watched
from trainium_eks.kube.api import Api, ApiError, NoSuchKindError
from trainium_eks.kube.cluster import GROUP_LABEL, name_of
from trainium_eks.model.annotations import annotation
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL
from trainium_eks.model.node_labels import ULTRASERVER_LABELS
from trainium_eks.model.outputs import NodeGroupOutput

Objects = list[dict[str, Any]]


def jobs(api: Api, namespace: str) -> dict[str, str]:
    """Return the jobs of a namespace, of all forms, and their states; of a form that the cluster does not serve,
    none."""
    volcano, pytorch, trainer = (_readable(api, kind.api_version, kind.kind, namespace) for kind in KINDS.values())
    return {each.name: each.state for each in watched(volcano, (), pytorch, trainer)}


def services(api: Api, namespace: str) -> dict[str, str]:
    """Return the Services of a namespace, each with its owner (``Deployment chat``), or itself without one;
    nothing where they may not be read."""
    return {
        name_of(each): f"{owner['kind']} {owner['name']}"
        for each in _readable(api, "v1", "Service", namespace)
        for owner in (each["metadata"].get("ownerReferences") or [{"kind": "Service", "name": name_of(each)}])[:1]
    }


def _readable(api: Api, api_version: str, kind: str, namespace: str = "") -> Objects:
    """Return the objects of a kind; none where it is not served, or may not be read."""
    try:
        return api.list(api_version, kind, namespace=namespace)
    except (NoSuchKindError, ApiError):
        return []


def volcano_jobs(api: Api, namespace: str) -> Objects:
    """Return the Volcano jobs of a namespace."""
    return api.list(JOB_API, "Job", namespace=namespace)


def compiling(jobs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return each compile cache with the job that fills it now."""
    return {
        key: each.name
        for each in watched(jobs)
        if each.kind == "compile" and each.ended is None
        if (key := (each.source["metadata"].get("annotations") or {}).get(annotation("cache-key")))
    }


def bringing(api: Api, namespace: str) -> dict[str, str]:
    """Return each path on the shared volume with the staging Job that brings data there now."""
    jobs = api.list("batch/v1", "Job", namespace=namespace, labels=f"{KIND_LABEL}={staging.KIND}")
    return {
        path: each["metadata"]["name"]
        for each in jobs
        if batch_jobs.end_of(each) is None
        if (path := (each["metadata"].get("annotations") or {}).get(staging.TO_ANNOTATION))
    }


def may_submit(api: Api, namespace: str, form: Form = "volcano") -> bool:
    """Return whether the API server lets its caller create jobs of a form in a namespace."""
    kind = KINDS[form]
    return may_create(api, namespace, kind.group, kind.resource)


def may_create(api: Api, namespace: str, group: str, resource: str) -> bool:
    """Return whether the API server lets its caller create objects of a kind in a namespace."""
    attributes = {"namespace": namespace, "verb": "create", "group": group, "resource": resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def network_layers(api: Api) -> int:
    """Return the layers of switches that Volcano has found; 0 for none yet, or where they may not be read."""
    specs = [each["spec"] for each in _readable(api, "topology.volcano.sh/v1alpha1", "HyperNode")]
    return len({each.get("tier") for each in specs if each.get("tierName") not in ULTRASERVER_LABELS})


def nodes_of(api: Api, group: NodeGroupOutput) -> Objects:
    """Return the nodes of a group that are there."""
    return api.list("v1", "Node", labels=f"{GROUP_LABEL}={group.eks_name}")


def running_on(jobs: Iterable[Mapping[str, Any]], instance_type: str) -> list[str]:
    """Return unfinished jobs that have pods on nodes of a type."""
    return [
        each.name
        for each in watched(jobs)
        if each.ended is None and each.running
        for task in each.source["spec"]["tasks"][:1]
        if task["template"]["spec"].get("nodeSelector", {}).get(INSTANCE_TYPE_LABEL) == instance_type
    ]
