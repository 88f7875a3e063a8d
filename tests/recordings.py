"""The repository's environments, each recorded once by a worker."""

from functools import cache

from golden import ROOT

from trainium_eks.plan.recording.process import record


@cache
def recorded(stack, *, dry_run=False):
    """Return the program of an environment, as an update or a first preview registers it."""
    return record(ROOT, stack, dry_run=dry_run)
