"""The lines that deleted pods of the local cloud left."""

import heapq
from collections.abc import Callable, Iterator
from datetime import datetime

from trainium_eks.local.agent import log_retention
from trainium_eks.local.agent.log_retention import KeptLine
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime.output import timestamp


def read_kept_logs(paths: Paths, namespace: str, since: datetime, wanted: Callable[[str], bool]) -> Iterator[KeptLine]:
    """Yield the lines that deleted pods left, in order of time; ``wanted`` decides by a pod's name."""
    pods = filter(wanted, log_retention.pods(paths.kept, namespace))
    files = (log_retention.lines(paths.kept, namespace, pod, timestamp(since.timestamp())) for pod in pods)
    return heapq.merge(*files, key=lambda line: line.stamp)
