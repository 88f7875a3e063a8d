"""Endings: exits of containers, the first among them, and causes of a gang's restarts. Pure functions."""

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainium_eks.jobs.objects.identity import node_rank
from trainium_eks.jobs.objects.job import REFUSED
from trainium_eks.jobs.observed.job_snapshot import JobSnapshot
from trainium_eks.jobs.watch.log_lines import LogLine
from trainium_eks.kube.cluster import Object, moment, name_of, when

BEFORE_RESTART = timedelta(seconds=120)
"""Time before a restart in which its cause may have been seen."""

_PLACING = ("FailedScheduling", "Unschedulable", "FailedMount", "FailedAttachVolume", "NotTriggerScaleUp", "BackOff")
"""Reasons of warnings about pods that end none."""

_TELLING = ("Evict", "Evicted", "Preempted", "Preempting", "TaintManagerEviction", "DeletingNode", "NodeNotReady")
"""Reasons of events that report an end and are no warnings, or not always."""

UNKNOWN = "a pod failed or was deleted, and no pod or event that is left says why"
"""Cause of a restart of which nothing is left."""

_STARTS = re.compile(r"exit code (\d+) before a step, (\d+) times in a row")
_FIRST_FAILURE, _RUN_BEFORE = "the first failure: ", " before ended with "
"""Words of lines of the gang launcher (``trainium_workloads.gang``)."""

_TRACEBACK = "Traceback (most recent call last)"
_ERROR = re.compile(r"[A-Za-z_][\w.]*(: |$)")
"""Last line of a traceback."""

_ROOT_CAUSE = "Root Cause"
_FIRST_RANK = re.compile(r"\brank\s*:\s*(\d{1,9})\s*\(local_rank(?:\s*:\s*(\d{1,9}))?")
_EXIT_CODE = re.compile(r"\bexitcode\s*:\s*(-?\d{1,9})")
_SUMMARY_CHARACTERS = 4096
"""Characters of torchrun's summary after :data:`_ROOT_CAUSE`: rank and exit code are in its first lines."""


@dataclass(frozen=True)
class Exit:
    """A container that ended."""

    pod: str
    node: int | None
    """Node rank; None for a pod of no gang."""
    container: str
    code: int
    reason: str
    """Reason of the kubelet: ``Error``, ``OOMKilled``, ``Completed``, …"""
    message: str
    finished: datetime | None

    @property
    def meaning(self) -> str:
        """Return ``exit code 137 (SIGKILL, out of memory)``; of starts that all failed, their own exit code."""
        if (starts := _STARTS.search(self.message)) and self.code == REFUSED:
            return f"exit code {starts[1]}, {starts[2]} starts in a row"
        because = _signal(self.code)
        if self.reason == "OOMKilled":
            because = f"{because}, out of memory" if because else "out of memory"
        elif self.reason not in ("", "Error", "Completed"):
            because = f"{because}, {self.reason}" if because else self.reason
        return f"exit code {self.code}" + (f" ({because})" if because else "")

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {
            "pod": self.pod,
            "node": self.node,
            "container": self.container,
            "exitCode": self.code,
            "reason": self.reason,
            "message": self.message,
            "finished": self.finished.isoformat() if self.finished else None,
        }


@dataclass(frozen=True)
class Restart:
    """One restart of the gang."""

    at: datetime
    cause: str

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {"at": self.at.isoformat(), "cause": self.cause}


def exits(pods: Iterable[Object]) -> list[Exit]:
    """Return containers that have ended, the first to end first; a container restarted in its pod counts by its last
    end."""
    found = []
    for pod in pods:
        status_of = pod.get("status") or {}
        for status in [*(status_of.get("initContainerStatuses") or ()), *(status_of.get("containerStatuses") or ())]:
            ended = (status.get("state") or {}).get("terminated") or (status.get("lastState") or {}).get("terminated")
            if ended:
                found.append(_exit(pod, status["name"], ended))
    return sorted(found, key=lambda each: (each.finished is None, each.finished, each.node or 0))


