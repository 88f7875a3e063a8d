"""Errors of work on a cluster that people read as they are."""


class ClusterError(Exception):
    """A cluster, or this machine, cannot do what a command needs.

    The message is for the user: what failed, in the words of the program or server that refused, and the mend.
    """


class MissingError(ClusterError):
    """A tool, a package, credentials or a running cluster that a command needs is not there."""
