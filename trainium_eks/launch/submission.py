"""Submitting a job: its files first, then the job, to which they belong. Asks the API server."""

from collections.abc import Mapping
from typing import Any

from trainium_eks.launch import volcano_job
from trainium_eks.launch.identity import JOB_API
from trainium_eks.launch.job import TrainingJob
from trainium_eks.local.objects.api import Api, ObjectReference


def validate(api: Api, manifest: Mapping[str, Any]) -> None:
    """Lets the API server judge the job without making it: its schema, Volcano's webhooks, the namespace's policies.

    Raises:
        ApiError: it would refuse it, in its words.
        NoSuchKind: there is no Volcano in the cluster.
    """
    api.create(manifest, dry_run=True)


def submit(api: Api, job: TrainingJob, manifest: Mapping[str, Any], archive: str = "") -> dict[str, Any]:
    """Makes the job; returns it as the API server has it.

    Args:
        api: the API server, as the researcher.
        job: the job.
        manifest: its object.
        archive: the files that travel with it, as :func:`volcano_job.workspace` takes them; empty for none.

    Raises:
        ApiError: refused; nothing of it is left.
    """
    if not archive:
        return api.create(manifest)
    files = api.create(volcano_job.workspace(job, archive))
    reference = ObjectReference("v1", "ConfigMap", job.namespace, job.workspace_name)
    try:
        made = api.create(manifest)
    except BaseException:
        api.delete(reference, propagation="Background")
        raise
    owner = {"apiVersion": JOB_API, "kind": "Job", "name": job.name, "uid": made["metadata"]["uid"]}
    api.request(
        "PATCH",
        f"/api/v1/namespaces/{job.namespace}/configmaps/{job.workspace_name}",
        {"metadata": {"ownerReferences": [owner], "resourceVersion": files["metadata"]["resourceVersion"]}},
        content_type="application/merge-patch+json",
    )
    return made
