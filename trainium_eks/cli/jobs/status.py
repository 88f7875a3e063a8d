"""``trn status``: one job: why it waits, where it is, how it ended, how busy its nodes are; or the environment, with
its present cost and its idle accelerators."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainium_eks.cli.shared import console, output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import Line, answer, lines, table
from trainium_eks.cli.shared.durations import duration
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client import job_status, reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.device_use import DeviceUse, NodeReading
from trainium_eks.client.failure import FAILED, INTERRUPTED, CommandError, as_typed
from trainium_eks.client.job_status import JobStatus
from trainium_eks.client.session import Session, open_session
from trainium_eks.diagnose.cluster_state import TEAM_KINDS
from trainium_eks.diagnose.reason import Cause, Reason
from trainium_eks.jobs.observed.free_capacity import name_some
from trainium_eks.jobs.watch.endings import first_failure
from trainium_eks.jobs.watch.idleness import GroupUse, uses
from trainium_eks.jobs.watch.steps import Progress
from trainium_eks.kube.api import list_kinds, readable
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.validation.problems import plural

LOOK_SECONDS = 2.0
SHOWN_RESTARTS = 5
SOON_SECONDS = 5400.0
"""A Capacity Block that ends within this is shown as a warning: EC2 begins to end its instances 30 minutes before,
those of UltraServers 60 minutes before."""
WIDE = 90

_BARS = " ▁▂▃▄▅▆▇█"

app = App()


@app.command(example="trn status bert-tiny")
@with_cluster_options
def status(
    job: Annotated[
        str | None,
        typer.Argument(help="Name of the job, as `trn jobs` shows it; default: the environment.", show_default=False),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update until the job ends, or Ctrl-C.")] = False,
    devices: Annotated[
        bool,
        typer.Option("--devices", help="Show how busy its nodes are, by neuron-monitor or nvidia-smi in its pods."),
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show one job: the reason and remedy while it is pending, its progress, or its end. Without a job: the
    environment's present cost, and its idle accelerators.

    Exit code: 0; 1 when the job failed, or stalls, or --devices could read no node; 2 when there is no such job.
    """
    if job is None and (watch or devices):
        raise typer.BadParameter(f"{'--watch' if watch else '--devices'} needs a job")

    with open_session(cluster) as session:
        if job is None:
            _environment(session, cluster)
            return
        found = job_status.look(session, job)
        use = None
        if devices:
            use = DeviceUse(session)
        if watch and found.job.ended is None:
            try:
                raise typer.Exit(_live(session, cluster, found, use))
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None  # that is how it is ended
        if use is not None:
            use.read(found.pods)
            use.await_first()
        console.answer(cluster, _document(found, use), _shown(found, use))
        unread = use is not None and not any(node.reader.last for node in use.nodes)
    raise typer.Exit(FAILED if found.failed or unread else 0)


def _live(session: Session, cluster: ClusterOptions, found: JobStatus, use: DeviceUse | None) -> int:
    """Show the job until it has ended; in a pipe, each new state. An unreachable server is retried."""
    last: object = None
    with console.screen(cluster) as draw:
        while True:
            if use is not None:
                use.read(found.pods)
            state = (found.job.state, found.job.running, found.job.restarts, found.waits, found.trouble, found.failed)
            if draw is not None:
                draw(_shown(found, use))
            elif state != last:
                if use is not None:
                    use.await_first()
                console.answer(cluster, _document(found, use), _shown(found, use), indent=None)
            last = state
            if found.job.ended is not None:
                return FAILED if found.failed else 0
            time.sleep(LOOK_SECONDS)
            try:
                found = job_status.look(session, found.job.name)
            except CommandError:
                if not cluster.as_json:
                    output.write(f"{found.job.name} was removed.\n")
                return FAILED
            except ClusterError:
                continue


def _document(found: JobStatus, use: DeviceUse | None) -> dict[str, Any]:
    return {**found.to_json(), "devices": [node.to_json() for node in use.nodes] if use else None}


def _shown(found: JobStatus, use: DeviceUse | None) -> RenderableType:
    """Return the status of a job, the most important part first."""
    job = found.job
    each = job.ranks_per_node
    ranks = f" x {plural(each, 'rank')}" if each else ""
    size = f"{plural(job.nodes, 'node')}{ranks}"
    kind = " · ".join(filter(None, (job.kind, f"queue {job.queue}" if job.queue else "", size)))
    title = Text(job.name, "bold").append(f"  {kind}", "not bold dim")
    parts: list[RenderableType] = [title, lines([*_state(found), *_details(found)])]
    if use is not None and use.nodes:
        parts.append(UsageTable(use.nodes))
        if job.running > len(use.nodes):
            parts.append(lines([(f"the first {len(use.nodes)} of {job.running} nodes", "dim")]))
    return Group(*parts)


