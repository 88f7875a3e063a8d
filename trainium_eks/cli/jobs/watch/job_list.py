"""``trn jobs``: the namespace's jobs in a table, once or live."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from trainium_eks.cli.environment.plan.render import show_sections
from trainium_eks.cli.jobs.watch import reading, render_watch
from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.cluster_options import ClusterOptions
from trainium_eks.cli.shared.console import Console
from trainium_eks.cli.shared.failure import INTERRUPTED
from trainium_eks.cli.shared.session import Session
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.jobs.watch.steps import Progress
from trainium_eks.kube.errors import ClusterError

LOOK_SECONDS = 2.0
"""Between two looks of a live view."""

RECENTLY_SECONDS = 3600.0
"""How long a job that has ended is listed without ``--all``."""


@dataclass(frozen=True)
class Listing:
    """The jobs at one moment."""

    namespace: str
    jobs: tuple[WatchedJob, ...]
    """Those that are shown."""
    hidden: int
    """Ended longer ago."""
    progress: Mapping[str, Progress]
    now: datetime

    def to_json(self) -> dict[str, Any]:
        """For tools."""
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
    """Shows the jobs; the exit code.

    Args:
        cluster: whose.
        everything: also those that ended long ago.
        watch: go on until Ctrl-C.
    """

    def work(session: Session) -> int:
        if not watch:
            _show(cluster, _look(session, everything))
            return 0
        try:
            return _live(cluster, session, everything)
        except KeyboardInterrupt:
            return INTERRUPTED  # that is how it is ended

    return reading.run(cluster, work)


def _look(session: Session, everything: bool) -> Listing:
    found = reading.jobs(session)
    now = reading.now()
    shown = [job for job in found if everything or job.ended is None or _is_recent(job, now)]
    progress = reading.progress_of_all(session, shown)
    return Listing(session.namespace.name, tuple(shown), len(found) - len(shown), progress, now)


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
    """Where a live view is drawn."""

    def update(self, renderable: RenderableType) -> None:
        """Draws it in the place of what was there."""


@contextmanager
def screen(no_color: bool) -> Iterator[Screen | None]:
    """A live view of the terminal; None where standard output is none."""
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


def _live(cluster: ClusterOptions, session: Session, everything: bool) -> int:
    """Until Ctrl-C; in a pipe, each state that is new. A server that goes away is waited for."""
    last: Sequence[object] = ()
    with screen(cluster.no_color) as shown:
        while True:
            try:
                listing = _look(session, everything)
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
