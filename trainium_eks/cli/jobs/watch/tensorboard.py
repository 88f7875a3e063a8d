"""``trn tensorboard``: TensorBoard of a job's logs on this machine's loopback, until Ctrl-C."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainium_eks.cli.shared import output
from trainium_eks.client import notices, reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.session import Session
from trainium_eks.jobs.data.staging import DATA
from trainium_eks.jobs.explain import why_not_started
from trainium_eks.jobs.explain.cluster_snapshot import ClusterSnapshot
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.jobs.watch import tensorboard
from trainium_eks.jobs.watch.profiling import output_of
from trainium_eks.kube.errors import ClusterError
from trainium_eks.kube.pod_text import printable
from trainium_eks.local.runtime import beneath
from trainium_eks.model.validation.problems import nearest

START_SECONDS = 600.0
"""Time limit for the pod's start: a training image is large, and the CPU pool may be at zero nodes."""

ANSWER_SECONDS = 300.0
"""Time limit for TensorBoard's first answer once its process runs."""

LOOK_SECONDS = 1.0


def run(cluster: ClusterOptions, name: str, *, image: str | None, port: int, keep: bool) -> int:
    """Show TensorBoard until Ctrl-C; return the exit code.

    Args:
        cluster: options of the command.
        name: of the job, which may be gone.
        image: with TensorBoard in it; None for the job's own.
        port: of this machine; 0 for any that is free.
        keep: leave the pod for the next call.
    """

    def work(session: Session) -> int:
        if not session.namespace.claim:
            raise Failure(FAILED, f"the namespace {session.namespace.name} has no shared volume to read logs from")
        job = _job(session, name, image)
        directory = tensorboard.log_directory(name, output_of(job.source) if job else "")
        if session.is_local:
            return _here(cluster, session, name, directory, port)
        return _in_a_pod(cluster, session, name, directory, image or _image_of(job), port, keep)

    return reading.run(cluster, work)


def _job(session: Session, name: str, image: str | None) -> WatchedJob | None:
    """Return the job; None for a removed job, which may have left logs.

    Raises:
        Failure: there is none, and no image is given.
    """
    found = reading.jobs(session)
    for job in found:
        if job.name == name:
            return job
    if image is not None or session.is_local:
        return None
    near = nearest(name, [job.name for job in found])
    meant = f"did you mean {near}?" if near else "of one that was removed, name an image with TensorBoard by --image"
    raise Failure(WRONG_USAGE, f"namespace {session.namespace.name} has no job {name!r}: {meant}")


def _image_of(job: WatchedJob | None) -> str:
    """Return the job's image: a program that writes TensorBoard's logs needs the same package."""
    tasks = job.source["spec"].get("tasks") if job else None
    return str(tasks[0]["template"]["spec"]["containers"][0]["image"]) if tasks else ""


# --- In the cluster ---------------------------------------------------------------------------------------------------


