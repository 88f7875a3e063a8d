"""Submission of a job: the objects that belong to it first, then the job, which owns them. Asks the API server."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainium_eks.jobs.objects import batch_jobs, pod
from trainium_eks.jobs.objects.job import TrainingJob
from trainium_eks.kube.api import Api, ApiError

COUNTED_SECONDS = 330.0
"""Time until a quota counts a kind that is new to the cluster: kube-controller-manager looks for kinds each 30 s, and
counts the objects of a quota again each 5 minutes (``--resource-quota-sync-period``)."""
RETRY_SECONDS = 2.0

# The API server's admission plugin ResourceQuota, of a limit that the quota's status does not have yet.
_NOT_COUNTED = re.compile(r"status unknown for quota: (?P<quota>[^,]+), resources: (?P<counts>.+)")


def validate(api: Api, objects: Sequence[Mapping[str, Any]], waiting: Callable[[str], None] = lambda _: None) -> None:
    """Let the API server validate a job without creating it: its schema, webhooks, the namespace's policies. Of several
    objects the first is validated: the others refer to it, and a webhook would miss it. ``waiting`` gets a line while
    the namespace's quota does not count such objects yet."""
    _create(api, objects[0], waiting, dry_run=True)


def submit(
    api: Api,
    job: TrainingJob,
    objects: Sequence[Mapping[str, Any]],
    archive: str = "",
    waiting: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Create the job; return it as the API server has it. The last object is the job itself. Nothing is left of a
    refused one."""
    belonging = [*([pod.workspace(job, archive)] if archive else []), *objects[:-1]]
    made: list[dict[str, Any]] = []
    try:
        for each in (*belonging, objects[-1]):
            made.append(_create(api, each, waiting))
    except BaseException:
        for each in reversed(made):
            api.delete(api.reference(each), propagation="Background")
        raise
    *owned, owner = made
    for each in owned:
        batch_jobs.merge(api, each, {"metadata": batch_jobs.owner_references(owner)})
    return owner


def _create(
    api: Api, manifest: Mapping[str, Any], waiting: Callable[[str], None], *, dry_run: bool = False
) -> dict[str, Any]:
    """Create an object, again and again while the namespace's quota does not count its kind yet."""
    begun, said = time.monotonic(), False
    while True:
        try:
            return api.create(manifest, dry_run=dry_run)
        except ApiError as error:
            unknown = _NOT_COUNTED.search(error.message)
            if unknown is None:
                raise
            reason = (
                f"The quota {unknown['quota']} of the namespace does not count these objects yet: {unknown['counts']}. "
                "Until it does, Kubernetes refuses them."
            )
            if time.monotonic() - begun >= COUNTED_SECONDS:
                mend = f"Ask an administrator why: kubectl describe resourcequota {unknown['quota']}"
                raise ApiError(error.status, error.reason, f"{error.message}\n  {reason} {mend}") from None
        if not said:
            waiting(f"{reason} It counts kinds that are new to the cluster within 5.5 minutes; waiting for it.")
            said = True
        time.sleep(RETRY_SECONDS)
