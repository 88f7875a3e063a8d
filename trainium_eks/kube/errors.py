"""Errors of work on a cluster, with messages for people."""


class ClusterError(Exception):
    """A command cannot be carried out on a cluster, or on this machine.

    The message is for the user: the failure, in the words of the program or server that refused, and the mend.
    """


class MissingError(ClusterError):
    """A tool, a package, credentials or a running cluster that a command needs is not there."""
