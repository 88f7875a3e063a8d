"""Faults of this machine behind errors that look like a server's: no space, no more open files, no right to a file."""

import errno
import os

_SPACE, _HANDLES, _RIGHTS = (errno.ENOSPC, errno.EDQUOT), (errno.EMFILE, errno.ENFILE), (errno.EACCES, errno.EROFS)


def machine_fault(error: BaseException) -> str:
    """Return the fault of this machine that an error has or was caused by, with its mend; empty for another error.
    Sources: Linux, errno(3); Python, ``tempfile`` and the causes of exceptions."""
    cause: BaseException | None = error
    for _ in range(9):
        if cause is None:
            break
        if isinstance(cause, OSError) and (words := _words(cause)):
            return f"a fault of this machine, not of a server: {words}"
        # boto3 keeps the cause in an argument, urllib in an attribute.
        inner = getattr(cause, "kwargs", {}).get("error") or getattr(cause, "reason", None)
        cause = inner if isinstance(inner, BaseException) else cause.__cause__ or cause.__context__
    return ""


def _words(error: OSError) -> str:
    place = error.filename or os.environ.get("TMPDIR", "/tmp")
    if error.errno in _SPACE:
        return f"no space is left for {place}: free some, or set TMPDIR to another directory"
    if error.errno in _HANDLES:
        return "a process may open no more files: ulimit -n 4096"
    if error.errno == errno.ENOMEM:
        return "no memory is left"
    if error.errno in _RIGHTS and error.filename:  # without a file, a firewall refused a connection
        return f"this user may not read or write {place} ({error.strerror}): change its rights, or set HOME or TMPDIR"
    if "No usable temporary directory" in str(error):
        return "no directory for temporary files can be written: set TMPDIR to one"
    return ""
