"""The use of the devices of a job's nodes, as it is now.

Read by neuron-monitor (or nvidia-smi) in the job's own pods: neuron-monitor's DaemonSet is in a namespace that a team
may not reach, and sees the devices of all teams (decision 41).
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from trainium_eks.client.session import Session
from trainium_eks.jobs.watch.usage import NodeUsage, Reader, script
from trainium_eks.kube import pod_channels
from trainium_eks.kube.cluster import Object, is_running, name_of
from trainium_eks.model.validation.parsing import parse_json

MOST_NODES = 16
"""Nodes that are read at the same time, each by a process in its pod."""

FIRST_SECONDS = 20.0
"""Time limit of the first picture: neuron-monitor needs some seconds before its first report."""

LOOK_SECONDS = 1.0


@dataclass
class NodeReading:
    """One node of a job, read by a thread."""

    pod: str
    uid: str
    place: int
    name: str
    reader: Reader = field(default_factory=Reader)
    trouble: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        usage = self.reader.last.to_json() if self.reader.last else None
        return {
            "pod": self.pod, "node": self.name, "place": self.place, "usage": usage, "trouble": self.trouble or None,
        }  # fmt: skip


class DeviceUse:
    """Readers of a job's nodes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.nodes: list[NodeReading] = []
        """The nodes that are read, in the order of ranks."""

    def read(self, pods: Sequence[Object]) -> None:
        """Read the nodes of these pods, in the order of ranks, from now on; nodes that are read already go on."""
        known = {node.uid: node for node in self.nodes}
        self.nodes = []
        for place, pod in enumerate([pod for pod in pods if is_running(pod)][:MOST_NODES]):
            uid = str(pod["metadata"]["uid"])
            node = known.get(uid)
            if node is None:
                node = NodeReading(name_of(pod), uid, place, str(pod["spec"].get("nodeName")))
                container = str(pod["spec"]["containers"][0]["name"])
                threading.Thread(target=self._read, args=(node, container), daemon=True).start()
            self.nodes.append(node)

    def await_first(self) -> None:
        """Wait until each node has said something, or cannot be read, or for a while."""
        deadline = time.monotonic() + FIRST_SECONDS
        if self._session.is_local and self.nodes:
            time.sleep(2.5 * LOOK_SECONDS)  # how busy a process is shows between two looks
        while time.monotonic() < deadline and not all(node.reader.last or node.trouble for node in self.nodes):
            time.sleep(0.1)

    def _read(self, node: NodeReading, container: str) -> None:
        if self._session.source.paths is not None:
            read_here(self._session.source.paths.pods / node.uid, node, container)
            return
        try:
            for line in pod_channels.lines(self._session.place(node.pod), container, script()):
                node.reader.line(line)
            node.trouble = "it said no more"
        except pod_channels.NoChannelError as error:
            node.trouble = str(error)
            if "exit code 3" in node.trouble:
                node.trouble = "its image has neither neuron-monitor (aws-neuronx-tools) nor nvidia-smi"
            elif "403" in node.trouble:
                node.trouble = "you may not run commands in pods (pods/exec)"


def read_here(directory: Path, node: NodeReading, container: str) -> None:
    """Read the use of a local pod's processes from this machine: they run here, as the same user. 100 % is one CPU."""
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
