"""Jobs for people: a table of all, and lines about one."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainium_eks.cli.shared.durations import duration
from trainium_eks.client.failure import as_typed
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.jobs.watch.steps import Progress

WIDE = 92
"""Columns from which kind and queue have separate columns."""

_COLORS = {
    "Running": "green",
    "Completed": "dim",
    "Pending": "yellow",
    "Submitted": "yellow",
    "Restarting": "yellow",
    "Failed": "bold red",
    "Aborted": "red",
    "Terminated": "red",
}


class JobTable:
    """The table of jobs, as wide as there is room: where there is little, kind and queue stand below the name."""

    def __init__(self, found: Sequence[WatchedJob], progress: Mapping[str, Progress], now: datetime) -> None:
        self._found = found
        self._progress = progress
        self._now = now

    def __rich_console__(self, console: Console, options: object) -> Iterable[RenderableType]:
        width = getattr(options, "max_width", console.width)
        yield self._table(wide=width >= WIDE)

    def _table(self, *, wide: bool) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0), header_style="bold")
        table.add_column("JOB", overflow="fold", min_width=10)
        if wide:
            table.add_column("KIND", no_wrap=True)
            table.add_column("QUEUE", overflow="fold")
        table.add_column("STATE", no_wrap=True)
        for heading in ("NODES", "RUN", "RESTARTS" if wide else "TRY", "TIME", "STEP"):
            table.add_column(heading, no_wrap=True)
        for job in self._found:
            name = Text(job.name)
            if not wide:
                name.append(f"\n{' · '.join(filter(None, (job.kind, job.queue)))}", "dim")
            between = [Text(job.kind), Text(job.queue or "-")] if wide else []
            table.add_row(
                name,
                *between,
                Text(job.state, _COLORS.get(job.state, "")),
                Text(size(job)),
                Text(f"{job.running}/{job.nodes}"),
                Text(tries(job), "yellow" if job.restarts else ""),
                Text(duration(job.seconds(self._now))),
                _step(self._progress.get(job.name)),
            )
        return table


def size(job: WatchedJob) -> str:
    """Return nodes and the ranks on each, where the job says: ``2x32``."""
    return f"{job.nodes}x{job.ranks_per_node}" if job.ranks_per_node else str(job.nodes)


def tries(job: WatchedJob) -> str:
    """Return restarts so far, and the number after which the job fails: ``1/3``."""
    return str(job.restarts) if job.most_restarts is None else f"{job.restarts}/{job.most_restarts}"


def _step(where: Progress | None) -> Text:
    if where is None:
        return Text("-", "dim")
    total = f"/{where.last.total}" if where.last.total is not None else ""
    text = Text(f"{where.last.number}{total}")
    if where.stalled:
        text.append(" stalled", "bold red")
    elif where.diverged:
        text.append(" loss!", "bold red")
    return text


def steps_lines(where: Progress) -> Iterable[Text]:
    """Yield a run's progress, in a few lines."""
    last = where.last
    total = f" of {last.total}" if last.total is not None else ""
    parts = [f"step {last.number}{total}"]
    if last.loss is not None:
        parts.append(f"loss {last.loss:.4g}")
    if where.seconds_per_step is not None:
        parts.append(f"{where.seconds_per_step:.3g} s a step")
    if last.tokens_per_second is not None:
        parts.append(f"{last.tokens_per_second:,.0f} tokens/s")
    if where.left_seconds is not None and where.left_seconds > 0 and not where.stalled:
        parts.append(f"{duration(where.left_seconds)} left")
    yield Text(", ".join(parts))
    if where.checkpoint_seconds is not None:
        at = f" at step {where.checkpoint_step}" if where.checkpoint_step is not None else ""
        yield Text(f"last checkpoint {duration(where.checkpoint_seconds)} ago{at}")
    if where.diverged:
        yield Text(f"the loss is {last.loss}: the run has diverged", "bold red")
    if where.stalled:
        usual = f", usually {where.seconds_per_step:.3g} s a step" if where.seconds_per_step is not None else ""
        yield Text(f"stalled: no step for {duration(where.quiet_seconds)}{usual}", "bold red")


def fix_line(fix: str) -> Text:
    """Return a line with a remedy."""
    return Text(f"→ {as_typed(fix)}", "cyan")


def none_yet(namespace: str, ended: int) -> RenderableType:
    """Return the text in place of an empty table."""
    if ended:
        done = "1 has ended" if ended == 1 else f"{ended} have ended"
        return Group(Text(f"No job of {namespace} is under way; {done} (--all shows them)."))
    return Group(Text(f"{namespace} has no jobs."), fix_line("trn train --example gradient-sum"))
