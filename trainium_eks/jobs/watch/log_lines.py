"""Lines of logs: their ranks, their times, and the pods of a gang that write them. Pure functions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.jobs.objects.identity import REPLICA_INDEX_LABEL, REPLICA_LABEL, TASK_INDEX_LABEL, by_process_rank
from trainium_eks.kube.cluster import Object, name_of

_LOCAL_RANK = re.compile(r"\[(?:[A-Za-z][\w-]{0,99}?)?(\d{1,9})\]:")
"""Prefix of each line by torchrun with ``--tee 3``: ``[default0]:``, or ``[0]:`` where the role has no name."""

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


@dataclass(frozen=True)
class LogLine:
    """One line of a pod's log."""

    stamp: str
    """Time of writing, so that text compares as time does within one pod; empty for a line without one."""
    text: str

    @property
    def local_rank(self) -> int | None:
        """Return the rank on its node that wrote it; None for the launcher's own lines."""
        found = _LOCAL_RANK.match(self.text)
        return int(found[1]) if found else None

    @property
    def own_text(self) -> str:
        """Return the text without the rank's prefix."""
        found = _LOCAL_RANK.match(self.text)
        return self.text[found.end() :] if found else self.text

    def is_of(self, local_rank: int | None) -> bool:
        """Return whether a rank wrote the line, or the launcher, with errors that concern all ranks; True for None,
        which is all."""
        return local_rank is None or self.local_rank in (None, local_rank)


def parse(line: str) -> LogLine:
    """Return a line as the API server gives it with ``timestamps``; one without a time is taken as it is.

    The kubelet leaves zeros out at the end of the fraction, so they are filled up again.
    """
    found = _STAMP.match(line)
    if found is None:
        return LogLine("", line)
    return LogLine(f"{found[1]}.{(found[2] or '').ljust(9, '0')}{found[3]}", line[found.end() :])


def seconds(text: str) -> int | None:
    """Return ``90s``, ``10m``, ``2h30m`` or ``90`` in seconds; None for other text."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + rest


def pod_names(job: Object, launcher: str = "torchrun") -> list[str]:
    """Return the names of a job's pods, whether they exist or not, the pod of rank 0 first."""
    return [name_of(pod) for pod in by_process_rank(_to_be(job), launcher)]


def _to_be(job: Object) -> Iterable[Mapping[str, Any]]:
    """Return as much of each pod as tells its place. Volcano names them ``<job>-<task>-<index>``, the Training Operator
    ``<job>-worker-<index>``."""
    workers = (job["spec"].get("pytorchReplicaSpecs") or {}).get("Worker") or {"replicas": 0}
    for index in range(int(workers.get("replicas", 1))):
        yield {"metadata": {"name": f"{name_of(job)}-worker-{index}", "labels": {REPLICA_INDEX_LABEL: str(index)}}}
    for number, task in enumerate(job["spec"].get("tasks") or ()):
        template = (task.get("template") or {}).get("metadata") or {}
        shape = template.get("labels") or {}
        replicas = int(task.get("replicas", 1))
        for index in range(replicas):
            labels = {TASK_INDEX_LABEL: str(index)}
            if REPLICA_LABEL in shape or replicas == 1:
                labels[REPLICA_LABEL] = str(shape.get(REPLICA_LABEL, number))
            yield {"metadata": {"name": f"{name_of(job)}-{task['name']}-{index}", "labels": labels}}
