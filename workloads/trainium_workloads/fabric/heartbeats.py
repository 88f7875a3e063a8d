"""Heartbeats of all ranks beside their collectives, the search for a rank that is dead or late, and the common end.

They are in a ``TCPStore`` beside the backend's, which answers while a collective hangs, on every backend. A thread of
each rank keeps its heartbeat; rank 0's thread judges. SIGTERM, which a launcher sends when a rank died, waits for the
judgement.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Never

import torch.distributed as dist

from trainium_workloads.fabric.node import Finding
from trainium_workloads.training.refusal import EXIT_CODE, FILE

BEAT_SECONDS = 0.5
"""Time between two heartbeats; of more than 250 ranks longer, for rank 0 reads all of them."""
_SILENT_AT_END_SECONDS = 10.0
"""Silence that counts once the launcher or an error ended the gang: a dead rank is the likely cause."""
_JUDGEMENT_SECONDS = 25.0
"""Longest wait for rank 0's judgement after SIGTERM: launchers kill after 30 s."""
_FAREWELL_SECONDS = 10.0
_DEPUTY_SECONDS = 5.0
"""Time for the deputy's report: the first rank that fails makes its launcher end the others."""
_STORE_SECONDS = 60.0

Conclude = Callable[[list[Finding]], int]
"""Writes the report with these further findings; returns the exit code of all ranks."""


