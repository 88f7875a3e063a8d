"""The status of one job for people."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainium_eks.cli.jobs.watch.render_watch import fix_line, steps_lines, tries
from trainium_eks.cli.shared.durations import duration
from trainium_eks.jobs.explain.reason import Cause, Reason
from trainium_eks.jobs.explain.room import some
from trainium_eks.jobs.watch import endings

if TYPE_CHECKING:
    from trainium_eks.cli.jobs.watch.job_status import JobStatus
    from trainium_eks.jobs.watch.measured import Measured

SHOWN_RESTARTS = 5
"""Number of restarts shown, the last."""

SOON_SECONDS = 3600.0
"""A Capacity Block that ends within this is shown as a warning: EC2 begins to end its instances 30 minutes before."""


def status(found: "JobStatus") -> RenderableType:
    """Return the status of a job, the most important part first."""
    return Group(_title(found), *_state(found), *_details(found))


def _title(found: "JobStatus") -> Text:
    job = found.job
    nodes = f"{job.nodes} node{'' if job.nodes == 1 else 's'}"
    each = job.ranks_per_node
    ranks = f" x {each} rank{'' if each == 1 else 's'}" if each else ""
    title = Text(job.name, "bold")
    parts = (job.kind, f"queue {job.queue}" if job.queue else "", f"{nodes}{ranks}")
    return title.append(f"  {' · '.join(filter(None, parts))}", "not bold dim")


def _state(found: "JobStatus") -> Iterable[RenderableType]:
    job = found.job
    age = duration(job.seconds(found.now))
    if found.waits is not None:
        yield from _reason(f"{job.state.lower()} for {age}: ", found.waits)
    elif job.ended is None:
        ready = f"{job.running} of {job.nodes} pods run"
        yield Text(f"{job.state.lower()} for {age}: {ready}", "green" if job.running == job.nodes else "yellow")
    else:
        yield from _ended(found, age)
    if found.trouble is not None:
        yield from _reason("but " if job.ended is None else "because ", found.trouble)


def _reason(start: str, reason: Reason) -> Iterable[RenderableType]:
    color = "yellow" if reason.cause in (Cause.STARTING, Cause.ENDING, Cause.QUEUE, Cause.CAPACITY) else "red"
    yield Text(f"{start}{reason.sentence}", color)
    if reason.fix:
        yield fix_line(reason.fix)


def _ended(found: "JobStatus", age: str) -> Iterable[RenderableType]:
    job = found.job
    first = endings.first_failure(found.exits)
    if job.state == "Completed":
        yield Text(f"completed after {age}", "green")
    elif first is None:
        yield Text(f"{job.state.lower()} after {age}", "red")
    else:
        node = f"node {first.node} ({first.pod})" if first.node is not None else first.pod
        rank = f", rank {found.failed_rank} there," if found.failed_rank is not None else ""
        yield Text(f"{job.state.lower()} after {age}: {node}{rank} ended first with {first.meaning}", "bold red")
        # The kubelet takes the message from the end of the log, which is shown below.
        last = " ".join(found.last_lines[-1].split()) if found.last_lines else ""
        if first.message and not (last and last in first.message):
            yield Text(first.message, "red")


def _details(found: "JobStatus") -> Iterable[RenderableType]:
    job = found.job
    if found.progress is not None:
        yield from steps_lines(found.progress)
    if found.measured is not None:
        yield _measured(found.measured)
    if found.nodes:
        yield Text(f"on {some(found.nodes, most=4)}", "dim")
    if job.restarts:
        yield Text(f"restarts: {tries(job)}", "yellow")
        for each in found.restarts[-SHOWN_RESTARTS:]:
            yield Padding(Text(f"{each.at:%H:%M:%S} {each.cause}"), (0, 0, 0, 2))
    if found.block_ends is not None:
        yield _block(found)
    others = [each for each in found.exits if each.code and each != endings.first_failure(found.exits)]
    if others and job.ended is not None:
        yield Text("then: " + some([f"{each.pod} {each.meaning}" for each in others], most=3), "dim")
    if found.last_lines:
        yield Text("last lines:", "bold")
        yield Padding(Text("\n".join(found.last_lines)), (0, 0, 0, 2))


def _measured(shown: "Measured") -> Text:
    line = Text(f"{100 * shown.useful_fraction:.1f} % of the time since it first ran was useful")
    if shown.better_seconds is not None and shown.interval_seconds is not None:
        line.append(
            f"; a checkpoint takes {duration(shown.save_seconds or 0)}: --checkpoint-seconds "
            f"{shown.better_seconds:g} would be better than {shown.interval_seconds:g}",
            "yellow",
        )
    return line


def _block(found: "JobStatus") -> Text:
    ends = found.block_ends
    assert ends is not None
    left = (ends - found.now).total_seconds()
    when = f"{ends:%Y-%m-%d %H:%M} UTC"
    if left <= 0:
        return Text(f"its Capacity Block ended at {when}", "bold red")
    style = "bold red" if left < SOON_SECONDS else ""
    return Text(f"its Capacity Block ends in {duration(left)} ({when}); EC2 ends its nodes 30 minutes before", style)
