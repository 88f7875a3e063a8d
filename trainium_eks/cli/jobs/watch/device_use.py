"""``trn top``: a live view of the use of a job's devices.

Read by neuron-monitor (or nvidia-smi) in the job's own pods: neuron-monitor's DaemonSet is in a namespace that a team
may not reach, and sees the devices of all teams (decision 41).
"""

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainium_eks.cli.environment.plan.render import show_sections
from trainium_eks.cli.jobs.watch import job_list
from trainium_eks.cli.jobs.watch.render_watch import steps_lines
from trainium_eks.cli.shared import output
from trainium_eks.client import reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, WRONG_USAGE, Failure
from trainium_eks.client.session import Session
from trainium_eks.jobs.explain.cluster_snapshot import is_running
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.jobs.watch.usage import NodeUsage, Reader, script
from trainium_eks.kube.cluster import Object, name_of
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.validation.parsing import parse_json

MOST_NODES = 16
"""Nodes that are read at the same time, each by a process in its pod."""

FIRST_SECONDS = 20.0
"""Time limit of the first picture: neuron-monitor needs some seconds before its first report."""

LOOK_SECONDS = 1.0

_BARS = " ▁▂▃▄▅▆▇█"


@dataclass
class _Node:
    """One node, read by a thread."""

    pod: str
    uid: str
    place: int
    name: str
    reader: Reader = field(default_factory=Reader)
    trouble: str = ""


def run(cluster: ClusterOptions, name: str | None, *, once: bool) -> int:
    """Show usage until Ctrl-C, or once; return the exit code.

    Args:
        cluster: options of the command.
        name: of the job; None for the newest that runs.
        once: one picture of all nodes.
    """

    def work(session: Session) -> int:
        job = _job(session, name)
        pods = [pod for pod in reading.in_rank_order(job, reading.pods_of(session, job)) if is_running(pod)]
        if not pods:
            raise Failure(FAILED, f"no pod of {job.name} runs: trn status {job.name} says why")
        nodes = _nodes(session, pods)
        try:
            return _watch(cluster, session, job, nodes, len(pods), once or cluster.as_json)
        except KeyboardInterrupt:
            return INTERRUPTED

    return reading.run(cluster, work)


def _job(session: Session, name: str | None) -> WatchedJob:
    if name is not None:
        return reading.find(session, name)
    running = [job for job in reading.jobs(session) if job.state == "Running" and job.is_gang]
    if not running:
        raise Failure(WRONG_USAGE, "no job runs: `trn jobs` lists all")
    return running[0]


def _nodes(session: Session, pods: Sequence[Object]) -> list[_Node]:
    nodes = [
        _Node(name_of(pod), str(pod["metadata"]["uid"]), at, str(pod["spec"].get("nodeName")))
        for at, pod in enumerate(pods[:MOST_NODES])
    ]
    for node, pod in zip(nodes, pods, strict=False):
        container = str(pod["spec"]["containers"][0]["name"])
        threading.Thread(target=_read, args=(session, node, container), daemon=True).start()
    return nodes


def _read(session: Session, node: _Node, container: str) -> None:
    if session.source.paths is not None:
        _read_here(session.source.paths.pods / node.uid, node, container)
        return
    from trainium_eks.kube import pod_channels

    try:
        for line in pod_channels.lines(session, node.pod, container, script()):
            node.reader.line(line)
        node.trouble = "it said no more"
    except pod_channels.NoWay as error:
        node.trouble = _explained(str(error))


def _read_here(directory: Path, node: _Node, container: str) -> None:
    """Read the use of a local pod's processes from this machine: they run here, as the same user.

    100 % is one CPU, as ``top`` has it.
    """
    import psutil

    known: dict[int, psutil.Process] = {}
    while True:
        try:
            state = parse_json((directory / "state.json").read_text(encoding="utf-8"))
            first = psutil.Process(int(state["containers"][container]["pid"]))
            found = {each.pid: each for each in (first, *first.children(recursive=True))}
        except (OSError, ValueError, KeyError, psutil.Error):
            node.trouble = "its containers are simulated, or have ended: no process of this machine is theirs"
            return
        known = {pid: known.get(pid, each) for pid, each in found.items()}
        busy, memory = {}, 0
        for at, each in enumerate(known.values()):
            with contextlib.suppress(psutil.Error):
                busy[at] = each.cpu_percent()
                memory += each.memory_info().rss
        node.reader.last = NodeUsage(busy, "process", 0.0, None, sum(busy.values()), memory)
        time.sleep(LOOK_SECONDS)


