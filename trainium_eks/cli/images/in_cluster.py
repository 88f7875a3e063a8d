"""``--in-cluster``: image builds by a Job on the CPU pool; the caller's login is deleted with the Job."""

import secrets

from trainium_eks.cli.images.building import BuildableImage
from trainium_eks.cli.shared.progress import shown_progress
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.session import open_session
from trainium_eks.jobs.images import image_jobs
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.kube.api import ApiError


def build(cluster: ClusterOptions, planned: BuildableImage) -> None:
    """Build and push an image in the cluster."""
    size = len(planned.made_of.archive())
    if size > image_jobs.MOST_CONTEXT_BYTES:
        raise UsageError(
            f"what the image is built from has {size:,} bytes compressed, and a build in the cluster is sent at most "
            f"{image_jobs.MOST_CONTEXT_BYTES:,}: give a smaller --context, or build with an engine",
        )
    login = planned.repository.login()
    with open_session(cluster) as session:
        name = f"image-{planned.tag.lower().replace('.', '-').replace('_', '-')[:40].strip('-')}-{secrets.token_hex(3)}"
        namespace = session.namespace.name
        job, needs = image_jobs.build_objects(session.namespace, name, planned.reference, planned.made_of, login)
        try:
            batch_jobs.submit(session.api, job, needs)
        except ApiError as error:
            raise CommandError(f"the Job is refused: {error}") from None
        with shown_progress(no_color=cluster.no_color) as shown:
            shown.say(f"Job {name} in {namespace}")
            try:
                end = batch_jobs.follow(
                    session.api, namespace, name, image_jobs.CONTAINER, line=shown.line, waiting=shown.waiting
                )
            except KeyboardInterrupt:
                shown.say(f"The Job {name} is still running; trn cancel {name} ends it")
                raise
    if not end.succeeded:
        why = str(shown.last.get("message") or end.message)
        raise CommandError(
            f"{planned.reference} is not there: {why}; the Job {name} stays for an hour (trn logs {name})"
        )
