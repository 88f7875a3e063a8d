"""Launcher of one node's ranks, like ``torchrun``, for images without PyTorch; or of torchrun. Standard library alone.

The nodes meet at the rendezvous: the node with its address waits for all others, tells each its number, and keeps the
connections. When a rank fails anywhere, all nodes end their ranks, so that the job sees the failure at once; restarting
is the job's business (Volcano restarts the whole gang).

Node 0 hears of each failure and of each node that is gone, and tells all nodes which was the first. Its pod ends at
once, and is the one that Volcano keeps. The others stay until the restart: where all pods have failed before Volcano
handles the first failure, it ends the job, whatever retries are left (decision 97).

    python -m trainium_workloads.gang --nnodes 2 --nproc-per-node 4 --rdzv-endpoint host:29500 --rdzv-id my-job train.py
    python -m trainium_workloads.gang --nnodes 2 --rdzv-endpoint host:29499 --rdzv-id my-job --launcher torchrun …
"""

import argparse
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from trainium_workloads.stopping import EXIT_CODE

JOIN_SECONDS = 1800.0
"""Longest wait of the nodes for each other: an image of gigabytes is pulled meanwhile."""
_KILL_AFTER_SECONDS = 30.0
_LAST_WORDS_SECONDS = 20.0
"""Time for the ranks' remaining output; processes that they left behind may keep a pipe open for ever."""
_LOOK_SECONDS = 0.05
_VERDICT_SECONDS = 10.0
_STAGGER_SECONDS = 10.0
"""Each node stays so much longer than the one before: while Volcano's controllers are away, not all may end."""
_LEAST_SECONDS = 3.0
"""Shortest run of a gang of one node that fails: Volcano has handled the news of its start by then."""
_START_SECONDS = 600.0
"""Ranks that have run for longer do train, whatever they print."""
_BROKEN = re.compile(
    rb"\b(Syntax|Indentation|Import|ModuleNotFound)Error: |error: (unrecognized|argument|the following)|can't open file"
)
"""Lines of a program that no machine can start. Without a volume earlier starts are unknown, and count as this one."""
_PROGRESS = re.compile(rb"(?i)\b(step|epoch|iter|iteration|loss)\b[\"']?\s*[:=/]?\s*\d")
"""Lines of a training that has begun: ours, and other trainers'."""

REFUSED = 78
"""Exit code of a container that no restart can mend: the job ends."""


@dataclass(frozen=True)
class Node:
    """This node among the others."""

    rank: int
    """From 0, the node of the rendezvous."""
    port: int
    """Port of the ranks on node 0: free when the nodes met, for other jobs may be on its network."""
    peers: tuple[socket.socket, ...]
    """Connections to all others in their order (node 0), to node 0 (the others)."""


class JoinError(Exception):
    """The nodes did not find each other; the message says why."""


