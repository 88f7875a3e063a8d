"""Submitting a job: what belongs to it first, then the job, whose all of it is. Asks the API server."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainium_eks.launch import volcano_job
from trainium_eks.launch.job import TrainingJob
from trainium_eks.local.objects.api import Api


def validate(api: Api, objects: Sequence[Mapping[str, Any]]) -> None:
    """Lets the API server judge a job without making it: its schema, webhooks, the namespace's policies.

    Args:
        api: the API server, as the researcher.
        objects: of the job, as :func:`.forms.objects` gives them. Of several the first is judged: the others refer to
            it, and a webhook would miss it.

    Raises:
        ApiError: it would refuse it, in its words.
        NoSuchKind: nobody in the cluster runs such jobs.
    """
    api.create(objects[0], dry_run=True)


def submit(api: Api, job: TrainingJob, objects: Sequence[Mapping[str, Any]], archive: str = "") -> dict[str, Any]:
    """Makes the job; returns it as the API server has it.

    Args:
        api: the API server, as the researcher.
        job: the job.
        objects: its objects; the last is the job itself.
        archive: the files that travel with it, as :func:`volcano_job.workspace` takes them; empty for none.

    Raises:
        ApiError: refused; nothing of it is left.
    """
    belonging = [*([volcano_job.workspace(job, archive)] if archive else []), *objects[:-1]]
    made: list[dict[str, Any]] = []
    try:
        for each in (*belonging, objects[-1]):
            made.append(api.create(each))
    except BaseException:
        for each in reversed(made):
            api.delete(api.reference(each), propagation="Background")
        raise
    *owned, owner = made
    for each in owned:
        _give(api, each, owner)
    return owner


def _give(api: Api, owned: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
    """The object goes when its owner goes."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    found = api.reference(owned)
    path = api.kind(found.api_version, found.kind).path(found.namespace, found.name)
    patch = {"metadata": {"ownerReferences": [reference]}}
    api.request("PATCH", path, patch, content_type="application/merge-patch+json")
