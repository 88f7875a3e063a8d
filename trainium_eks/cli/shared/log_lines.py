"""Lines of jobs' logs for people: printed once, or as they come."""

import os
import sys
from collections.abc import Iterable
from dataclasses import replace

from trainium_eks.cli.shared import output
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED
from trainium_eks.client.logs import JobLog, PodLine, first_failed
from trainium_eks.client.notices import notice, say
from trainium_eks.client.team import Team
from trainium_eks.jobs.observed.job_snapshot import FAILURES, SUCCEEDED
from trainium_eks.jobs.observed.watched import WatchedJob

_COLORS = (36, 33, 35, 32, 34, 96, 93, 95)
"""ANSI colours of nodes, in turn."""


class Printer:
    """Printer of lines: unchanged for one node, with the node before them for several, or as JSON."""

    def __init__(self, cluster: ClusterOptions, nodes: int | None, *, timestamps: bool = False) -> None:
        self.cluster = cluster
        self._timestamps = timestamps
        self._several = nodes is None or nodes > 1
        self._width = len(str((nodes or 1) - 1))
        self._colored = not (cluster.no_color or os.environ.get("NO_COLOR")) and sys.stdout.isatty()

    def write(self, lines: Iterable[PodLine]) -> None:
        """Write the lines now."""
        if self.cluster.as_json:
            for each in lines:
                rank = each.line.local_rank
                document = {"time": each.line.stamp or None, "pod": each.pod, "node": each.place, "localRank": rank}
                output.write_json({**document, "line": each.line.text}, indent=None)
        elif text := "".join(f"{self._prefix(each)}{each.line.text}\n" for each in lines):
            output.write(text)

    def _prefix(self, shown: PodLine) -> str:
        at = shown.line.stamp  # nanoseconds, of which milliseconds are shown
        stamp = f"{at[:23]}{at[29:]} " if self._timestamps and at else ""
        if not self._several:
            return stamp
        prefix = f"node {shown.place:>{self._width}} | "
        color = _COLORS[shown.place % len(_COLORS)]
        return f"{stamp}\x1b[{color}m{prefix}\x1b[0m" if self._colored else f"{stamp}{prefix}"


def print_log(log: JobLog, cluster: ClusterOptions, *, timestamps: bool = False) -> int:
    """Print the lines of a log as they are read; return their number."""
    printer = Printer(cluster, log.nodes, timestamps=timestamps)
    count = 0
    for lines in log.batches:
        printer.write(lines)
        count += len(lines)
    return count


def follow_log(log: JobLog, cluster: ClusterOptions, team: Team | None = None, *, timestamps: bool = False) -> int:
    """Print the lines of a followed log until the job has ended; return 0 when it succeeded. The failure of a team's
    job on the cluster is explained on stderr."""
    try:
        print_log(log, cluster, timestamps=timestamps)
    except KeyboardInterrupt:
        return INTERRUPTED  # that is how it is ended
    state = log.state()
    if team is not None and log.job is not None and state in FAILURES:
        explain(team, log.job, cluster)
    return 0 if state == SUCCEEDED else FAILED


def explain(team: Team, job: WatchedJob, cluster: ClusterOptions) -> None:
    """Print on stderr why a job failed: the node that ended first, the doctor's findings, and where more stands."""
    # Only a failed job needs the doctor's modules.
    from trainium_eks.cli.shared.examine import closing

    if first := first_failed(team.session, job):
        notice(f"{job.name}: {first}")
    if said := closing(replace(cluster, namespace=team.namespace), job.name, checks=False):
        say(said)
