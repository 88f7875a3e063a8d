"""Exit codes of commands that a test calls without the command line."""

from trainium_eks.client.failure import CommandError, complain, failure_of, unexpected
from trainium_eks.kube.errors import ClusterError


def exit_code(act):
    """Return the exit code of a command; report what stops it on standard error, as the command line does."""
    try:
        return act()
    except (CommandError, ClusterError) as error:
        return complain(failure_of(error) or unexpected(error))