def main(arguments: list[str] | None = None) -> int:
    """Run the ranks; return 0 when all ended well, the first failed rank's exit code, 78 for a gang that cannot start,
    or for another node's failure 143 with ``--stay``, else 1."""
    asked = _parser().parse_args(arguments)
    # As a container's first process it would not end by SIGTERM otherwise.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    host, _, port = asked.rdzv_endpoint.rpartition(":")
    try:
        node = join(host, int(port), asked.rdzv_id, asked.nnodes, asked.node_rank)
    except (JoinError, OSError) as error:
        sys.stderr.write(f"rendezvous at {asked.rdzv_endpoint}: {error}\n")
        return 1
    if asked.launcher:
        try:
            return _Ranks([asked.script, *asked.arguments], [{}], node, asked).run()
        except FileNotFoundError as error:
            sys.stderr.write(f"{error}\n")
            return 127
    environment = {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(node.port),
        "WORLD_SIZE": str(asked.nnodes * asked.nproc_per_node),
        "LOCAL_WORLD_SIZE": str(asked.nproc_per_node),
        "GROUP_RANK": str(node.rank),
    }
    first, count = node.rank * asked.nproc_per_node, asked.nproc_per_node
    own = [{**environment, "RANK": str(first + local), "LOCAL_RANK": str(local)} for local in range(count)]
    program = [*(["-m"] * asked.module), asked.script, *asked.arguments]
    return _Ranks([sys.executable, "-u", *program], own, node, asked).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainium_workloads.gang", description=__doc__.partition("\n")[0])

    def add(name: str, default: str | float, text: str) -> None:
        names = dict.fromkeys([f"--{name}", f"--{name.replace('-', '_')}"])
        parser.add_argument(*names, type=type(default), default=default, help=f"{text}; default: %(default)s")

    add("nnodes", 1, "nodes of the gang")
    add("nproc-per-node", 1, "ranks here")
    add("node-rank", 0, "this node's number; node 0 has the address of the rendezvous")
    add("rdzv-endpoint", "localhost:29500", "HOST:PORT of the rendezvous")
    add("rdzv-id", "", "name of the job: nodes of another are turned away")
    add("stay", 0.0, "longest stay of a node after another's failure, until the job is restarted, seconds")
    add("failed-starts", "0", "N[:CODE,CODE]: failed starts in a row, with one exit code, that end the job; 0: none")
    add("record", "", "file on the shared volume that counts them")
    add("in-place", 0, "restarts of ranks by the launcher")
    parser.add_argument("--launcher", action="store_true", help="the script starts its ranks by itself: torchrun")
    parser.add_argument("-m", "--module", action="store_true", help="the script is the name of a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    return parser


def join(host: str, port: int, job: str, nodes: int, rank: int) -> Node:
    """Meet the other nodes.

    Args:
        host: of the rendezvous: node 0's name or address.
        port: of the rendezvous.
        job: name of the gang, the same on all nodes.
        nodes: number of nodes.
        rank: this node's number, from 0.

    Raises:
        JoinError: they are not all there in time, or belong to another job.
    """
    if nodes == 1:
        return Node(0, _free_port(), ())
    deadline = time.monotonic() + JOIN_SECONDS
    if rank == 0:
        try:
            with _server(host, port, deadline) as server:
                return _lead(server, job, nodes, deadline)
        except OSError as error:
            raise JoinError(f"node 0 cannot listen there: {error}") from None
    return _follow(host, port, {"job": job, "rank": rank}, deadline)


def _server(host: str, port: int, deadline: float) -> socket.socket:
    """Return a server at the rendezvous; the host's name may become known only with its pod."""
    while True:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family)
        except socket.gaierror as error:
            if time.monotonic() > deadline:
                raise JoinError(f"{host} is not known: {error}") from None
            time.sleep(0.2)


def _lead(server: socket.socket, job: str, nodes: int, deadline: float) -> Node:
    peers: dict[int, socket.socket] = {}
    while len(peers) < nodes - 1:
        server.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            peer, _ = server.accept()
        except TimeoutError:
            raise JoinError(f"{len(peers) + 1} of {nodes} nodes came within {JOIN_SECONDS:.0f} s") from None
        peer.settimeout(10)
        try:
            hello = json.loads(_line(peer))
            theirs, rank = hello["job"], int(hello["rank"])
        except (OSError, ValueError, KeyError, TypeError):
            peer.close()
            continue
        if theirs != job:
            _say(peer, {"refused": f"this is the rendezvous of {job!r}"})
            peer.close()
            continue
        # A node that comes again has started again; its earlier connection is dead.
        peers[rank] = peer
    port = _free_port()
    for peer in peers.values():
        _say(peer, {"port": port})
    return Node(0, port, tuple(peers[rank] for rank in sorted(peers)))


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def _follow(host: str, port: int, hello: dict[str, Any], deadline: float) -> Node:
    while True:
        try:
            leader = socket.create_connection((host, port), timeout=5)
            _say(leader, hello)
            leader.settimeout(max(deadline - time.monotonic(), 1))
            answer = json.loads(_line(leader))
            break
        except (OSError, ValueError) as error:
            if time.monotonic() > deadline:
                raise JoinError(f"node 0 did not answer within {JOIN_SECONDS:.0f} s: {error}") from None
            time.sleep(0.1)
    if "refused" in answer:
        raise JoinError(answer["refused"])
    return Node(hello["rank"], int(answer["port"]), (leader,))


def _say(peer: socket.socket, what: object) -> None:
    peer.sendall(json.dumps(what).encode() + b"\n")


