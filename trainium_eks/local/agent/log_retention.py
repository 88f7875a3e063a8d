"""The logs of deleted pods: moved aside when the pods' directories are removed, and read again.

``.local/<stack>/kept/<namespace>/<pod>/<uid>/<container>/<restart>.log``. Bounded: the pods that went first are dropped
first. ``trn local down`` removes all of it with the rest of the stack.
"""

import contextlib
import heapq
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.local.runtime.output import Reader
from trainium_eks.local.spec.plan import PodDirectory, read

MOST_BYTES = 256 * 2**20

MOST_PODS = 500


@dataclass(frozen=True)
class KeptLine:
    """A log line of a deleted pod."""

    pod: str
    stamp: str
    """RFC 3339 with nanoseconds, as :func:`~.output.timestamp` writes it."""
    text: str


def keep(directory: PodDirectory, kept: Path) -> None:
    """Move a pod's logs aside. A log that cannot be moved is lost with the pod's directory.

    Nothing of the pod runs any more.
    """
    plan = read(directory.plan)
    if plan is None:
        return
    place = kept / str(plan["namespace"]) / str(plan["name"]) / str(plan["uid"])
    for log in sorted(directory.path.glob("containers/*/*.log*")):
        if log.is_file() and not log.is_symlink() and log.stat().st_size:
            with contextlib.suppress(OSError):
                target = place / log.parent.name
                kept.mkdir(exist_ok=True, mode=0o700)
                target.mkdir(parents=True, exist_ok=True)
                os.replace(log, target / log.name)
    with contextlib.suppress(OSError):
        os.utime(place)  # when the pod went, by which the oldest are found


def prune(kept: Path, most_bytes: int = MOST_BYTES, most_pods: int = MOST_PODS) -> None:
    """Delete the logs of the pods that went first, until the rest is within the limits."""
    pods = sorted(((each.stat().st_mtime, each) for each in kept.glob("*/*/*")), reverse=True)
    size = 0
    for place, (_, pod) in enumerate(pods):
        size += sum(file.stat().st_size for file in pod.glob("*/*"))
        if size > most_bytes or place >= most_pods:
            shutil.rmtree(pod, ignore_errors=True)
            with contextlib.suppress(OSError):
                pod.parent.rmdir()


def pods(kept: Path, namespace: str) -> list[str]:
    """Return the names of the namespace's pods with kept logs."""
    return sorted(each.name for each in (kept / namespace).glob("*") if each.is_dir())


def lines(kept: Path, namespace: str, pod: str, since: str) -> Iterator[KeptLine]:
    """Yield the log lines that pods of a name wrote since a time, in the order of time.

    ``since`` is RFC 3339, as :func:`~.output.timestamp` writes it. The lines of a pod's successor of the same name come
    after its own.
    """
    for each in sorted((kept / namespace / pod).glob("*"), key=lambda place: place.stat().st_mtime):
        containers = (_of_container(container, pod, since) for container in sorted(each.glob("*")))
        yield from heapq.merge(*containers, key=lambda line: line.stamp)


def _of_container(container: Path, pod: str, since: str) -> Iterator[KeptLine]:
    # A link, or a name with other characters than digits, is made by a pod: without namespaces, pods can write here.
    logs = [log for log in container.glob("*.log") if log.stem.isdecimal() and not log.is_symlink() and log.is_file()]
    for log in sorted(logs, key=lambda log: int(log.stem)):
        reader = Reader(log)
        try:
            begun, parts = "", b""
            for stamp, is_whole, text in reader.entries():
                begun, parts = begun or stamp, parts + text
                if is_whole:
                    if begun >= since:
                        yield KeptLine(pod, begun, parts.decode(errors="replace"))
                    begun, parts = "", b""
            if parts and begun >= since:
                yield KeptLine(pod, begun, parts.decode(errors="replace"))
        finally:
            reader.close()