def _state(found: JobStatus) -> Iterator[Line]:
    job = found.job
    age = duration(job.seconds(found.now))
    if found.waits is not None:
        yield from _reason(f"{job.state.lower()} for {age}: ", found.waits)
    elif job.ended is None:
        ready = f"{job.running} of {job.nodes} pods run"
        yield f"{job.state.lower()} for {age}: {ready}", "green" if job.running == job.nodes else "yellow"
    elif job.state == "Completed":
        yield f"completed after {age}", "green"
    else:
        yield from _failure(found, age)
    if found.trouble is not None:
        yield from _reason("but " if job.ended is None else "because ", found.trouble)


def _reason(start: str, reason: Reason) -> Iterator[Line]:
    is_usual = reason.cause in (Cause.STARTING, Cause.ENDING, Cause.QUEUE, Cause.CAPACITY)
    yield f"{start}{reason.sentence}", "yellow" if is_usual else "red"
    if reason.fix:
        yield _fix(reason.fix)


def _fix(fix: str) -> Line:
    return f"→ {as_typed(fix)}", "cyan"


def _failure(found: JobStatus, age: str) -> Iterator[Line]:
    state, first = found.job.state.lower(), first_failure(found.exits)
    if first is None:
        yield f"{state} after {age}", "red"
        return
    node = f"node {first.node} ({first.pod})" if first.node is not None else first.pod
    rank = f", rank {found.failed_rank} there," if found.failed_rank is not None else ""
    yield f"{state} after {age}: {node}{rank} ended first with {first.meaning}", "bold red"
    # The kubelet takes the message from the end of the log, which is shown below.
    last = " ".join(found.last_lines[-1].split()) if found.last_lines else ""
    if found.first_error:
        yield found.first_error, "red"
    elif first.message and not (last and last in first.message):
        yield first.message, "red"


def _details(found: JobStatus) -> Iterator[Line]:
    job = found.job
    if found.progress is not None:
        yield from steps_lines(found.progress)
    if found.measured is not None:
        measured, better = found.measured, ""
        if measured.better_seconds is not None and measured.interval_seconds is not None:
            better = (
                f"; a checkpoint takes {duration(measured.save_seconds or 0)}: --checkpoint-seconds "
                f"{measured.better_seconds:g} would be better than {measured.interval_seconds:g}"
            )
        useful = f"{100 * measured.useful_fraction:.1f} % of the time since it first ran was useful"
        yield f"{useful}{better}", "yellow" if better else ""
    if found.nodes:
        yield f"on {name_some(found.nodes, most=4)}", "dim"
    if job.restarts:
        yield f"restarts: {job.tries}", "yellow"
        yield from ((f"  {each.at:%H:%M:%S} {each.cause}", "") for each in found.restarts[-SHOWN_RESTARTS:])
    if found.block_ends is not None:
        left, when = (found.block_ends - found.now).total_seconds(), f"{found.block_ends:%Y-%m-%d %H:%M} UTC"
        ends = f"ends in {duration(left)} ({when}); EC2 ends its nodes 30 minutes before (UltraServers: 60)"
        ends = ends if left > 0 else f"ended at {when}"
        yield f"its Capacity Block {ends}", "bold red" if left < SOON_SECONDS else ""
    if found.extended is not None:
        present, tell = found.extended
        yield f"by EC2 its block ends at {present}, which its ranks do not know yet; to tell them: {tell}", "bold red"
    others = [each for each in found.exits if each.code and each != first_failure(found.exits)]
    if others and job.ended is not None:
        yield "then: " + name_some([f"{each.pod} {each.meaning}" for each in others], most=3), "dim"
    if found.last_lines:
        yield "last lines:", "bold"
        yield "  " + "\n".join(found.last_lines), ""


def steps_lines(where: Progress) -> Iterator[Line]:
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
    yield ", ".join(parts), ""
    if where.checkpoint_seconds is not None:
        at = f" at step {where.checkpoint_step}" if where.checkpoint_step is not None else ""
        yield f"last checkpoint {duration(where.checkpoint_seconds)} ago{at}", ""
    if where.diverged:
        yield f"the loss is {last.loss}: the run has diverged", "bold red"
    if where.stalled:
        usual = f", usually {where.seconds_per_step:.3g} s a step" if where.seconds_per_step is not None else ""
        yield f"stalled: no step for {duration(where.quiet_seconds)}{usual}", "bold red"


