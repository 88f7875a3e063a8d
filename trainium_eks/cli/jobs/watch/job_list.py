"""``trn jobs``: the namespace's jobs in a table, once or live."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from trainium_eks.cli.environment.plan.render import show_sections
from trainium_eks.cli.jobs.watch import render_watch, sagemaker_watch
from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.console import Console
from trainium_eks.client import reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import INTERRUPTED, Failure
from trainium_eks.client.notices import notice
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.jobs.sagemaker.service import LISTED_DAYS
from trainium_eks.jobs.watch.steps import Progress
from trainium_eks.kube.errors import ClusterError

LOOK_SECONDS = 2.0
"""Seconds between two pictures of a live view."""

RECENTLY_SECONDS = 3600.0
"""Seconds for which an ended job is listed without ``--all``."""


@dataclass(frozen=True)
class Listing:
    """The jobs at one moment."""

    namespace: str
    jobs: tuple[WatchedJob, ...]
    """Listed jobs."""
    hidden: int
    """Number of jobs that ended earlier, and are not listed."""
    progress: Mapping[str, Progress]
    now: datetime

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        shown = [
            {
                **job.to_json(),
                "seconds": round(job.seconds(self.now)),
                "progress": self.progress[job.name].to_json() if job.name in self.progress else None,
            }
            for job in self.jobs
        ]
        return {"schemaVersion": reading.SCHEMA_VERSION, "namespace": self.namespace, "jobs": shown}


def run(cluster: ClusterOptions, *, everything: bool, watch: bool) -> int:
    """Show the jobs; return the exit code.

    Args:
        cluster: options of the command.
        everything: also jobs that ended long ago.
        watch: repeat until Ctrl-C.
    """

    def work(session: Session) -> int:
        managed = sagemaker_watch.ListedJobs(session, _age(everything))
        if not watch:
            _show(cluster, _look(session, everything, managed))
            return 0
        try:
            return _live(cluster, session, everything, managed)
        except KeyboardInterrupt:
            return INTERRUPTED  # that is how it is ended

    return reading.run(cluster, work)


def run_all(cluster: ClusterOptions, *, everything: bool) -> int:
    """Show the jobs of all teams, one team after another; return the exit code.

    Args:
        cluster: options of the command; its namespace is not read.
        everything: also jobs that ended long ago.

    Raises:
        Failure: no team's jobs may be read.
    """
    refused: list[Failure] = []
    with open_session(cluster) as first:
        teams = first.outputs.namespaces
        for team in teams:
            # The local cloud has a researcher of each team; elsewhere the caller's own rights decide.
            opened = open_session(replace(cluster, namespace=team.name)) if first.is_local else nullcontext(first)
            with opened as session:
                try:
                    own = replace(session, namespace=team)
                    listing = _look(own, everything, sagemaker_watch.ListedJobs(own, _age(everything)))
                except Failure as failure:
                    refused.append(failure)
                    continue
            if cluster.as_json:
                output.write_json(listing.to_json(), indent=None)
            else:
                show_sections([Text(team.name, "bold"), _table(listing)], no_color=cluster.no_color)
    if len(refused) == len(teams):
        raise refused[0]
    for each in refused:
        notice(each.title)
    return 0


def _age(everything: bool) -> timedelta:
    return timedelta(days=LISTED_DAYS) if everything else timedelta(seconds=RECENTLY_SECONDS)


def _look(session: Session, everything: bool, managed: sagemaker_watch.ListedJobs) -> Listing:
    found = reading.jobs(session)
    now = reading.now()
    shown = [job for job in found if everything or job.ended is None or _is_recent(job, now)]
    progress = reading.progress_of_all(session, shown)
    hidden = len(found) - len(shown)
    shown += managed.at(now)
    shown.sort(key=lambda job: (job.created, job.name), reverse=True)
    return Listing(session.namespace.name, tuple(shown), hidden, progress, now)


def _is_recent(job: WatchedJob, now: datetime) -> bool:
    return job.ended is not None and (now - job.ended).total_seconds() < RECENTLY_SECONDS


def _show(cluster: ClusterOptions, listing: Listing) -> None:
    if cluster.as_json:
        output.write_json(listing.to_json())
    else:
        show_sections([_table(listing)], no_color=cluster.no_color)


def _table(listing: Listing) -> RenderableType:
    if not listing.jobs:
        return render_watch.none_yet(listing.namespace, listing.hidden)
    return render_watch.JobTable(listing.jobs, listing.progress, listing.now)


class Screen(Protocol):
    """Display of a live view."""

    def update(self, renderable: RenderableType) -> None:
        """Draw it in the place of the previous picture."""


@contextmanager
def screen(no_color: bool) -> Iterator[Screen | None]:
    """Yield a live view of the terminal; None where standard output is none."""
    if not sys.stdout.isatty():
        yield None
        return
    from rich.live import Live

    console = Console(no_color=no_color or None, highlight=False, emoji=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:

        class Refreshing:
            def update(self, renderable: RenderableType) -> None:
                live.update(renderable, refresh=True)

        yield Refreshing()


def _live(cluster: ClusterOptions, session: Session, everything: bool, managed: sagemaker_watch.ListedJobs) -> int:
    """Show the jobs until Ctrl-C; in a pipe, each new state. An unreachable server is retried."""
    last: Sequence[object] = ()
    with screen(cluster.no_color) as shown:
        while True:
            try:
                listing = _look(session, everything, managed)
                note = ""
            except ClusterError as error:
                listing, note = None, str(error).partition("\n")[0]
            if shown is not None and not cluster.as_json:
                when = f"{datetime.now():%H:%M:%S}, every {LOOK_SECONDS:g} s; Ctrl-C ends it"
                footer = Text(f"{note}; trying again" if note else when, "red" if note else "dim")
                shown.update(Group(_table(listing), Text(), footer) if listing else footer)
            elif listing is not None:
                state = [(job.name, job.state, job.running, job.restarts) for job in listing.jobs]
                if state != last:
                    _write_one(cluster, listing)
                    last = state
            time.sleep(LOOK_SECONDS)


def _write_one(cluster: ClusterOptions, listing: Listing) -> None:
    if cluster.as_json:
        output.write_json(listing.to_json(), indent=None)
    else:
        show_sections([_table(listing)], no_color=cluster.no_color)