def _explained(why: str) -> str:
    if "exit code 3" in why:
        return "its image has neither neuron-monitor (aws-neuronx-tools) nor nvidia-smi"
    if "403" in why:
        return "you may not run commands in pods (pods/exec)"
    return why


def _watch(
    cluster: ClusterOptions, session: Session, job: WatchedJob, nodes: Sequence[_Node], total: int, once: bool
) -> int:
    if once:
        deadline = time.monotonic() + FIRST_SECONDS
        if session.is_local:
            time.sleep(2.5 * LOOK_SECONDS)  # how busy a process is shows between two looks
        while time.monotonic() < deadline and not all(node.reader.last or node.trouble for node in nodes):
            time.sleep(0.1)
        _show(cluster, session, job, nodes, total)
        return 0 if any(node.reader.last for node in nodes) else FAILED
    with job_list.screen(cluster.no_color) as shown:
        while True:
            if all(node.trouble for node in nodes):
                raise Failure(FAILED, f"{job.name}: {nodes[0].trouble}")
            if shown is not None:
                shown.update(Group(*_picture(session, job, nodes, total), Text("Ctrl-C ends it", "dim")))
            elif any(node.reader.last for node in nodes):
                _show(cluster, session, job, nodes, total)
            time.sleep(LOOK_SECONDS)


def _show(cluster: ClusterOptions, session: Session, job: WatchedJob, nodes: Sequence[_Node], total: int) -> None:
    if cluster.as_json:
        found = [
            {
                "pod": node.pod,
                "node": node.name,
                "place": node.place,
                "usage": node.reader.last.to_json() if node.reader.last else None,
                "trouble": node.trouble or None,
            }
            for node in nodes
        ]
        output.write_json({"schemaVersion": reading.SCHEMA_VERSION, "job": job.name, "nodes": found})
    else:
        show_sections([Group(*_picture(session, job, nodes, total))], no_color=cluster.no_color)


def _picture(session: Session, job: WatchedJob, nodes: Sequence[_Node], total: int) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(job.name, "bold")]
    try:
        progress = reading.progress_of(session, job, reading.pods_of(session, job))
        lines += [*steps_lines(progress)] if progress else []
    except ClusterError:
        pass  # usage is read by other connections, which may still be there
    lines.append(UsageTable(nodes))
    if total > len(nodes):
        lines.append(Text(f"the first {len(nodes)} of {total} nodes", "dim"))
    return lines


class UsageTable:
    """Table with a row for each node; each core as a bar, where there is room."""

    def __init__(self, nodes: Sequence[_Node]) -> None:
        self._nodes = nodes

    def __rich_console__(self, console: Console, options: object) -> list[RenderableType]:
        wide = getattr(options, "max_width", console.width) >= 90
        table = Table(box=None, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0), header_style="bold")
        headings = ("NODE", "BUSY", "EACH CORE", "DEVICE MEM", "CPU", "HOST MEM", "ERR")
        for heading in headings:
            table.add_column(heading, no_wrap=heading not in ("NODE", "EACH CORE"), overflow="fold")
        for node in self._nodes:
            usage = node.reader.last
            if usage is None:
                table.add_row(str(node.place), Text("-", "dim"), Text(node.trouble or "reading ...", "yellow"))
                continue
            table.add_row(
                str(node.place),
                _percent(usage.mean if usage.unit != "process" else None),
                Text(bars(usage.cores), "green"),
                _of(usage.device_bytes if usage.unit != "process" else None, usage.device_total_bytes),
                _percent(usage.host_percent),
                _of(usage.host_bytes, usage.host_total_bytes),
                Text(str(usage.errors), "bold red" if usage.errors else "dim"),
            )
        return [table]


def bars(cores: Mapping[int, float]) -> str:
    """Return a bar for each core, in their order, eight to a group."""
    drawn = [_BARS[min(int(busy / 100 * (len(_BARS) - 1) + 0.5), len(_BARS) - 1)] for _, busy in sorted(cores.items())]
    return " ".join("".join(drawn[at : at + 8]) for at in range(0, len(drawn), 8))


def _percent(value: float | None) -> Text:
    return Text("-", "dim") if value is None else Text(f"{value:.0f}%")


def _of(used: float | None, total: float | None) -> Text:
    if used is None:
        return Text("-", "dim")
    if total:
        return Text(f"{used / 1024**3:.0f}/{total / 1024**3:.0f}G")
    return Text(f"{used / 1024**3:.1f}G" if used >= 1024**3 else f"{used / 1024**2:.0f}M")
