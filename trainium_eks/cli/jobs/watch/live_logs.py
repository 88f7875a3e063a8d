"""Lines of logs for people: printed once, or as they come."""

import os
import sys
from collections.abc import Iterable
from dataclasses import replace

from trainium_eks.cli.shared import output
from trainium_eks.client import logs, notices
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED
from trainium_eks.client.follow import Follower
from trainium_eks.client.logs import PodFilter, Shown
from trainium_eks.client.session import Session
from trainium_eks.jobs.explain.cluster_snapshot import FAILURES
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.kube.pod_text import printable

_COLORS = (36, 33, 35, 32, 34, 96, 93, 95)
"""ANSI colours of nodes, in turn."""


class Printer:
    """Printer of lines: unchanged for one pod, with the node before them for several, or as JSON."""

    def __init__(
        self, cluster: ClusterOptions, wanted: PodFilter, *, several: bool = True, timestamps: bool = False
    ) -> None:
        self.cluster = cluster
        self._timestamps = timestamps
        self._several = several and (wanted.pods is None or len(wanted.pods) > 1)
        self._width = len(str(max(wanted.places.values(), default=0)))
        plain = cluster.no_color or os.environ.get("NO_COLOR") or not sys.stdout.isatty()
        self._colored = not plain

    def write(self, lines: Iterable[Shown]) -> None:
        """Write the lines now."""
        if self.cluster.as_json:
            for each in lines:
                rank = each.line.local_rank
                document = {"time": each.line.stamp or None, "pod": each.pod, "node": each.place, "localRank": rank}
                output.write_json({**document, "line": each.line.text}, indent=None)
        else:
            text = "".join(f"{self._prefix(each)}{each.line.text}\n" for each in lines)
            if text:
                output.write(text)

    def _prefix(self, shown: Shown) -> str:
        at = shown.line.stamp  # nanoseconds, of which milliseconds are shown
        stamp = f"{at[:23]}{at[29:]} " if self._timestamps and at else ""
        if not self._several:
            return stamp
        prefix = f"node {shown.place:>{self._width}} | "
        color = _COLORS[shown.place % len(_COLORS)]
        return f"{stamp}\x1b[{color}m{prefix}\x1b[0m" if self._colored else f"{stamp}{prefix}"


def follow(session: Session, job: WatchedJob, wanted: PodFilter, printer: Printer) -> int:
    """Print lines as they come until the job has ended; return 0 when it succeeded.

    Raises:
        Failure: more pods than can be followed.
    """
    follower = Follower(session, job, wanted, notices.notice)
    try:
        for lines in follower.batches():
            printer.write(lines)
    except KeyboardInterrupt:
        return INTERRUPTED  # that is how it is ended
    if follower.state in FAILURES:
        explain(session, job, printer.cluster)
    return 0 if follower.state == "Completed" else FAILED


def explain(session: Session, job: WatchedJob, cluster: ClusterOptions) -> None:
    """Print on stderr why a job failed: the node that ended first, the doctor's findings, and where more stands."""
    from trainium_eks.cli.environment.check.examine import closing

    first = logs.first_failed(session, job)
    if first:
        notices.notice(f"{job.name}: {first}")
    said = closing(replace(cluster, namespace=session.namespace.name), job.name, with_checks=False)
    sys.stderr.write(f"{said}\n" if said else "")


def complain(troubles: Iterable[str]) -> None:
    """Print the errors of unreadable logs on stderr."""
    for trouble in troubles:
        sys.stderr.write(f"{printable(trouble)}\n")
