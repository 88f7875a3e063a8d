"""Writing to standard output, which may be full or closed."""

import os
import sys

from trainium_eks.cli.failure import FAILED, Failure


def write(text: str) -> None:
    """Writes all of it now.

    Raises:
        Failure: when it does not fit, as on a full disk.
        BrokenPipeError: when nobody reads any more (``trn plan | head``); the command ends quietly.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is left in the buffer would be tried again, and complained about, when Python ends.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise Failure(FAILED, f"cannot write to standard output: {error.strerror}") from None