def _exit(pod: Object, container: str, ended: Object) -> Exit:
    try:
        node: int | None = node_rank(pod)
    except ValueError:
        node = None
    finished = ended.get("finishedAt")
    words = " ".join(str(ended.get("message") or (pod.get("status") or {}).get("message") or "").split())
    return Exit(
        name_of(pod),
        node,
        container,
        int(ended.get("exitCode", 0)),
        str(ended.get("reason") or (pod.get("status") or {}).get("reason") or ""),
        words,
        moment(finished) if finished else None,
    )


def first_failure(found: Sequence[Exit]) -> Exit | None:
    """Return the container that failed first, apart from SIGTERM, which follows another failure; if SIGTERM ended all,
    the first."""
    failed = [each for each in found if each.code]
    own = [each for each in failed if each.code != 128 + signal.SIGTERM]
    return next(iter(own or failed), None)


def root_cause(log: str) -> tuple[int, int] | None:
    """Return the rank that failed first and its exit code, from torchrun's summary (``Root Cause (first observed
    failure)``, torch's ``elastic/multiprocessing/errors``); None without such a summary."""
    _, _, after = log.partition(_ROOT_CAUSE)
    summary = after[:_SUMMARY_CHARACTERS]
    rank, code = _FIRST_RANK.search(summary), _EXIT_CODE.search(summary)
    return (int(rank[1]), int(code[1])) if rank and code else None


def first_error(log: Sequence[str]) -> str:
    """Return the error of the rank that failed first, from the end of its node's log: as the gang launcher prints it,
    else the last line of that rank's traceback, above torchrun's summary; empty where the log has neither."""
    if failure := _after(log, _FIRST_FAILURE):
        return failure
    _, _, after = "\n".join(log).partition(_ROOT_CAUSE)
    rank = _FIRST_RANK.search(after[:_SUMMARY_CHARACTERS])
    error, is_open = "", False
    for line in (LogLine("", each) for each in log):
        if rank is not None and rank[2] and line.local_rank == int(rank[2]):
            words = line.own_text
            is_open = is_open or words.startswith(_TRACEBACK)
            if is_open and _ERROR.match(words) and not words.startswith(_TRACEBACK):
                error, is_open = words.strip(), False
    return f"rank {rank[1]}: {error}" if rank and error else ""


def run_before(log: Sequence[str]) -> str:
    """Return how the run before ended, as the gang launcher prints it at its start; empty where the log lacks it."""
    return _after(log, _RUN_BEFORE)


def _after(log: Sequence[str], words: str) -> str:
    return next((line.partition(words)[2].strip() for line in reversed(log) if words in line), "")


def restarts(snapshot: JobSnapshot) -> list[Restart]:
    """Return each restart of the gang that Volcano remembers, the oldest first, with its cause as far as events tell.

    Volcano deletes the pods of a gang that it restarts, and with them their exit codes and logs.
    """
    conditions = (snapshot.job.get("status") or {}).get("conditions") or ()
    found = [moment(each["lastTransitionTime"]) for each in conditions if each.get("status") == "Restarting"]
    return [Restart(at, _cause(snapshot, at)) for at in dict.fromkeys(found)]


def _cause(snapshot: JobSnapshot, at: datetime) -> str:
    warnings = [
        event
        for event in snapshot.events
        if event["involvedObject"].get("kind") == "Pod"
        and at - BEFORE_RESTART <= when(event) <= at + timedelta(seconds=2)
        and event.get("reason") not in _PLACING
        and (event.get("type") == "Warning" or event.get("reason") in _TELLING)
    ]
    if warnings:
        event = warnings[-1]
        return f"{event['involvedObject']['name']}: {' '.join(str(event.get('message', event['reason'])).split())}"
    still_there = first_failure(exits(snapshot.pods))
    # A pod of a later start ended after this restart.
    since = at - still_there.finished if still_there and still_there.finished else BEFORE_RESTART
    if still_there and -timedelta(seconds=2) <= since < BEFORE_RESTART:
        return f"{still_there.pod}: {still_there.meaning}"
    return UNKNOWN


def _signal(code: int) -> str:
    number = code - 128 if code > 128 else -code
    try:
        return signal.Signals(number).name if number > 0 else ""
    except ValueError:
        return ""
