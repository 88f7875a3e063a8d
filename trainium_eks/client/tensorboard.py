"""TensorBoard of a job's logs: in a pod of the team, or on this machine for the local cloud."""

import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trainium_eks.client import reading
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.notices import Say, unrepeated
from trainium_eks.client.session import Session
from trainium_eks.diagnose import why_not_started
from trainium_eks.jobs.objects.job import DATA
from trainium_eks.jobs.observed.job_snapshot import JobSnapshot
from trainium_eks.jobs.watch import tensorboard
from trainium_eks.jobs.watch.profiling import output_of
from trainium_eks.kube import pod_channels
from trainium_eks.kube.api import ObjectReference
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local import access, job_access
from trainium_eks.model.validation.problems import nearest

START_SECONDS = 600.0
"""Time limit for the pod's start: a training image is large, and the CPU pool may be at zero nodes."""

ANSWER_SECONDS = 300.0
"""Time limit for TensorBoard's first answer once its process runs."""

LOOK_SECONDS = 1.0


class NotStartedError(CommandError):
    """The pod did not start in time."""


def logs_of(session: Session, name: str, image: str | None) -> tuple[str, str]:
    """Return the directory of a job's logs, and the image to read them with: the job's own without another."""
    found = reading.jobs(session)
    job = reading.find_named(found, name)
    if job is None and image is None and not session.is_local:
        near = nearest(name, [each.name for each in found])
        removed = "of one that was removed, name an image with TensorBoard by --image"
        meant = f"did you mean {near}?" if near else removed
        raise UsageError(f"namespace {session.namespace.name} has no job {name!r}: {meant}")
    tasks = job.source["spec"].get("tasks") if job else None
    # A program that writes TensorBoard's logs needs the same package.
    own = str(tasks[0]["template"]["spec"]["containers"][0]["image"]) if tasks else ""
    return tensorboard.log_directory(name, output_of(job.source) if job else ""), image or own


@contextmanager
def in_a_pod(
    session: Session, name: str, directory: str, image: str, *, port: int, keep: bool, say: Say
) -> Iterator[str]:
    """Yield the address on this machine of TensorBoard in a pod, which is removed afterwards unless it is kept."""
    manifest = tensorboard.pod(name, directory, image, session.namespace)
    reference = session.api.reference(manifest)
    there = session.api.get(reference)
    if _phase(there) in ("Succeeded", "Failed"):
        session.api.delete(reference, propagation="Background")
        deadline = time.monotonic() + ANSWER_SECONDS
        while there is not None and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            there = session.api.get(reference)
        there = None
    if there is None:
        session.api.create(manifest)
    forwarding = None
    try:
        _await_running(session, reference, image, say)
        place = session.place(reference.name)
        pod_channels.check_port_forward(place, tensorboard.PORT)
        forwarding = pod_channels.Forwarding(place, tensorboard.PORT, port)
        url = f"http://127.0.0.1:{forwarding.local_port}"
        if not _answers(url, lambda: _phase(session.api.get(reference)) == "Running"):
            raise CommandError(_why_ended(session, reference.name, image))
        yield url
    except pod_channels.NoChannelError as error:
        raise CommandError(f"the port of {reference.name} cannot be reached: {error}") from None
    except OSError as error:
        raise UsageError(f"port {port} of this machine cannot be had: {error.strerror}") from None
    finally:
        if forwarding is not None:
            forwarding.close()
        if not keep:
            session.api.delete(reference, propagation="Background")


def _phase(pod: dict[str, Any] | None) -> str:
    return str(((pod or {}).get("status") or {}).get("phase"))


def _await_running(session: Session, pod: ObjectReference, image: str, say: Say) -> None:
    """Wait until its process runs; fail with the reason when it ended, or does not start in time."""
    deadline, say = time.monotonic() + START_SECONDS, unrepeated(say)
    while True:
        found = session.api.get(pod)
        if found is None or _phase(found) in ("Failed", "Succeeded"):
            raise CommandError(_why_ended(session, pod.name, image))
        if _phase(found) == "Running":
            return
        about = {"metadata": {"name": pod.name}, "spec": {}}
        reason = next(why_not_started.reasons(JobSnapshot(reading.now(), about, pods=(found,))), None)
        waits = reason.sentence if reason else "it waits for a node of the CPU pool"
        if reason and reason.fix:
            raise CommandError(f"TensorBoard does not start: {waits}\n  → {reason.fix}")
        if time.monotonic() > deadline:
            raise NotStartedError(f"TensorBoard did not start within {START_SECONDS:.0f} s: {waits}")
        say(f"TensorBoard: {waits}")
        time.sleep(LOOK_SECONDS)


def _answers(url: str, is_running: Callable[[], bool]) -> bool:
    """Wait until TensorBoard answers, which needs seconds; False when it ended before, or takes too long."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            if not is_running():
                return False
        time.sleep(LOOK_SECONDS / 5)
    return False


def _why_ended(session: Session, pod: str, image: str) -> str:
    """Return the reason of its end, by the last line that it printed."""
    try:
        last = session.api.text("GET", reading.log_path(session, pod), query={"tailLines": "1"}).strip()
    except ClusterError:
        last = ""
    if "No module named" in last:
        return f"the image {image} has no TensorBoard ({last}): add the package, or name another by --image"
    return f"TensorBoard ended{': ' + last if last else ''}"


def local_command(session: Session, name: str, directory: str, port: int) -> list[str]:
    """Return the command line of TensorBoard on this machine: on the local cloud the claim is a directory here."""
    paths = session.source.paths
    assert paths is not None
    namespace = session.namespace
    logs = access.find_file(paths, namespace.name, namespace.claim, directory.removeprefix(f"{DATA}/"))
    programs = (image.path / "bin" / "tensorboard" for image in job_access.images.all_images())
    program = shutil.which("tensorboard") or next((str(each) for each in programs if each.is_file()), None)
    if program is None:
        title = "no tensorboard on PATH, nor in a local image: make one (trn local images make torch), or install it"
        raise UsageError(title)
    if logs is None or not logs.is_dir():
        raise CommandError(f"{name} has written no TensorBoard logs: there is no {directory} on its volume")
    return [program, "--logdir", str(logs), "--host", "127.0.0.1", "--port", str(port)]
