"""Why a training ends before its time, in a line: what no restart mends, and what one may."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

EXIT_CODE = 78
"""What ends the job for good instead of restarting its gang (EX_CONFIG of sysexits.h; the job's policy names it)."""

FILE = "TRN_REFUSED"
"""Variable: a file to make as well, because torchrun ends with 1 whatever its ranks end with."""


class Refusal(Exception):  # noqa: N818 - reads as what it is where it is raised
    """What is wrong, where, and what mends it; no restart does."""


class NotSaved(Exception):  # noqa: N818 - reads as what it is where it is raised
    """The last checkpoint could not be written: the job starts again from the one before."""


def guarded(main: Callable[[], int]) -> int:
    """Runs a script; a refusal becomes its line on standard error and exit code 78."""
    try:
        return main()
    except Refusal as refusal:
        sys.stderr.write(f"refused: {refusal}\n")
        if file := os.environ.get(FILE):
            with suppress(OSError):
                Path(file).touch()
        return EXIT_CODE
    except NotSaved as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