def _in_a_pod(
    cluster: ClusterOptions, session: Session, name: str, directory: str, image: str, port: int, keep: bool
) -> int:
    from trainium_eks.kube import pod_channels

    manifest = tensorboard.pod(name, directory, image, session.namespace)
    reference = session.api.reference(manifest)
    there = session.api.get(reference)
    if there is not None and (there.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        session.api.delete(reference, propagation="Background")
        _await_gone(session, name)
        there = None
    if there is None:
        session.api.create(manifest)
    forwarding = None
    try:
        _await_running(cluster, session, name, image)
        pod_channels.check_port_forward(session, reference.name, tensorboard.PORT)
        forwarding = pod_channels.Forwarding(session, reference.name, tensorboard.PORT, port)
        url = f"http://127.0.0.1:{forwarding.local_port}"
        _await_answer(session, name, image, url)
        _serve(cluster, url, directory, reference.name)
    except pod_channels.NoWay as error:
        raise Failure(FAILED, f"the port of {reference.name} cannot be reached: {error}") from None
    except OSError as error:
        raise Failure(WRONG_USAGE, f"port {port} of this machine cannot be had: {error.strerror}") from None
    except KeyboardInterrupt:
        return 0  # that is how it is ended
    finally:
        if forwarding is not None:
            forwarding.close()
        if not keep:
            session.api.delete(reference, propagation="Background")
    return 0


def _pod(session: Session, name: str) -> dict[str, object] | None:
    from trainium_eks.kube.api import ObjectReference

    return session.api.get(ObjectReference("v1", "Pod", session.namespace.name, tensorboard.pod_name(name)))


def _await_gone(session: Session, name: str) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while _pod(session, name) is not None and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def _await_running(cluster: ClusterOptions, session: Session, name: str, image: str) -> None:
    """Wait until its process runs.

    Raises:
        Failure: it ended, or does not start in time, with the reason.
    """
    deadline, said = time.monotonic() + START_SECONDS, ""
    while True:
        pod = _pod(session, name)
        phase = ((pod or {}).get("status") or {}).get("phase")  # type: ignore[attr-defined]
        if pod is None or phase in ("Failed", "Succeeded"):
            raise Failure(FAILED, _why_ended(session, name, image))
        if phase == "Running":
            return
        about = {"metadata": {"name": tensorboard.pod_name(name)}, "spec": {}}
        reason = next(why_not_started.reasons(ClusterSnapshot(reading.now(), about, pods=(pod,))), None)
        waits = reason.sentence if reason else "it waits for a node of the CPU pool"
        if reason and reason.fix:
            raise Failure(FAILED, f"TensorBoard does not start: {waits}\n  → {reason.fix}")
        if time.monotonic() > deadline:
            from trainium_eks.cli.environment.check import examine

            failure = Failure(FAILED, f"TensorBoard did not start within {START_SECONDS:.0f} s: {waits}")
            raise examine.with_closing(failure, cluster, session.namespace.name, tensorboard.pod_name(name))
        if waits != said and not cluster.as_json:
            said = waits
            notices.notice(f"TensorBoard: {waits}")
        time.sleep(LOOK_SECONDS)


def _await_answer(session: Session, name: str, image: str, url: str) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            pod = _pod(session, name)
            phase = ((pod or {}).get("status") or {}).get("phase")  # type: ignore[attr-defined]
            if phase != "Running" or time.monotonic() > deadline:
                raise Failure(FAILED, _why_ended(session, name, image)) from None
        time.sleep(LOOK_SECONDS)


def _why_ended(session: Session, name: str, image: str) -> str:
    """Return the reason of its end, by the last line that it printed."""
    try:
        path = reading.log_path(session, tensorboard.pod_name(name))
        last = session.api.text("GET", path, query={"tailLines": "1"}).strip()
    except ClusterError:
        last = ""
    if "No module named" in last:
        return f"the image {image} has no TensorBoard ({last}): add the package, or name another by --image"
    return f"TensorBoard ended{': ' + last if last else ''}"


def _serve(cluster: ClusterOptions, url: str, directory: str, where: str) -> None:
    if cluster.as_json:
        document = {"url": url, "directory": directory, "pod": where or None}
        output.write_json({"schemaVersion": reading.SCHEMA_VERSION, **document}, indent=None)
    else:
        output.write(f"TensorBoard of {printable(directory)}: {url} (Ctrl-C ends it)\n")
    while True:
        time.sleep(3600)


# --- On the local cloud -----------------------------------------------------------------------------------------------


def _here(cluster: ClusterOptions, session: Session, name: str, directory: str, port: int) -> int:
    """Run TensorBoard on this machine, without a pod: the claim is a directory here."""
    paths = session.source.paths
    assert paths is not None
    claim = paths.claims / session.namespace.name / session.namespace.claim
    logs = beneath.real_path(claim, directory.removeprefix(f"{DATA}/"))
    program = _program()
    if program is None:
        title = "no tensorboard on PATH, nor in a local image: make one (trn local images make torch), or install it"
        raise Failure(WRONG_USAGE, title)
    if logs is None or not logs.is_dir():
        raise Failure(FAILED, f"{name} has written no TensorBoard logs: there is no {directory} on its volume")
    port = port or tensorboard.PORT
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise Failure(WRONG_USAGE, f"port {port} of this machine cannot be had: {error.strerror}") from None
    url = f"http://127.0.0.1:{port}"
    command = [str(program), "--logdir", str(logs), "--host", "127.0.0.1", "--port", str(port)]
    # Not a pipe: nobody reads it while TensorBoard runs, and a full one would stop it.
    with tempfile.TemporaryFile("w+") as words, _ended_like_ctrl_c():
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=words)
        try:
            if not _answers(process, url):
                words.seek(0)
                raise Failure(FAILED, f"{program} ended: {words.read().strip().rpartition(chr(10))[2]}")
            _serve(cluster, url, directory, "")
        except KeyboardInterrupt:
            return 0
        finally:
            process.terminate()
            process.wait()
    return 0


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM, which would leave TensorBoard running, as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _answers(process: "subprocess.Popen[bytes]", url: str) -> bool:
    """Return whether TensorBoard answers; False when it ended before. It needs seconds to begin.

    Raises:
        Failure: it runs and does not answer.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise Failure(FAILED, f"TensorBoard does not answer at {url}") from None
        time.sleep(LOOK_SECONDS / 5)
    return False


def _program() -> Path | None:
    from trainium_eks.local.images import images

    found = shutil.which("tensorboard")
    if found:
        return Path(found)
    programs = (image.path / "bin" / "tensorboard" for image in images.all_images())
    return next((program for program in programs if program.is_file()), None)