def _line(peer: socket.socket) -> str:
    """Return a line of at most 1 KiB."""
    data = b""
    while not data.endswith(b"\n"):
        part = peer.recv(1)
        if not part or len(data) > 1024:
            raise ConnectionError("the connection was closed")
        data += part
    return data[:-1].decode()


class _Ranks:
    """The ranks of this node."""

    def __init__(
        self, command: list[str], environments: list[dict[str, str]], node: Node, asked: argparse.Namespace
    ) -> None:
        self._node, self._asked = node, asked
        self._terminated = False
        self._peers = {peer: number for number, peer in enumerate(node.peers, 1)}
        self._first: dict[str, int] = {}
        """The node that failed first, its exit code, and whether the training had begun."""
        self._failed_at, self._code = 0.0, 0
        self._trains = self._is_broken = self._is_lost = False
        signal.signal(signal.SIGTERM, self._on_signal)
        self._begun = time.monotonic()
        self._processes = [
            subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for environment in environments
        ]
        self._ranks: dict[int, int] = {}
        """Process of each rank, by a descriptor that can be read when it has ended."""
        self._readers = []
        for local, each in enumerate(self._processes):
            self._look_at(each.pid)
            for source, sink in ((each.stdout, sys.stdout), (each.stderr, sys.stderr)):
                prefix = b"" if asked.launcher else f"[default{local}]:".encode()
                self._readers.append(threading.Thread(target=self._pass_on, args=(source, sink, prefix), daemon=True))
                self._readers[-1].start()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Pass SIGTERM on: the ranks save and end by themselves."""
        self._terminated = True
        running = [each for each in self._processes if each.poll() is None]
        for each in running:
            each.send_signal(number)
        if not running:
            sys.exit(128 + number)
        self._report(EXIT_CODE)

    def run(self) -> int:
        deadline = float("inf")
        while any(each.poll() is None for each in self._processes) or self._awaits_verdict():
            self._look()
            if not self._is_lost and self._must_end():
                self._is_lost = True
                deadline = time.monotonic() + _KILL_AFTER_SECONDS
                if not self._asked.launcher:  # torchrun does so itself
                    self._end(signal.SIGTERM)
            elif time.monotonic() > deadline:
                self._end(signal.SIGKILL)
        self._look()
        for reader in self._readers:
            reader.join(_LAST_WORDS_SECONDS)
        code = self._ended()
        self._report(code)
        return code

    def _look(self) -> None:
        """Note failures here and elsewhere, as they come."""
        if self._asked.launcher and not self._asked.in_place:
            for rank in _ranks_of(self._processes[0].pid):
                self._look_at(rank)
        for ready in select.select([*self._peers, *self._ranks], [], [], _LOOK_SECONDS)[0]:
            if ready in self._peers:
                self._hear(ready)
                continue
            if self._asked.launcher:
                self._note(_exit_code(self._ranks[ready]), "a rank")
            del self._ranks[ready]
            os.close(ready)
        for local, each in enumerate(self._processes):
            self._note(each.poll() or 0, self._asked.script if self._asked.launcher else f"local rank {local}")

    def _look_at(self, pid: int) -> None:
        if pid not in self._ranks.values():
            # Other systems than Linux have none: there a failure is seen with the next look.
            with contextlib.suppress(AttributeError, OSError):
                self._ranks[os.pidfd_open(pid)] = pid

    def _note(self, code: int, who: str) -> None:
        """Note the first failure here, unless another node's came before."""
        if code and not self._code and (self._terminated or not self._first):
            self._failed_at, self._code = time.monotonic(), code if code > 0 else 128 - code
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            sys.stderr.write(f"{who} failed: {how}\n")
            self._report(self._code)

    def _report(self, code: int) -> None:
        """Tell node 0 the exit code, of which the first counts; node 0 tells all others."""
        if self._node.rank == 0 and code:
            self._decide(0, code)
            return
        for peer in self._peers:
            with contextlib.suppress(OSError):  # it has gone already
                _say(peer, {"code": code})

    def _decide(self, node: int, code: int) -> None:
        if self._first:
            return
        self._learn({"node": node, "code": code, "trains": self._trains})
        for peer in self._peers:
            with contextlib.suppress(OSError):
                _say(peer, self._first)

    def _learn(self, first: dict[str, int]) -> None:
        self._first = first
        if first["node"] != self._node.rank and first["code"] != EXIT_CODE:
            sys.stderr.write(f"node {first['node']} failed first, with exit code {first['code']}\n")

    def _hear(self, peer: socket.socket) -> None:
        said: dict[str, int] = {"code": 128 + signal.SIGKILL}  # gone without a word
        with contextlib.suppress(OSError, ValueError):
            said = json.loads(peer.recv(1024).partition(b"\n")[0])
        if self._node.rank == 0 and said["code"]:
            self._decide(self._peers[peer], said["code"])
        elif said["code"] and not self._first:
            self._learn({"node": 0, **said})
        del self._peers[peer]

    def _must_end(self) -> bool:
        """Return whether the ranks here are lost; nodes that were asked to stop take the others with them in order."""
        if self._terminated or self._code:
            return bool(self._code) and not self._terminated
        return bool(self._first) and self._first["code"] != EXIT_CODE and not self._asked.launcher

    def _awaits_verdict(self) -> bool:
        waits = self._code and self._peers and not self._first and not self._terminated
        return bool(waits) and time.monotonic() < self._failed_at + _VERDICT_SECONDS

    def _end(self, number: int) -> None:
        for each in self._processes:
            if each.poll() is None:
                each.send_signal(number)

    def _ended(self) -> int:
        """Return this node's exit code, for a node that only follows after its stay."""
        asked, rank = self._asked, self._node.rank
        first = self._first or {"node": rank, "trains": self._trains}
        is_well = not self._is_lost and not any(each.returncode for each in self._processes)
        is_refused = self._code == REFUSED or os.path.exists(os.environ.get("TRN_REFUSED") or "/nonexistent")
        if is_well or is_refused or self._terminated:
            return self._code
        if first["node"] == rank:
            if asked.stay and asked.nnodes == 1:
                time.sleep(max(self._begun + _LEAST_SECONDS - time.monotonic(), 0))
            return REFUSED if self._cannot_start(bool(first["trains"])) else self._code
        time.sleep(asked.stay and asked.stay + _STAGGER_SECONDS * rank)
        return EXIT_CODE if asked.stay or first["code"] == EXIT_CODE else self._code or 1

    def _cannot_start(self, trains: bool) -> bool:
        """Count a failed start; return whether it is one too many. Signals are faults of nodes, and end the count."""
        most, _, codes = self._asked.failed_starts.partition(":")
        record = Path(self._asked.record or os.devnull)
        is_start = (
            not trains
            and (str(self._code) in codes.split(",") if codes else self._code < 128)
            and self._failed_at - self._begun < _START_SECONDS
            and bool(self._asked.record or self._is_broken)
        )
        attempt, count = os.environ.get("TRN_ATTEMPT", ""), 0
        if is_start:
            count = 1 if self._asked.record else int(attempt or 0) + 1
            with contextlib.suppress(OSError, ValueError):
                code, before = map(int, record.read_text().split())
                count += before if code == self._code and attempt != "0" else 0
        with contextlib.suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(f"{self._code} {count}\n")
        if not 0 < int(most) <= count:
            return False
        what = f"exit code {self._code} before a step, {count} times in a row: no restart mends that"
        sys.stderr.write(f"{what} (--failed-starts {self._asked.failed_starts})\n")
        return True

    def _pass_on(self, source: IO[bytes] | None, sink: IO[str], prefix: bytes) -> None:
        """Copy each line with the rank's prefix, in the form of ``torchrun --tee``."""
        assert source is not None
        for line in source:
            self._trains = self._trains or _PROGRESS.search(line) is not None
            self._is_broken = self._is_broken or _BROKEN.search(line) is not None
            sink.buffer.write(prefix + line)  # type: ignore[attr-defined]
            sink.flush()


def _ranks_of(launcher: int) -> list[int]:
    """Return the processes of the ranks that torchrun has started."""
    found = []
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            if b"\0RANK=" in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(int(pid))
    return found


def _exit_code(pid: int) -> int:
    """Return the exit code of a process that has ended and is not collected yet; 0 where it is not known."""
    try:
        return os.waitstatus_to_exitcode(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[49]))
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