def hold_sigterm() -> None:
    """Keep SIGTERM from ending this process or its later threads until :class:`Heartbeats` waits for it. Call this
    first."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


class Heartbeats:
    """A rank's heartbeat, and its view of the others. ``share`` returns rank 0's text in all ranks; after
    ``silent_seconds`` of silence a rank counts as dead; ``conclude`` is called once, in rank 0, or in its deputy when
    rank 0 is dead."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        ranks_per_node: int,
        share: Callable[[str], str],
        silent_seconds: float,
        conclude: Conclude,
    ) -> None:
        self._rank, self._world_size, self._ranks_per_node = rank, world_size, ranks_per_node
        self._silent, self._conclude = silent_seconds, conclude
        host, timeout = os.environ.get("MASTER_ADDR", "localhost"), timedelta(seconds=_STORE_SECONDS)
        port = 0
        for is_master in (True, False):
            if is_master == (rank == 0):
                self._store: Any = dist.TCPStore(host, port, None, is_master, timeout, wait_for_workers=False)
                port = self._store.port
            port = int(share(str(port))) if is_master else port
        now = time.monotonic()
        self._stage, self._since, self._limit, self._name = 0, now, float("inf"), "start"
        self._asked_to_end = self._failed = float("inf")
        self._ending, self._pause = threading.Lock(), max(BEAT_SECONDS, world_size / 500)
        # As rank 0 saw them last: each rank's beat, and the time when it changed.
        self._beats, self._changed, self._looked = [""] * world_size, [now] * world_size, now
        self._store.set(f"at/{rank}", "0")
        for work in (self._keep, self._listen):
            threading.Thread(target=work, daemon=True).start()

    def enter(self, name: str, limit: float) -> None:
        """Note that this rank begins a stage, with its name in words and its longest time in seconds."""
        self._stage, self._since, self._limit, self._name = self._stage + 1, time.monotonic(), limit, name
        self._store.set(f"at/{self._rank}", str(self._stage))

    def post(self, key: str, text: str) -> None:
        """Publish a text."""
        self._store.set(key, text)

    def collect(self, keys: Sequence[str]) -> list[str]:
        """Return the texts, as soon as all are there; rank 0's thread finds a rank that keeps a text back."""
        while not self._store.check(list(keys)):
            time.sleep(0.05)
        return [self._get(key) for key in keys]

    def fail(self, text: str) -> Never:
        """Report this rank's error and wait for the end: another rank's death is the likelier cause."""
        with suppress(RuntimeError):
            self._store.compare_set("error", "", f"{self._rank} {text}")  # the first error stays
        time.sleep(self._silent + _JUDGEMENT_SECONDS + _FAREWELL_SECONDS)
        self._leave(1)

    def end(self, findings: list[Finding]) -> Never:
        """Conclude in rank 0, wait for that in the others."""
        self._limit = float("inf")
        if self._rank == 0:
            self._judge(findings)
        while True:
            time.sleep(60)  # the thread ends the process

    def _keep(self) -> None:
        """Keep this rank's heartbeat, follow the verdict, and judge in rank 0."""
        count = 0
        while True:
            count += 1
            try:
                self._store.set(f"beat/{self._rank}", str(count))
                if self._rank == 0:
                    self._look()
                elif code := self._get("verdict"):
                    self._store.add("bye", 1)
                    self._leave(int(code))
            except RuntimeError:  # of the store
                if self._rank:
                    self._without_rank_0()
            time.sleep(self._pause)

    def _listen(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self._asked_to_end = time.monotonic()
        time.sleep(_JUDGEMENT_SECONDS)
        self._leave(143)

    def _look(self) -> None:
        """Judge the gang: gone ranks first, for they are the cause of all else."""
        now = time.monotonic()
        if now - self._looked > 4 * self._pause:
            # This thread itself was held up, by a load that may have held the others up as well.
            self._changed = [each + now - self._looked for each in self._changed]
        self._looked = now
        for rank, last in enumerate(self._beats):
            beat = self._get(f"beat/{rank}")
            if beat != last:
                self._beats[rank], self._changed[rank] = beat, now
        error = self._get("error")
        self._failed = min(self._failed, now) if error else self._failed
        ended = min(self._failed, self._asked_to_end)
        silent = min(self._silent, _SILENT_AT_END_SECONDS) if ended < now else self._silent
        if quiet := [rank for rank, changed in enumerate(self._changed) if now - changed > silent]:
            said = f"is gone: no heartbeat for {silent:.0f} s, in {self._name}"
            self._judge([self._about("dead-rank", rank, said) for rank in quiet])
        if now > ended + silent + 4 * self._pause:
            if error:
                self._judge([self._about("error", int(error.split()[0]), f"failed: {error.partition(' ')[2]}")])
            said = f"the launcher ended the gang in {self._name}: the job was cancelled, or a node is gone"
            self._judge([Finding("ended", False, said)])
        if now > self._since + self._limit and not error:
            self._judge(self._late())

    def _late(self) -> list[Finding]:
        """Return the findings about ranks that did not come to the stage that others wait in."""
        stages = [int(self._get(f"at/{rank}")) for rank in range(self._world_size)]
        behind = [rank for rank, stage in enumerate(stages) if stage == min(stages) < max(stages)]
        if not behind:
            said = f"{self._name} did not end within {self._limit:.0f} s, and all ranks are in it"
            return [Finding("hang", False, f"{said}: network or a device hangs; fewer nodes (--nodes) tell which")]
        said = f"hangs: the others wait for it in {self._name} since {time.monotonic() - self._since:.0f} s"
        return [self._about("late-rank", rank, said) for rank in behind]

    def _about(self, check: str, rank: int, said: str) -> Finding:
        node = rank // self._ranks_per_node
        name = self._get(f"name/{node}") or "?"
        return Finding(check, False, f"rank {rank} on node {node} ({name}) {said}", node)

    def _judge(self, findings: list[Finding]) -> Never:
        """Write the report, tell all ranks, wait for the living ones, and end this process. The first call wins."""
        while not self._ending.acquire(blocking=False):
            time.sleep(60)
        code = self._conclude(findings)
        living = self._world_size - 1 - sum(each.check == "dead-rank" for each in findings)
        with suppress(RuntimeError):
            self._store.set("verdict", str(code))
            deadline = time.monotonic() + _FAREWELL_SECONDS
            while self._store.add("bye", 0) < living and time.monotonic() < deadline:
                time.sleep(0.05)
        self._leave(code)

    def _without_rank_0(self) -> Never:
        """End where the store is gone, and so rank 0, which keeps it; its deputy writes the report: the first rank of
        another node, where there is one."""
        if self._rank == (self._ranks_per_node if self._ranks_per_node < self._world_size else 1):
            said = f"rank 0 on node 0 is gone: it keeps no connection since {self._name}"
            self._conclude([Finding("dead-rank", False, said, 0)])
        else:
            time.sleep(_DEPUTY_SECONDS)
        self._leave(EXIT_CODE)

    def _leave(self, code: int) -> Never:
        """End the process, even with other threads in a collective that hangs."""
        if code and (file := os.environ.get(FILE)):
            with suppress(OSError):
                Path(file).touch()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    def _get(self, key: str) -> str:
        """Return a text, or empty before the first one."""
        return str(self._store.get(key).decode()) if self._store.check([key]) else ""
