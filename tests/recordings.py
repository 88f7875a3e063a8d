"""The repository's environments, each recorded once by a worker."""

from functools import cache

from golden import ROOT

from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.process import record


@cache
def recorded(stack: str, *, dry_run: bool = False) -> Graph:
    """Return the program of an environment, as an update or a first preview registers it."""
    return record(ROOT, stack, dry_run=dry_run)
