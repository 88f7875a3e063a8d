"""Programs that only some stacks run, each as one process of the local cloud: their supply, start and wait."""

import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil
import yaml

from trainium_eks.kube.api import Api
from trainium_eks.local import toolchain
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane import processes
from trainium_eks.local.control_plane.processes import Running
from trainium_eks.local.objects.apply import Objects
from trainium_eks.local.paths import Paths
from trainium_eks.local.patience import Patience
from trainium_eks.local.toolchain import go_command, sources, store
from trainium_eks.plan.graph import Graph

READY_SECONDS = 300.0
"""Time limit for a part to answer: it takes seconds on an idle machine."""


@dataclass(frozen=True)
class PartSource:
    """The program and manifests of a part, or the reason why it is missing."""

    program: Path | None = None
    manifests: tuple[Mapping[str, Any], ...] = ()
    """The manifests of its module that are applied here, unchanged."""
    missing: str = ""


class PartOfStack(ABC):
    """A part in a stack with a running control plane. One thread at a time."""

    part: ClassVar[toolchain.Bundle]
    """The part's program in the toolchain, with the name of its process."""

    manifests: ClassVar[tuple[str, ...]]
    """Files of its module, of one YAML document each, that are applied here."""

    def __init__(self, graph: Graph, paths: Paths, waiting: Callable[[str], None]) -> None:
        self._graph = graph
        self._paths = paths
        self._waiting = waiting
        self._api = Api.connect(paths.kubeconfig)
        self._objects = Objects(self._api, waiting)
        self._home = paths.root / self.part.name

    @staticmethod
    @abstractmethod
    def is_wanted(graph: Graph) -> bool:
        """Return whether a stack installs the part."""

    @abstractmethod
    def run(self, found: PartSource) -> str:
        """Start the part, or restart it for another program, wait for its answer, and return the note for the user."""

    @abstractmethod
    def remove(self) -> None:
        """End the part, and delete the objects that were made for it."""

    def _kept(self, program: Path) -> Running | None:
        """Return the process that stays; end a process of another program."""
        before = running(self._paths, self.part.name)
        if before is None or is_current(before, program):
            return before
        processes.stop(self._paths, [self.part.name])
        return None

    @classmethod
    def provided(cls, graph: Graph, progress: Callable[[str], None], environment: Mapping[str, str]) -> PartSource:
        """Return the program and manifests for a stack that installs the part."""
        if not cls.is_wanted(graph):
            return PartSource()
        if toolchain.is_off(cls.part, environment):
            return PartSource(missing=f"{cls.part.switch} is off")
        try:
            [program] = toolchain.provide(
                cls.part, progress=progress, environment=environment, patience_seconds=toolchain.PATIENCE_SECONDS
            ).values()
            return PartSource(program.path, cls._read_manifests(environment))
        except toolchain.UnavailableError as error:
            return PartSource(missing=f"{cls.part.name} could not be found or built ({error.last})")
        except (go_command.GoError, store.UnwritableError) as error:
            return PartSource(missing=f"its definitions cannot be had: {str(error).splitlines()[0]}")

    @classmethod
    def _read_manifests(cls, environment: Mapping[str, str]) -> tuple[Mapping[str, Any], ...]:
        directory = Path(tempfile.gettempdir())
        with store.writing(directory), tempfile.TemporaryDirectory(prefix="trn-part-") as scratch:
            base = sources.source(cls.part, Path(scratch), environment)
            return tuple(yaml.safe_load((base / file).read_text(encoding="utf-8")) for file in cls.manifests)

    @classmethod
    def settle(cls, graph: Graph, paths: Paths, found: PartSource, phase: Callable[[str], None]) -> list[str]:
        """Bring the part in line with the stack's program (it runs, or is gone), and return the notes for the user."""
        if cls.is_wanted(graph):
            phase(f"Starting {cls.part.name}")
            return [cls(graph, paths, phase).run(found)]
        if running(paths, cls.part.name):
            cls(graph, paths, phase).remove()
        return []


def running(paths: Paths, name: str) -> Running | None:
    """Return a part's process, if it runs."""
    return next((each for each in processes.running(paths) if each.name == name), None)


def is_current(process: Running, program: Path) -> bool:
    """Return whether a process runs the present program."""
    return process.command[0] == str(program) and program.stat().st_mtime <= process.started


def port(process: Running, flag: str) -> int:
    """Return the port that a process was started with: the end of ``--flag=…``."""
    found = next(re.search(r"(\d+)$", each) for each in process.command if each.startswith(f"--{flag}="))
    assert found is not None, "it was started here"
    return int(found[1])


def await_ready(
    paths: Paths, title: str, started: Sequence[Running], not_ready: Callable[[], str], waiting: Callable[[str], None]
) -> None:
    """Wait until started processes answer: until there is no reason to wait.

    The error has the end of the logs: a process ends, or they do not answer in time.
    """
    patience = Patience(READY_SECONDS, waiting)
    while waits_for := not_ready():
        for each in started:
            if processes.exit_code(each) is not None or not psutil.pid_exists(each.pid):
                raise LocalCloudError(f"{each.name} has ended:\n{processes.last_lines(paths, each.name)}")
        if not patience.goes_on(waits_for):
            logs = "\n".join(f"{each.name}:\n{processes.last_lines(paths, each.name)}" for each in started)
            raise LocalCloudError(f"{title} does not answer after {READY_SECONDS:.0f} s: {waits_for}\n{logs}")
