"""``trn plan``: record, judge, compare, show."""

import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.cli import baseline, recording, report
from trainium_eks.cli.failure import FAILED, Failure, complain
from trainium_eks.cli.report import Plan


@dataclass(frozen=True)
class Request:
    """The options of one call."""

    stack: str
    as_json: bool = False
    save: Path | None = None
    against: str | None = None
    no_color: bool = False
    directory: Path | None = None


def run(asked: Request) -> int:
    """Shows the plan; the exit code."""
    try:
        plan = _make(asked)
        if asked.save is not None:
            report.save(plan, asked.save)
    except Failure as failure:
        if asked.as_json:
            sys.stdout.write(json.dumps(failure.to_json(), indent=2, ensure_ascii=False) + "\n")
            return failure.code
        return complain(failure)
    if asked.as_json:
        sys.stdout.write(report.text(plan))
    else:
        from trainium_eks.cli import render

        render.show(plan, no_color=asked.no_color)
    return FAILED if plan.failed else 0


def deploy(operation: str, stack: str, directory: Path | None, arguments: Sequence[str]) -> int:
    """Hands over to the real `pulumi`; comes back only when it cannot."""
    from trainium_eks.cli import deploy as real

    try:
        project = recording.find_project(directory)
        recording.check_stack(project, stack)
        missing = real.complaints()
        if missing:
            raise Failure(FAILED, "\n".join(missing))
        with _progress(f"Recording {stack}"):
            graph = recording.record(project, stack)
    except Failure as failure:
        return complain(failure)
    return real.run(operation, graph, project, arguments)


def _make(asked: Request) -> Plan:
    project = recording.find_project(asked.directory)
    recording.check_stack(project, asked.stack)
    if asked.against is None:
        with _progress(f"Recording {asked.stack}"):
            return report.make(recording.record(project, asked.stack))
    earlier = baseline.find(asked.against, project, asked.stack)
    # Both programs run in processes of their own, so two threads that wait for them are enough.
    with _progress(f"Recording {asked.stack}, now and as of {earlier.name}"), ThreadPoolExecutor(2) as pool:
        before = pool.submit(earlier.graph)
        now = pool.submit(recording.record, project, asked.stack)
        return report.against(report.make(now.result()), earlier.name, before.result())


@contextmanager
def _progress(message: str) -> Iterator[None]:
    """A spinner on stderr, where a person looks at it."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(message):
        yield
