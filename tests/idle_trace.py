"""Thirty days of an accelerator group: jobs arrive, the group grows for them, gangs run, the idle guard looks.

What is taken for granted: whole-node gangs of 1 to 8 nodes, mostly small ones; run times log-normal with a median of
3 hours and a long tail (mean 7.4 hours), as published of shared training clusters (Jeon et al., "Analysis of
Large-Scale Multi-Tenant GPU Clusters", 2019: many short jobs, most device hours in long ones); whoever submits a job
scales the group to what is missing for it, up to its largest size; whichever waiting gang fits starts, the oldest
first; a node is Ready 6 minutes after its launch and is paid for from its launch.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from trainium_eks.observe.idle.decision import Limits, Node, steps

GROUP = "trn1"
LARGEST = 16
READY_SECONDS = 360.0
DAYS = 30


@dataclass
class Job:
    """A gang."""

    arrives: float
    nodes: int
    seconds: float
    on: tuple[str, ...] = ()
    ends: float = 0.0


@dataclass
class Outcome:
    """Node seconds of a run, by what they were spent on."""

    working: float = 0.0
    booting: float = 0.0
    kept: float = 0.0
    """Idle while a gang waits for more nodes than are free: kept for it."""
    idle: float = 0.0
    """Idle while nobody waits."""
    touched: list[Job] = field(default_factory=list)
    """Jobs that lost a node."""
    waits: list[float] = field(default_factory=list)
    """Seconds from arrival to start."""

    @property
    def idle_share(self) -> float:
        """Of all that was paid."""
        return self.idle / (self.working + self.booting + self.kept + self.idle)


def arrivals(seed: int, *, per_day: float = 12.0) -> list[Job]:
    """Thirty days of jobs."""
    chance = random.Random(seed)
    found, now = [], 0.0
    while (now := now + chance.expovariate(per_day / 86400)) < DAYS * 86400:
        nodes = chance.choices((1, 2, 4, 8), weights=(4, 4, 2, 1))[0]
        found.append(Job(now, nodes, chance.lognormvariate(9.29, 1.34)))
    return found


def run(jobs: list[Job], limits: Limits, *, look_seconds: float, step_seconds: float = 120.0) -> Outcome:
    """What becomes of them."""
    return _Trace(jobs, limits, look_seconds).run(step_seconds)


class _Trace:
    def __init__(self, jobs: list[Job], limits: Limits, look_seconds: float) -> None:
        self._coming = sorted(jobs, key=lambda job: job.arrives)
        self._limits = limits
        self._look_seconds = look_seconds
        self._queue: list[Job] = []
        self._running: list[Job] = []
        self._nodes: dict[str, Node] = {}
        self._ready: dict[str, float] = {}
        self._names: Iterator[str] = (f"node-{number}" for number in range(10**6))
        self._outcome = Outcome()

    def run(self, step_seconds: float) -> Outcome:
        now, looked = 0.0, 0.0
        while self._coming or self._queue or self._running or self._nodes:
            self._arrive(now)
            self._running = [job for job in self._running if job.ends > now]
            self._start(now)
            if now - looked >= self._look_seconds:
                looked = now
                self._look(now)
                self._look(now)
            self._pay(now, step_seconds)
            now += step_seconds
            if self._limits.remove_seconds is None and not (self._coming or self._queue or self._running):
                break
        return self._outcome

    def _arrive(self, now: float) -> None:
        while self._coming and self._coming[0].arrives <= now:
            self._queue.append(self._coming.pop(0))

    def _start(self, now: float) -> None:
        for job in list(self._queue):
            busy = self._busy()
            free = [name for name, node in self._nodes.items() if name not in busy and not node.held]
            ready = [name for name in free if self._ready[name] <= now]
            if len(ready) >= job.nodes:
                job.on, job.ends = tuple(ready[: job.nodes]), now + job.seconds
                self._outcome.waits.append(now - job.arrives)
                self._running.append(job)
                self._queue.remove(job)
            else:
                self._grow(now, job.nodes - len(free))

    def _grow(self, now: float, nodes: int) -> None:
        for _ in range(min(nodes, LARGEST - len(self._nodes))):
            name = next(self._names)
            self._nodes[name] = Node(name, GROUP, busy=False)
            self._ready[name] = now + READY_SECONDS

    def _busy(self) -> set[str]:
        return {name for job in self._running for name in job.on}

    def _look(self, now: float) -> None:
        busy = self._busy()
        seen = [replace(node, busy=name in busy) for name, node in self._nodes.items() if self._ready[name] <= now]
        waiting = frozenset({GROUP}) if self._queue else frozenset[str]()
        change: dict[str, Callable[[Node], Node]] = {
            "mark": lambda node: replace(node, idle_since=now),
            "clear": lambda node: replace(node, idle_since=None, warned=False),
            "warn": lambda node: replace(node, warned=True),
            "hold": lambda node: replace(node, held=True),
            "release": lambda node: replace(node, held=False),
        }
        for step in steps(now, seen, waiting=waiting, minimum={}, limits=self._limits):
            name = step.node.name
            if step.action != "remove":
                self._nodes[name] = change[step.action](self._nodes[name])
                continue
            self._outcome.touched += [job for job in self._running if name in job.on]
            del self._nodes[name]

    def _pay(self, now: float, seconds: float) -> None:
        busy = self._busy()
        for name in self._nodes:
            if name in busy:
                self._outcome.working += seconds
            elif self._ready[name] > now:
                self._outcome.booting += seconds
            elif self._queue:
                self._outcome.kept += seconds
            else:
                self._outcome.idle += seconds
