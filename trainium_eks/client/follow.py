"""Following of a job's logs: over connections that break, pods that are replaced and an API server that goes away."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from trainium_eks.client import reading
from trainium_eks.client.failure import UsageError
from trainium_eks.client.logs import JobLog, PodFilter, PodLine, has_begun, targets, waiting_for
from trainium_eks.client.session import Session
from trainium_eks.jobs.observed.watched import WatchedJob, of
from trainium_eks.jobs.watch import steps
from trainium_eks.jobs.watch.log_lines import LogLine, parse
from trainium_eks.kube.api import ObjectReference
from trainium_eks.kube.cluster import Object, name_of
from trainium_eks.kube.errors import ClusterError

LOOK_SECONDS = 1.0
"""Seconds between two reads of the job and its pods."""

AGAIN_SECONDS = 1.0

MOST_PODS = 64
"""Logs that are followed at the same time, each with its connection."""

QUIET_SECONDS = 3600.0
"""Seconds without a line after which a log is opened again."""


@dataclass
class _Stream:
    """The log of one pod, read by a thread."""

    pod: str
    uid: str
    place: int
    last: str = ""
    done: threading.Event = field(default_factory=threading.Event)


def follow(session: Session, job: WatchedJob, wanted: PodFilter, say: Callable[[str], None]) -> JobLog:
    """Return the lines of the chosen pods and rank, present and coming, until the job has ended. CommandError: more
    nodes than can be followed."""
    follower = Follower(session, job, wanted, say)
    return JobLog(follower.batches(), wanted.nodes, job=job, state=lambda: follower.state)


class Follower:
    """Reader of a job's coming lines. It says no notice (a restart, the reason of a wait, the end) twice in a row."""

    def __init__(self, session: Session, job: WatchedJob, wanted: PodFilter, say: Callable[[str], None]) -> None:
        if wanted.pods is not None and len(wanted.pods) > MOST_PODS:
            count = f"{len(wanted.pods)} nodes are more than can be followed ({MOST_PODS})"
            raise UsageError(f"{count}: choose one by --node or --rank")
        self._session = session
        self._job: WatchedJob | None = job
        self._name = job.name
        self._wanted = wanted
        self._tell = say
        self._arrived: queue.Queue[PodLine] = queue.Queue(10_000)
        self._streams: dict[str, _Stream] = {}
        self._restarts = job.restarts
        self._said = ""
        self._steps: list[steps.TrainingStep] = []

    @property
    def state(self) -> str:
        """Return the job's state at the last look; empty for a removed job."""
        return self._job.state if self._job else ""

    def batches(self) -> Iterator[list[PodLine]]:
        """Yield the lines as they come, none where none came for a while, until the job has ended and all its lines are
        read."""
        looked = 0.0
        while True:
            if time.monotonic() - looked >= LOOK_SECONDS:
                self._look()
                looked = time.monotonic()
            lines = self._arrivals()
            self._steps = [*self._steps, *steps.parse_all(each.line.text for each in lines)][-steps.RECENT - 1 :]
            yield lines
            if self._is_over():
                yield self._arrivals()
                self._say(f"{self._name} has {self._job.state.lower()}" if self._job else f"{self._name} was removed")
                return

    def _look(self) -> None:
        """Read the job and its pods; start a thread for each new log."""
        try:
            reference = self._session.api.reference(self._job.source) if self._job else None
            found = self._session.api.get(reference) if reference else None
            if found is None:
                self._job = None
                return
            job = of(found)
            self._job = job
            pods = targets(reading.pods_of(self._session, job), self._wanted)
        except ClusterError:
            self._say("the API server does not answer; waiting for it")
            return
        if self._said.startswith("the API server"):
            self._say("the API server answers again")
        if job.restarts > self._restarts:
            self._restarts, self._steps = job.restarts, []
            most = f" of {job.most_restarts}" if job.most_restarts is not None else ""
            self._say(f"{job.name} restarts ({job.restarts}{most})")
        self._open(pods)
        if not any(not each.done.is_set() for each in self._streams.values()) and job.ended is None:
            with contextlib.suppress(ClusterError):
                reason = waiting_for(self._session, job)
                self._say(reason and f"{job.name} waits: {reason}")
        reached = steps.progress(self._steps, reading.now().timestamp()) if job.state == "Running" else None
        if reached is not None and reached.stalled:
            what = f"no step since step {reached.last.number} for far longer than usual"
            self._say(f"{job.name} has stalled: {what}; trn doctor {job.name}")

    def _open(self, pods: list[Object]) -> None:
        for pod in pods:
            uid = str(pod["metadata"].get("uid") or name_of(pod))
            if uid in self._streams or not has_begun(pod):
                continue
            place = self._wanted.places.get(name_of(pod), 0)
            stream = _Stream(name_of(pod), uid, place)
            self._streams[uid] = stream
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: _Stream) -> None:
        """Read all lines of a pod, also when the connection breaks off in between."""
        try:
            while True:
                whole = self._read_on(stream)
                left = self._left(stream)
                if left == "nothing" or (left == "the rest" and whole):
                    return
                time.sleep(AGAIN_SECONDS)
        finally:
            stream.done.set()

    def _read_on(self, stream: _Stream) -> bool:
        """Read present and coming lines; return whether the server ended the log, and not the connection."""
        try:
            for line in self._lines(stream):
                self._arrived.put(PodLine(stream.pod, stream.place, line))
        except ClusterError:
            return False
        return True

    def _lines(self, stream: _Stream) -> Iterator[LogLine]:
        query = {**self._wanted.query, "follow": "true"}
        if stream.last:
            # The API takes whole seconds; lines already shown are left out below.
            query["sinceTime"] = f"{stream.last[:19]}Z" if stream.last.endswith("Z") else stream.last
            query.pop("tailLines", None)
            query.pop("sinceSeconds", None)
        shown = stream.last
        path = reading.log_path(self._session, stream.pod)
        for text in self._session.api.lines(path, query=query, quiet_seconds=QUIET_SECONDS):
            line = parse(text)
            if line.stamp and line.stamp <= shown:
                continue
            stream.last = line.stamp or stream.last
            if line.is_of(self._wanted.local_rank):
                yield line

    def _left(self, stream: _Stream) -> Literal["nothing", "the rest", "more"]:
        """Return the part of a log that may follow: nothing when the pod is gone or replaced, for then the name is
        another's; the rest when its containers have ended; else more."""
        try:
            pod = self._session.api.get(ObjectReference("v1", "Pod", self._session.namespace.name, stream.pod))
        except ClusterError:
            return "more"
        if pod is None or str(pod["metadata"].get("uid")) != stream.uid:
            return "nothing"
        return "the rest" if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") else "more"

    def _arrivals(self) -> list[PodLine]:
        """Return the lines that have arrived; wait a little for the first."""
        lines: list[PodLine] = []
        try:
            lines.append(self._arrived.get(timeout=0.2))
            while len(lines) < 1000:
                lines.append(self._arrived.get_nowait())
        except queue.Empty:
            pass
        return lines

    def _is_over(self) -> bool:
        reading = any(not each.done.is_set() for each in self._streams.values())
        return (self._job is None or self._job.ended is not None) and not reading and self._arrived.empty()

    def _say(self, notice: str) -> None:
        if notice and notice != self._said:
            self._said = notice
            self._tell(notice)
