"""``trn plan``: record a program, apply the rules, compare, show."""

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainium_eks.cli.shared import output, recording
from trainium_eks.cli.shared.recording import spinner
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure, complain
from trainium_eks.client.project import check_stack, find_project

if TYPE_CHECKING:
    from trainium_eks.cli.environment.plan.report import Plan
    from trainium_eks.plan.differences.changes import Kind


@dataclass(frozen=True)
class PlanOptions:
    """The options of one call."""

    stack: str
    as_json: bool = False
    save: Path | None = None
    against: str | None = None
    no_color: bool = False
    directory: Path | None = None
    stub: Path | None = None
    """File with answers for the program's look-ups."""
    fail_on: "tuple[Kind, ...]" = ()
    """Kinds of change that fail the command."""
    accept_losses: bool = False


def run(asked: PlanOptions) -> int:
    """Show the plan; return the exit code."""
    try:
        if asked.fail_on and asked.against is None:
            raise Failure(WRONG_USAGE, "--fail-on needs --against: without it there are no changes")
        plan = _make(asked)
        if asked.save is not None:
            from trainium_eks.cli.environment.plan import report

            report.save(plan, asked.save)
    except Failure as failure:
        return output.tell(failure, as_json=asked.as_json)
    try:
        _show(plan, asked)
    except Failure as failure:
        return complain(failure)
    unwanted = _unwanted(plan, asked.fail_on)
    if unwanted:
        sys.stderr.write(f"--fail-on: {unwanted}\n")
    return FAILED if plan.failed or unwanted else 0


def _show(plan: "Plan", asked: PlanOptions) -> None:
    if asked.as_json:
        from trainium_eks.cli.environment.plan import report

        output.write(report.text(plan))
        return
    from trainium_eks.cli.environment.plan import render

    render.show(plan, no_color=asked.no_color)


def _unwanted(plan: "Plan", kinds: "Sequence[Kind]") -> str:
    """Return the number of changes of each given kind; empty when there are none."""
    compared = plan.review.comparison if plan.review else None
    if compared is None:
        return ""
    found = [(kind, len(compared.changes.of(kind))) for kind in kinds]
    return ", ".join(f"{count} {kind}" for kind, count in found if count)


def _make(asked: PlanOptions) -> "Plan":
    project = find_project(asked.directory)
    check_stack(project, asked.stack)
    given = recording.load_assumptions(asked.stub)
    if asked.against is None:
        with spinner(f"Recording {asked.stack}"), _judges(asked):
            graph = recording.record(project, asked.stack, given)
        from trainium_eks.cli.environment.plan import report

        return report.make(graph)
    from trainium_eks.cli.environment.plan import baseline, report

    earlier = baseline.find(asked.against, project, asked.stack, given)
    # Each program runs in its process, so two threads that wait for them are enough.
    with spinner(f"Recording {asked.stack}, now and as of {earlier.name}"), ThreadPoolExecutor(2) as pool:
        before = pool.submit(earlier.graph)
        now = pool.submit(recording.record, project, asked.stack, given)
        plan = report.make(now.result())
        return report.against(plan, earlier.name, before.result(), losses_accepted=asked.accept_losses)


@contextmanager
def _judges(asked: PlanOptions) -> Iterator[None]:
    """Import the plan's report or renderer while the program runs in its own process: a fifth of the whole time."""
    module = f"trainium_eks.cli.environment.plan.{'report' if asked.as_json else 'render'}"
    importing = threading.Thread(target=importlib.import_module, args=(module,), daemon=True)
    importing.start()
    yield
    importing.join()