class UsageTable:
    """Table with a row for each node; each core as a bar, where there is room."""

    def __init__(self, nodes: Sequence[NodeReading]) -> None:
        self._nodes = nodes

    def __rich_console__(self, console: object, options: Any) -> Iterator[Table]:
        headings = ("NODE", "BUSY", "EACH CORE", "DEVICE MEM", "CPU", "HOST MEM", "ERR")
        made = table(*headings, folded=("NODE", "EACH CORE"), wide=options.max_width >= WIDE)
        for node in self._nodes:
            usage = node.reader.last
            if usage is None:
                made.add_row(str(node.place), Text("-", "dim"), Text(node.trouble or "reading ...", "yellow"))
                continue
            has_devices = usage.unit != "process"
            made.add_row(
                str(node.place),
                _percent(usage.mean if has_devices else None),
                Text(bars(usage.cores), "green"),
                memory(usage.device_bytes if has_devices else None, usage.device_total_bytes),
                _percent(usage.host_percent),
                memory(usage.host_bytes, usage.host_total_bytes),
                Text(str(usage.errors), "bold red" if usage.errors else "dim"),
            )
        yield made


def bars(cores: Mapping[int, float]) -> str:
    """Return a bar for each core, in their order, eight to a group."""
    drawn = [_BARS[min(int(busy / 100 * (len(_BARS) - 1) + 0.5), len(_BARS) - 1)] for _, busy in sorted(cores.items())]
    return " ".join("".join(drawn[at : at + 8]) for at in range(0, len(drawn), 8))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}%"


def memory(used: float | None, total: float | None) -> str:
    """Return bytes in use, of all where that is known."""
    if used is None:
        return "-"
    if total:
        return f"{used / 1024**3:.0f}/{total / 1024**3:.0f}G"
    return f"{used / 1024**3:.1f}G" if used >= 1024**3 else f"{used / 1024**2:.0f}M"


def _environment(session: Session, cluster: ClusterOptions) -> None:
    """Show node groups and costs, and the idle nodes; simulated nodes cost nothing, so there is nothing to mend."""
    outputs = session.outputs
    kinds = [(TEAM_KINDS[kind], kind) for kind in ("Node", "Pod", "Queue")]
    nodes, pods, queues = map(readable, list_kinds(session.api, kinds))
    found = uses(outputs.node_groups, nodes or (), pods=pods, queues=queues, catalogue=outputs.catalogue)
    hourly = sum(each.hourly_usd or 0.0 for each in found) + (outputs.other_hourly_usd or 0.0)
    unpriced = [each.group.instance_type for each in found if each.hourly_usd is None]
    # Stacks of an earlier release do not say what everything but the accelerator groups costs.
    unpriced += [] if outputs.other_hourly_usd is not None else ["everything else"]
    unknown = [*dict.fromkeys(unpriced)]
    made = table("GROUP", "TYPE", "NODES", "USD/HOUR", "IDLE", folded=("GROUP", "IDLE"))
    made.columns[2].justify = made.columns[3].justify = "right"
    now = reading.now()
    for each in found:
        usd = "not known" if each.hourly_usd is None else f"{each.hourly_usd:,.2f}"
        size = f"{each.nodes}/{each.group.max_size}"
        made.add_row(each.group.name, each.group.instance_type, size, usd, lines([_idle(each, now)]))
    if session.is_local:
        sums = [(f"simulated, and costs nothing; on AWS {hourly:,.2f} USD an hour at list prices", "dim")]
    else:
        sums = [(f"{hourly:,.2f} USD an hour now, at list prices", "")]
        sums += [(f"without {', '.join(unknown)}, whose price is not known", "yellow")] if unknown else []
    wasted = [line for each in found if each.idle for line in _wasted(each, is_local=session.is_local)]
    document = {
        "cluster": outputs.cluster_name,
        "hourlyUsd": round(hourly, 4),
        "unknownPrices": unknown,
        "otherHourlyUsd": outputs.other_hourly_usd,
        "groups": [each.to_json() for each in found],
    }
    answer(cluster, document, Group(lines([(outputs.cluster_name, "bold")]), made, lines([*sums, *wasted])))


def _idle(each: GroupUse, now: datetime) -> Line:
    if each.idle is None:
        return "not known: pods of other teams may not be read, and no idle guard notes it", "dim"
    if not each.idle:
        return "-", "dim"
    since = f", for up to {duration((now - each.since).total_seconds())}" if each.since else ", since when is not known"
    return f"{plural(each.idle, 'node')}{since}", "yellow"


def _wasted(each: GroupUse, *, is_local: bool) -> Iterator[Line]:
    idle = f"{each.group.name}: {each.idle} of {each.nodes} nodes idle"
    usd = "" if each.idle_hourly_usd is None else f"{each.idle_hourly_usd:,.2f} USD an hour"
    if is_local:
        yield f"{idle}{usd and f'; on AWS that would be {usd}'}", "dim"
        return
    yield f"{idle}{usd and f': {usd} for nothing'}", "yellow"
    fewer = max(each.nodes - (each.idle or 0), each.group.min_size)
    if fewer < each.nodes:
        yield _fix(f"trn scale {each.group.name} {fewer}")
