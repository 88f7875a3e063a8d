"""``trn tensorboard``: TensorBoard of a job's logs on this machine's loopback, until Ctrl-C."""

import os
import sys
import threading
from typing import Annotated

import typer

from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import Job, with_cluster_options
from trainium_eks.client import tensorboard as board
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError
from trainium_eks.client.notices import notice, silent
from trainium_eks.client.session import open_session
from trainium_eks.jobs.watch.tensorboard import PORT, pod_name
from trainium_eks.kube.pod_text import printable

app = App()


@app.command(example="trn tensorboard bert-tiny")
@with_cluster_options
def tensorboard(
    job: Job,
    image: Annotated[
        str | None, typer.Option("--image", help="Image with TensorBoard; default: the job's image.")
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, help="Port of this machine; default: a free one, 6006 for the local cloud."
        ),
    ] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the pod for the next call; it ends after 12 hours.")
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Open TensorBoard on a job's logs, <output directory>/tensorboard, at a port of this machine, until Ctrl-C.

    It runs as a pod of the team on the CPU pool; for the local cloud, whose volume is a directory, on this machine.
    """
    with open_session(cluster) as session:
        if not session.namespace.claim:
            raise CommandError(f"the namespace {session.namespace.name} has no shared volume to read logs from")
        directory, image = board.logs_of(session, job, image)
        local = board.local_command(session, job, directory, port or PORT) if session.is_local else None
        if local is None:
            say = silent if cluster.as_json else notice
            try:
                with board.in_a_pod(session, job, directory, image, port=port, keep=keep, say=say) as url:
                    _show(cluster, url, directory, pod_name(job))
                    threading.Event().wait()  # until Ctrl-C
            except KeyboardInterrupt:
                raise typer.Exit from None  # that is how it is ended
            except board.NotStartedError as failure:
                from trainium_eks.cli.shared import examine

                raise examine.with_closing(failure, cluster, session.namespace.name, pod_name(job)) from None
            return
    _show(cluster, f"http://127.0.0.1:{port or PORT}", directory, "")
    sys.stdout.flush()
    # It takes the place of this process, so that Ctrl-C and SIGTERM end it, and tells by itself of a taken port.
    os.execv(local[0], local)


def _show(cluster: ClusterOptions, url: str, directory: str, pod: str) -> None:
    if cluster.as_json:
        document = {"url": url, "directory": directory, "pod": pod or None}
        output.write_json({"schemaVersion": output.SCHEMA_VERSION, **document}, indent=None)
    else:
        output.write(f"TensorBoard of {printable(directory)}: {url} (Ctrl-C ends it)\n")
