"""Lines of jobs' logs for people: printed once, or as they come."""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator

from trainium_eks.cli.shared import output
from trainium_eks.client import sagemaker
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED
from trainium_eks.client.logs import PodFilter, PodLine
from trainium_eks.client.notices import notice
from trainium_eks.jobs.sagemaker.service import SageMakerJobs

_BATCH = 1000
_COLORS = (36, 33, 35, 32, 34, 96, 93, 95)
"""ANSI colours of nodes, in turn."""


class Printer:
    """Printer of lines: unchanged for one node, with the node before them for several, or as JSON."""

    def __init__(
        self, cluster: ClusterOptions, wanted: PodFilter | None, *, is_one_node: bool = False, timestamps: bool = False
    ) -> None:
        pods, places = (wanted.pods, wanted.places) if wanted else (None, {})
        self.cluster = cluster
        self._timestamps = timestamps
        self._several = not is_one_node and (pods is None or len(pods) > 1)
        self._width = len(str(max(places.values(), default=0)))
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

    def write_all(self, lines: Iterator[PodLine]) -> int:
        """Write lines as they are read; return their number."""
        count = 0
        while batch := [*itertools.islice(lines, _BATCH)]:
            self.write(batch)
            count += len(batch)
        return count

    def _prefix(self, shown: PodLine) -> str:
        at = shown.line.stamp  # nanoseconds, of which milliseconds are shown
        stamp = f"{at[:23]}{at[29:]} " if self._timestamps and at else ""
        if not self._several:
            return stamp
        prefix = f"node {shown.place:>{self._width}} | "
        color = _COLORS[shown.place % len(_COLORS)]
        return f"{stamp}\x1b[{color}m{prefix}\x1b[0m" if self._colored else f"{stamp}{prefix}"


def follow_sagemaker(
    jobs: SageMakerJobs, name: str, cluster: ClusterOptions, node: int | None = 0, since_ms: int = 0, **printed: bool
) -> int:
    """Print lines of SageMaker's job as they come until it has ended; return 0 when it succeeded."""
    printer = Printer(cluster, None, is_one_node=node is not None, **printed)
    try:
        for lines in sagemaker.coming_lines(jobs, name, node, since_ms):
            printer.write(lines)
    except KeyboardInterrupt:
        notice(f"{name} is still running: trn logs {name} -f, trn cancel {name}")
        return INTERRUPTED
    ended = jobs.find(name)
    return 0 if ended is not None and ended.state == "Completed" else FAILED
