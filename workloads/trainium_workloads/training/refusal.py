"""Errors that end a training before its time: permanent ones, and others that a restart may mend."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

EXIT_CODE = 78
"""Exit code that ends the job instead of restarting its gang (EX_CONFIG of sysexits.h; the job's policy names it)."""

FILE = "TRN_REFUSED"
"""Variable: a file to make as well, because torchrun ends with 1 for every exit code of its ranks."""


class RefusalError(Exception):
    """Error that no restart mends: the message has its place and its remedy."""


class NotSavedError(Exception):
    """The last checkpoint could not be written: the job starts again from the checkpoint before it."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its class for an empty text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def guarded(main: Callable[[], int]) -> int:
    """Run a script; a refusal becomes its line on standard error and exit code 78."""
    try:
        return main()
    except RefusalError as refusal:
        sys.stderr.write(f"refused: {refusal}\n")
        if file := os.environ.get(FILE):
            with suppress(OSError):
                Path(file).touch()
        return EXIT_CODE
    except NotSavedError as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
