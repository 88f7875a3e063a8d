"""Recording of a program's graph; every error is a :class:`CommandError`."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainium_eks.cli.shared.stack_file import StackFile
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.model.validation.problems import config_path, config_set, plural
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording import assumptions, process
from trainium_eks.plan.recording.assumptions import Assumptions, AssumptionsError
from trainium_eks.plan.recording.project import InvalidConfigError, ProjectError, load_project

TIMEOUT_SECONDS = 300.0
"""A program is stopped after this time without progress."""


def refusal(error: InvalidConfigError, project: Path, stack: str, outcome: str) -> CommandError:
    """Return the failure for an invalid stack config, or for invalid arguments of a component; ``outcome`` ends its
    message (``nothing was planned``)."""
    count = plural(len(error.problems), "problem")
    where = error.component or f"Pulumi.{stack}.yaml"
    spell = str if error.component else config_path
    file = StackFile.find(load_project(project), stack)
    setting = file.setting if file is not None else config_set
    title = f"{where}: {count}, {outcome}"
    return CommandError(title, error.problems, detail=error.note, spell=spell, setting=setting)


def load_assumptions(path: Path | None) -> Assumptions | None:
    """Return the answers in a file of ``--stub``; None without one, so that the project's own file answers."""
    try:
        return assumptions.load(path) if path is not None else None
    except AssumptionsError as error:
        raise UsageError(f"--stub {error}") from None


def record(project: Path, stack: str, given: Assumptions | None = None) -> Graph:
    """Return the recorded program of a stack. Without given answers for its look-ups, those in the project's
    ``answers.<stack>.yaml`` count; a look-up without an answer gets a placeholder."""
    try:
        answers = given or assumptions.of_stack(project, stack) or Assumptions()
        return process.record(project, stack, assumptions=answers, timeout_seconds=TIMEOUT_SECONDS)
    except AssumptionsError as error:
        raise UsageError(str(error)) from None
    except InvalidConfigError as error:
        raise refusal(error, project, stack, "nothing was planned") from None
    except process.ProgramFailedError as error:
        parts = [
            error.traceback.rstrip(),
            f"The program printed:\n{error.output.rstrip()}" if error.output.strip() else "",
        ]
        raise CommandError(f"the program failed: {error.message}", detail="\n".join(filter(None, parts))) from None
    except process.ProgramTimeoutError as error:
        raise CommandError(str(error)) from None
    except ProjectError as error:
        raise UsageError(str(error)) from None


@contextmanager
def spinner(message: str) -> Iterator[None]:
    """Show a spinner on stderr if that is a terminal; after two seconds the spinner shows the seconds."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    began, done = time.monotonic(), threading.Event()
    with Console(stderr=True).status(message) as status:

        def tell() -> None:
            while not done.wait(1):
                seconds = int(time.monotonic() - began)
                if seconds >= 2:
                    status.update(
                        f"{message}: {seconds} s (it is stopped when nothing moves for {TIMEOUT_SECONDS:g} s)"
                    )

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            done.set()
            teller.join()
