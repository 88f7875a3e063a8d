"""Output of ``trn local up`` for people: the progress, and the result."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.status import Status
from rich.table import Table
from rich.text import Text

from trainium_eks.cli.environment import doctor
from trainium_eks.cli.shared.console import Console, show_sections
from trainium_eks.cli.shared.markdown import Markdown
from trainium_eks.cli.shared.plan_page import outputs
from trainium_eks.cli.shared.report import sections
from trainium_eks.client.failure import as_typed
from trainium_eks.local.changes import Change
from trainium_eks.local.control_plane.control_plane import StartResult
from trainium_eks.local.deployment import Result
from trainium_eks.local.events import Done, Event, Failed, Working
from trainium_eks.model import finding
from trainium_eks.operate.review.words import short_type
from trainium_eks.operate.verify.verify import HEADINGS
from trainium_eks.plan.graph import Graph

_MARKS = {
    Change.CREATED: ("+", "green"),
    Change.UPDATED: ("~", "yellow"),
    Change.REPLACED: ("±", "yellow"),
    Change.DELETED: ("-", "red"),
}


@contextmanager
def reporter(*, no_color: bool = False) -> Iterator["ConsoleReporter"]:
    """Yield a reporter that shows an ``up`` on stderr."""
    console = Console(stderr=True, no_color=no_color or None, highlight=False, emoji=False)
    # A line that changes is for a terminal; elsewhere each phase has a line.
    status = console.status("Beginning") if console.is_terminal else None
    with status or nullcontext():
        yield ConsoleReporter(console, status)


class ConsoleReporter:
    """Reporter for a console. Each change of a real resource gets a line."""

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console = console
        self._status = status
        self._total = 0
        self._done = 0
        self._working: dict[str, str] = {}

    def phase(self, text: str) -> None:
        """Show the present phase."""
        if self._status is not None:
            self._status.update(Text(text))
        else:
            self._print(Text(text, "dim"))

    def planned(self, graph: Graph) -> None:
        """Set the number of resources."""
        self._total = sum(resource.custom for resource in graph.resources)

    def started(self, started: StartResult) -> None:
        """Show the version and address of Kubernetes."""
        if started.started:
            line = f"Kubernetes {started.version} at {started.server}, started in {started.seconds:.1f} s"
        else:
            line = f"Kubernetes {started.version} at {started.server} is already running"
        self._print(Text(line, "bold"))

    def event(self, event: Event) -> None:
        """Show an event of a resource."""
        subject = _subject(event.urn)
        match event:
            case Working():
                self._working[event.urn] = f"{subject}: {event.reason}" if event.reason else subject
            case Done(change=Change.KEPT):
                self._print(Text(f"  {subject} is kept (retain on delete)", "dim"))
            case Done():
                self._finish(event.urn)
                self._changed(event.urn, event.kind, event.change, event.not_installed)
            case Failed():
                self._finish(event.urn)
                self._print(Text(f"✗ {subject}", "bold red"))
        self._show_progress()

    def _print(self, line: Text) -> None:
        # The terminal wraps long lines; a log should have them whole.
        self._console.print(line, soft_wrap=True)

    def _finish(self, urn: str) -> None:
        self._done += 1
        self._working.pop(urn, None)

    def _changed(self, urn: str, kind: str, change: Change, not_installed: str) -> None:
        if kind == "simulated" or (change is Change.SAME and not not_installed):
            return
        if not_installed:
            # The whole reason, with its detail in brackets, is printed at the end, once for all that share it.
            short = f"  not installed: {not_installed.partition(' (')[0]}"
            line = Text("· ", "yellow").append(_subject(urn)).append(short, "yellow")
        else:
            mark, color = _MARKS[change]
            line = Text(f"{mark} ", color).append(_subject(urn), "default")
        self._print(line)

    def _show_progress(self) -> None:
        if self._status is None:
            return
        what = next(reversed(self._working.values()), "")
        count = f"{self._done} of {self._total}" if self._done <= self._total else str(self._done)
        self._status.update(Text(f"{count}  {what}", overflow="ellipsis", no_wrap=True))


def show(result: Result, stack: str, found: finding.Report | None, *, no_color: bool = False) -> None:
    """Print the result of an ``up``, its outputs and the checks after it (None for a program without outputs for the
    checks)."""
    show_sections(_sections(result, stack, found), no_color=no_color)


def _sections(result: Result, stack: str, found: finding.Report | None) -> Iterable[RenderableType]:
    yield _header(result)
    if result.not_installed:
        rows = [(name, why) for name, why in sorted(result.not_installed.items())]
        yield Group(Text("Not installed on this machine", "bold underline"), _rows(rows, "yellow"))
    if result.notes:
        yield Group(*(Text(note, "dim") for note in dict.fromkeys(result.notes)))
    yield Markdown("\n".join(outputs(_with_outputs(result))))
    if found is not None and found.failed:
        yield from sections(found.of(finding.Status.FAIL), HEADINGS)
    yield _closing(result, stack, found)


def _header(result: Result) -> RenderableType:
    graph, nodes = result.graph, _count(result, "nodes")
    region = str(graph.config.get("region", ""))
    title = " · ".join(filter(None, (graph.project, graph.stack, region, "on this machine")))
    real = f"Kubernetes {result.started.version}: API server, etcd, controllers, scheduler; Helm"
    simulated = [f"AWS ({_count(result, 'simulated')} resources)"] if _count(result, "simulated") else []
    simulated += ["nodes (their pods are Running, but only those with local/ images run)"] if nodes else []
    simulated += [f"what {_count(result, 'addon')} EKS add-ons run"] if _count(result, "addon") else []
    if result.real_volcano:
        real += "; Volcano's scheduler, controllers and webhooks"
    rows = [("real", real), ("simulated", ", ".join(simulated) or "nothing")]
    return Group(Text(title, "bold"), _rows(rows))


def _closing(result: Result, stack: str, found: finding.Report | None) -> RenderableType:
    option = "" if stack == "local" else f" --stack {stack}"
    if result.unchanged:
        said = f"✓ Nothing has changed: {stack} is as its program says ({result.seconds:.1f} s)."
    else:
        total: Counter[str] = Counter()
        for counts in result.changes.values():
            total.update(counts)
        parts = [f"{total[change]} {change.value}" for change in Change if total[change]]
        said = (
            f"✓ {stack} is as its program says: {', '.join(parts) or 'no resource changed'} ({result.seconds:.1f} s)."
        )
    lines = [Text(said, "bold green"), *([doctor.summary(found, stack)] if found is not None else [])]
    next_ = {
        "look": f"trn local kubectl{option} get nodes -L node.kubernetes.io/instance-type",
        "check": f"trn doctor --stack {stack}",
        "end": f"trn local down{option}",
    }
    return Group(*lines, _rows((what, as_typed(command)) for what, command in next_.items()))


def _with_outputs(result: Result) -> Graph:
    """Return the graph with this machine's outputs; the kubeconfig holds a key, which no terminal needs to show."""
    shown = dict(result.outputs)
    if "kubeconfig" in shown:
        shown["kubeconfig"] = as_typed("(`trn kubeconfig --admin` prints it)")
    return replace(result.graph, outputs=shown)


def _count(result: Result, kind: str) -> int:
    return sum(count for change, count in result.changes.get(kind, {}).items() if change != Change.DELETED)


def _rows(rows: Iterable[tuple[str, str]], style: str = "default") -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("name")
    table.add_column("what", overflow="fold")
    for name, what in rows:
        table.add_row(Text(name, style), Text(what))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _subject(urn: str) -> str:
    """Return the short type and the name of a URN: ``Namespace  trn-local-training-namespace``."""
    *_, types, name = urn.split("::")
    type_ = types.rpartition("$")[2]
    return f"{short_type(type_)}  {name}"
