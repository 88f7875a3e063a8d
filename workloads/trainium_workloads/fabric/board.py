"""Notice board of a gang: heartbeats of all ranks beside their collectives, the search for a rank that is gone or stays
behind, and the common end.

The board is a ``TCPStore`` beside the backend's, and works while a collective hangs, on every backend. A thread
of each rank keeps the heartbeat; rank 0's thread judges. SIGTERM, which a launcher sends when a rank died, waits for
the judgement.
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

import torch.distributed as dist

from trainium_workloads.fabric.node import Finding
from trainium_workloads.training.refusal import EXIT_CODE, FILE

BEAT_SECONDS = 0.5
_JUDGEMENT_SECONDS = 25.0
"""Longest wait for rank 0's judgement after SIGTERM: launchers kill after 30 s."""
_FAREWELL_SECONDS = 10.0
_DEPUTY_SECONDS = 5.0
"""Time for the deputy's report: the first rank that fails makes its launcher end the others."""
_STORE_SECONDS = 60.0

Conclude = Callable[[list[Finding]], int]
"""Writes the report with these further findings; returns the exit code of all ranks."""


def hold_sigterm() -> None:
    """Keep SIGTERM from ending this process or its later threads, until :class:`Board` waits for it; call it first."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


class Board:
    """A rank's place at the notice board.

    Args:
        rank: of this process.
        world_size: number of ranks.
        node_of: node of a rank.
        share: returns rank 0's text in all ranks.
        silent_seconds: silence after which a rank counts as gone.
        conclude: called once, in rank 0, or in its deputy when rank 0 is gone.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        node_of: Callable[[int], int],
        share: Callable[[str], str],
        silent_seconds: float,
        conclude: Conclude,
    ) -> None:
        self._rank, self._world_size, self._node_of = rank, world_size, node_of
        self._silent, self._conclude = silent_seconds, conclude
        host = os.environ.get("MASTER_ADDR", "localhost")
        self._store = self._open(host, 0) if rank == 0 else None
        port = int(share(str(self._store.port if self._store else 0)))
        self._store = self._store or self._open(host, port)
        self._stage, self._since, self._limit = 0, time.monotonic(), float("inf")
        self._name = "start"
        self._asked_to_end: float | None = None
        self._ending = threading.Lock()
        # The deputy is on another node than rank 0, where there is one.
        self._deputy = next((each for each in range(world_size) if node_of(each)), 1)
        self._set(f"at/{rank}", "0")
        self._set(f"beat/{rank}", "0")
        for work in (self._keep, self._listen):
            threading.Thread(target=work, daemon=True).start()

    def _open(self, host: str, port: int) -> dist.TCPStore:
        timeout = timedelta(seconds=_STORE_SECONDS)
        return dist.TCPStore(host, port, None, is_master=self._rank == 0, timeout=timeout, wait_for_workers=False)

    def enter(self, name: str, limit: float) -> None:
        """Note that this rank begins a stage.

        Args:
            name: in words.
            limit: longest time of the stage, seconds.
        """
        self._stage, self._since, self._limit, self._name = self._stage + 1, time.monotonic(), limit, name
        self._set(f"at/{self._rank}", str(self._stage))

    def post(self, key: str, text: str) -> None:
        """Publish a text."""
        self._set(key, text)

    def collect(self, keys: Sequence[str]) -> list[str]:
        """Return the texts, as soon as all are there; rank 0's thread finds a rank that keeps a text back."""
        while not self._has(*keys):
            time.sleep(0.05)
        return [str(self._get(key)) for key in keys]

    def fail(self, text: str) -> None:
        """Report this rank's error and wait for the end: another rank's death is the likelier cause."""
        with suppress(RuntimeError):
            if not self._has("error"):
                self._set("error", f"{self._rank} {text}")
        time.sleep(self._silent + _JUDGEMENT_SECONDS + _FAREWELL_SECONDS)
        self._leave(1)

    def end(self, findings: list[Finding]) -> None:
        """Conclude in rank 0, wait for that in the others; does not return."""
        if self._rank == 0:
            self._judge(findings)
        self._limit = float("inf")
        while True:
            time.sleep(60)  # the thread ends the process

    # The thread of each rank.

    def _keep(self) -> None:
        count = 0
        beats = _Beats(self._world_size) if self._rank == 0 else None
        while True:
            count += 1
            try:
                self._set(f"beat/{self._rank}", str(count))
                if self._rank and self._has("verdict"):
                    code = int(self._get("verdict"))
                    self._store.add("bye", 1)  # type: ignore[union-attr]
                    self._leave(code)
                if beats is not None:
                    self._look(beats)
            except RuntimeError:  # of the store
                self._without_rank_0()
            time.sleep(BEAT_SECONDS)

    def _listen(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self._asked_to_end = time.monotonic()
        time.sleep(_JUDGEMENT_SECONDS)
        self._leave(143)

    def _look(self, beats: "_Beats") -> None:
        """Judge the gang: gone ranks first, for they are the cause of all else."""
        beats.update([self._get(f"beat/{rank}") if self._has(f"beat/{rank}") else "" for rank in beats.ranks])
        quiet = beats.silent(self._silent)
        if quiet:
            self._judge([self._gone(rank) for rank in quiet])
        told = self._asked_to_end
        if told is not None and time.monotonic() > told + min(self._silent, _JUDGEMENT_SECONDS - 5) + 2:
            said = f"the launcher ended the gang in {self._name}: the job was cancelled, or a node is gone"
            self._judge([self._error() or Finding("ended", False, said)])
        if self._has("error"):
            beats.error_since = beats.error_since or time.monotonic()
            if time.monotonic() > beats.error_since + self._silent + 2 * BEAT_SECONDS:
                self._judge([self._error() or Finding("error", False, "a rank failed")])
        elif time.monotonic() > self._since + self._limit:
            self._judge(self._late())

    def _gone(self, rank: int) -> Finding:
        node = self._node_of(rank)
        said = f"rank {rank} on node {node} ({self._node_name(node)}) is gone: no heartbeat for {self._silent:.0f} s"
        return Finding("dead-rank", False, f"{said}, in {self._name}", node)

    def _error(self) -> Finding | None:
        if not self._has("error"):
            return None
        rank, _, text = str(self._get("error")).partition(" ")
        node = self._node_of(int(rank))
        return Finding("error", False, f"rank {rank} on node {node} ({self._node_name(node)}): {text}", node)

    def _late(self) -> list[Finding]:
        """Return the findings about ranks that did not come to the stage that others wait in."""
        stages = [int(self._get(f"at/{rank}")) for rank in range(self._world_size)]
        behind = [rank for rank, stage in enumerate(stages) if stage == min(stages) < max(stages)]
        if not behind:
            said = (
                f"{self._name} did not end within {self._limit:.0f} s, and all ranks are in it: the network or a device"
            )
            return [Finding("hang", False, f"{said} hangs; fewer nodes (--nodes) tell which")]
        return [
            Finding(
                "late-rank",
                False,
                f"rank {rank} on node {self._node_of(rank)} ({self._node_name(self._node_of(rank))}) hangs: the others "
                f"wait for it in {self._name} since {time.monotonic() - self._since:.0f} s",
                self._node_of(rank),
            )
            for rank in behind
        ]

    def _node_name(self, node: int) -> str:
        return str(self._get(f"name/{node}")) if self._has(f"name/{node}") else "?"

    def _judge(self, findings: list[Finding]) -> None:
        """Write the report, tell all ranks, wait for the living ones, and end this process. The first call wins."""
        if not self._ending.acquire(blocking=False):
            while True:
                time.sleep(60)
        code = self._conclude(findings)
        gone = sum(each.check == "dead-rank" for each in findings)
        with suppress(RuntimeError):
            self._set("verdict", str(code))
            deadline = time.monotonic() + _FAREWELL_SECONDS
            while self._store.add("bye", 0) < self._world_size - 1 - gone:  # type: ignore[union-attr]
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        self._leave(code)

    def _without_rank_0(self) -> None:
        """End where the store is gone, and so rank 0, which keeps it; its deputy writes the report."""
        if self._rank == 0:
            return  # the store of this very process is closing
        if self._rank == self._deputy:
            said = f"rank 0 on node 0 is gone: it keeps no connection since {self._name}"
            self._conclude([Finding("dead-rank", False, said, 0)])
        else:
            time.sleep(_DEPUTY_SECONDS)
        self._leave(EXIT_CODE)

    def _leave(self, code: int) -> None:
        """End the process, even with other threads in a collective that hangs."""
        if code and (file := os.environ.get(FILE)):
            with suppress(OSError):
                Path(file).touch()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    def _set(self, key: str, text: str) -> None:
        self._store.set(key, text)  # type: ignore[union-attr]

    def _get(self, key: str) -> str:
        return str(self._store.get(key).decode())  # type: ignore[union-attr]

    def _has(self, *keys: str) -> bool:
        return bool(self._store.check(list(keys)))  # type: ignore[union-attr]


class _Beats:
    """Heartbeats as rank 0 sees them."""

    def __init__(self, world_size: int) -> None:
        self.ranks = range(world_size)
        self.error_since: float | None = None
        self._last = [""] * world_size
        self._changed = [time.monotonic()] * world_size
        self._looked = time.monotonic()

    def update(self, beats: Sequence[str]) -> None:
        """Note the counters of all ranks."""
        now = time.monotonic()
        if now - self._looked > 4 * BEAT_SECONDS:
            # This thread itself was held up, by whatever may have held the others up as well.
            self._changed = [each + now - self._looked for each in self._changed]
        self._looked = now
        for rank, beat in enumerate(beats):
            if beat != self._last[rank]:
                self._last[rank], self._changed[rank] = beat, now

    def silent(self, seconds: float) -> list[int]:
        """Return the ranks without a beat for so long."""
        return [rank for rank, changed in enumerate(self._changed) if self._looked - changed > seconds]
