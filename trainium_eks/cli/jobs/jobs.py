"""``trn jobs``: the namespace's jobs in a table, once or live."""

import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainium_eks.cli.shared import console
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import lines, table
from trainium_eks.cli.shared.durations import duration
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client import reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import INTERRUPTED, CommandError, as_typed
from trainium_eks.client.notices import notice
from trainium_eks.client.sagemaker_list import LISTED_DAYS, ListedJobs
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.observed.watched import WatchedJob
from trainium_eks.jobs.watch.steps import Progress
from trainium_eks.kube.errors import ClusterError

LOOK_SECONDS = 2.0
RECENTLY = timedelta(hours=1)
"""Time for which an ended job is listed without ``--all``."""
WIDE = 92

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

app = App()


@app.command(example="trn jobs --namespace training")
@with_cluster_options
def jobs(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include jobs that ended more than an hour ago.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show changes as they happen, until Ctrl-C.")] = False,
    all_teams: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show the jobs of all teams whose jobs you may read.")
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """List your team's jobs, or all teams': state, nodes and ranks, restarts, last step.

    With --watch --json, one document a line for each change; with --all-namespaces one for each team.
    """
    if all_teams and (watch or cluster.namespace):
        raise typer.BadParameter(f"--all-namespaces excludes --{'watch' if watch else 'namespace'}")

    with open_session(cluster) as session:
        if all_teams:
            _all_teams(session, cluster, everything)
        elif not watch:
            listing = _look(session, everything)
            console.answer(cluster, listing.to_json(), listing.shown())
        else:
            try:
                _live(session, cluster, everything)
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None  # that is how it is ended


@dataclass
class _Listing:
    """The jobs at one moment."""

    namespace: str
    jobs: list[WatchedJob]
    hidden: int
    """Number of jobs that ended earlier, and are not listed."""
    progress: Mapping[str, Progress]
    now: datetime

    def to_json(self) -> dict[str, Any]:
        listed = [
            {
                **job.to_json(),
                "seconds": round(job.seconds(self.now)),
                "progress": self.progress[job.name].to_json() if job.name in self.progress else None,
            }
            for job in self.jobs
        ]
        return {"namespace": self.namespace, "jobs": listed}

    def shown(self) -> RenderableType:
        if self.jobs:
            return _JobTable(self)
        if self.hidden:
            done = "1 has ended" if self.hidden == 1 else f"{self.hidden} have ended"
            return lines([(f"No job of {self.namespace} is under way; {done} (--all shows them).", "")])
        fix = as_typed("→ trn train --example gradient-sum")
        return lines([(f"{self.namespace} has no jobs.", ""), (fix, "cyan")])


class _JobTable:
    """The table of jobs, as wide as there is room: in a narrow one, kind and queue are on a line below the name."""

    def __init__(self, listing: _Listing) -> None:
        self._listing = listing

    def __rich_console__(self, console: object, options: Any) -> Iterable[Table]:
        wide = options.max_width >= WIDE
        apart = ("KIND", "QUEUE") if wide else ()
        headings = ("JOB", *apart, "STATE", "NODES", "RUN", "RESTARTS" if wide else "TRY", "TIME", "STEP")
        made = table(*headings, folded=("JOB", "QUEUE"), wide=wide)
        made.columns[0].min_width = 10
        for job in self._listing.jobs:
            name = Text(job.name)
            if not wide:
                name.append(f"\n{' · '.join(filter(None, (job.kind, job.queue)))}", "dim")
            made.add_row(
                name,
                *((Text(job.kind), Text(job.queue or "-")) if wide else ()),
                Text(job.state, _COLORS.get(job.state, "")),
                Text(f"{job.nodes}x{job.ranks_per_node}" if job.ranks_per_node else str(job.nodes)),
                Text(f"{job.running}/{job.nodes}"),
                Text(job.tries, "yellow" if job.restarts else ""),
                Text(duration(job.seconds(self._listing.now))),
                _step(self._listing.progress.get(job.name)),
            )
        yield made


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


def _look(session: Session, everything: bool, managed: ListedJobs | None = None) -> _Listing:
    found, now = reading.jobs(session), reading.now()
    shown = [job for job in found if everything or job.ended is None or now - job.ended < RECENTLY]
    progress, hidden = reading.progress_of_all(session, shown), len(found) - len(shown)
    shown += (managed or _managed(session, everything)).at(now)
    shown.sort(key=lambda job: (job.created, job.name), reverse=True)
    return _Listing(session.namespace.name, shown, hidden, progress, now)


def _managed(session: Session, everything: bool) -> ListedJobs:
    return ListedJobs(session, timedelta(days=LISTED_DAYS) if everything else RECENTLY)


def _all_teams(first: Session, cluster: ClusterOptions, everything: bool) -> None:
    """Show the jobs of one team after another; fail where no team's jobs may be read."""
    refused: list[CommandError] = []
    for team in first.outputs.namespaces:
        # The local cloud has a researcher of each team; elsewhere the caller's own rights decide.
        opened = open_session(replace(cluster, namespace=team.name)) if first.is_local else nullcontext(first)
        with opened as session:
            try:
                listing = _look(replace(session, namespace=team), everything)
            except CommandError as failure:
                refused.append(failure)
                continue
        console.answer(cluster, listing.to_json(), Text(team.name, "bold"), listing.shown(), indent=None)
    if len(refused) == len(first.outputs.namespaces):
        raise refused[0]
    for each in refused:
        notice(each.title)


def _live(session: Session, cluster: ClusterOptions, everything: bool) -> None:
    """Show the jobs until Ctrl-C; in a pipe, each new state. An unreachable server is retried."""
    managed, last = _managed(session, everything), None
    with console.screen(cluster) as draw:
        while True:
            listing, footer = None, (f"{datetime.now():%H:%M:%S}, every {LOOK_SECONDS:g} s; Ctrl-C ends it", "dim")
            try:
                listing = _look(session, everything, managed)
            except ClusterError as error:
                footer = (f"{str(error).partition(chr(10))[0]}; trying again", "red")
            if draw is not None:
                draw(Group(*([listing.shown(), ""] if listing else []), console.lines([footer])))
            elif listing is not None:
                state = [(job.name, job.state, job.running, job.restarts) for job in listing.jobs]
                if state != last:
                    console.answer(cluster, listing.to_json(), listing.shown(), indent=None)
                last = state
            time.sleep(LOOK_SECONDS)
