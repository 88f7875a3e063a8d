"""Launcher of one node's ranks, like ``torchrun``, for images without PyTorch; or of torchrun. Standard library alone.

The nodes meet at the rendezvous: the node with its address waits for all others, tells each its number, and keeps the
connections. When a rank fails anywhere, all nodes end their ranks, so that the job sees the failure at once; restarting
is the job's business (Volcano restarts the whole gang).

Node 0 hears of each failure and of each node that is gone, and tells all nodes which was the first. Its pod ends, and
is the pod that Volcano keeps. The others stay until the restart: where all pods have failed before Volcano
handles the first failure, it ends the job, whatever retries are left (decision 97).

    python -m trainium_workloads.gang --nnodes 2 --nproc-per-node 4 --rdzv-endpoint host:29500 --rdzv-id my-job train.py
    python -m trainium_workloads.gang --nnodes 2 --rdzv-endpoint host:29499 --rdzv-id my-job --launcher torchrun …
"""

import argparse
import contextlib
import json
import os
import re
import selectors
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

from trainium_workloads import ultraserver
from trainium_workloads.stopping import EXIT_CODE

JOIN_SECONDS = 1800.0
"""Longest wait of the nodes for each other: an image of gigabytes is pulled meanwhile."""
_KILL_AFTER_SECONDS = 30.0
_LAST_WORDS_SECONDS = 20.0
"""Time for the ranks' remaining output; processes that they left behind may keep a pipe open for ever."""
_LOOK_SECONDS = 0.05
_WINDOW_SECONDS = 2.0
"""Time from the first report of a failure to the verdict: the rank that failed may take longer to end than the ranks
that noticed. It has written its last line before them. A rank that was killed noticed nothing: it needs no verdict."""
_TEARDOWN_SECONDS = 10.0
"""Longest time from that line to the end."""
_VERDICT_SECONDS = 10.0
_STAGGER_SECONDS, _LONGEST_STAGGER_SECONDS = 10.0, 600.0
"""Each node stays longer than the one before: while Volcano's controllers are away, not all may end."""
_START_SECONDS = 600.0
"""Ranks that have run for longer do train, whatever they print."""
_BROKEN = re.compile(
    rb"\b(Syntax|Indentation|Import|ModuleNotFound)Error: |error: (unrecognized|argument|the following)|can't open file"
)
"""Lines of a program that no machine can start. Without a volume earlier starts are unknown, and count as this one."""
_NOTICED = re.compile(
    rb"(?i)\b(by|a) peer\b|left the gang|remote process|connection (reset|closed|aborted)|broken pipe"
)
"""Lines of a rank that noticed another's end: it did not fail first, however soon it ended."""
_RANK = re.compile(rb"\[[A-Za-z]*(\d+)\]:")
"""Start of the lines of a node's rank, here and by torchrun."""
_TRACEBACK = b"Traceback (most recent call last)"
_ERROR = re.compile(rb"(refused: .|[A-Za-z_][\w.]*(: |\s*$))")
"""Last line of a traceback, and line of a refusal."""
_PROGRESS = re.compile(rb"(?i)\b(step|epoch|iter|iteration|loss)\b[\"']?\s*[:=/]?\s*\d")
"""Lines of a training that has begun: ours, and other trainers'."""

_FIRST_RANK = re.compile(rb"\[(default)?0\]:")
"""Start of the lines of a node's first rank, here and by torchrun. Those of rank 0 go to node 0, too: its log is where
people look for them, and in UltraServers rank 0 may be on another node."""

_LAUNCHER_ENDS = re.compile(rb"torch\.distributed\.elastic\.\S+\.(ChildFailedError|SignalException): ")
"""torchrun's last error. Its ranks have ended; the rest, its interpreter's shutdown, takes a second of CPU time."""

_MESSAGE_FILE = "/dev/termination-log"
_CAUSE_CHARACTERS = 500

REFUSED = 78
"""Exit code of a container that no restart can mend: the job ends."""


@dataclass(frozen=True)
class Node:
    """This node among the others."""

    rank: int
    """From 0, the node of the rendezvous."""
    port: int
    """Port of the ranks on the first node: free when the nodes met, for other jobs may be on its network."""
    peers: tuple[socket.socket, ...]
    """Connections to all others in their order (node 0), to node 0 (the others)."""
    number: int = 0
    """The node's number by the ranks on it: that of its place in an UltraServer, else :attr:`rank`."""
    first: int = 0
    """Node with number 0, which has :attr:`port`."""


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
        member = ultraserver.membership(asked.node_config) if asked.node_config else None
        place = member.place if member is not None and asked.node_config > 1 else None
        node = join(host, int(port), asked.rdzv_id, asked.nnodes, asked.node_rank, place, asked.node_config)
    except (JoinError, OSError, ultraserver.PlaceError) as error:
        sys.stderr.write(f"rendezvous at {asked.rdzv_endpoint}: {error}\n")
        return REFUSED if isinstance(error, ultraserver.PlaceError) else 1
    host = ultraserver.host_of(node.first, host) if place else host
    told = member.variables(node.number, host) if member else {}
    if place:
        sys.stderr.write(f"node {node.number} of the gang is node {place[1]} of UltraServer part {place[0]}\n")
    if asked.launcher:
        # torchrun's defaults: a static rendezvous, in which ranks follow these numbers.
        static = {"PET_NODE_RANK": str(node.number), "PET_MASTER_ADDR": host, "PET_MASTER_PORT": str(node.port)}
        return _Ranks([asked.script, *asked.arguments], [told | (static if place else {})], node, asked).run()
    environment = {
        **told,
        "MASTER_ADDR": host,
        "MASTER_PORT": str(node.port),
        "WORLD_SIZE": str(asked.nnodes * asked.nproc_per_node),
        "LOCAL_WORLD_SIZE": str(asked.nproc_per_node),
        "GROUP_RANK": str(node.number),
    }
    first, count = node.number * asked.nproc_per_node, asked.nproc_per_node
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
    add("node-config", 0, "nodes that are one by NeuronLink: 4, 2 or 1 of an UltraServer; 0: they are in none")
    add("stay", 0.0, "longest stay of a node after another's failure, until the job is restarted, seconds")
    add("failed-starts", "0", "N[:CODE,CODE]: failed starts in a row, with one exit code, that end the job; 0: none")
    add("record", "", "file on the shared volume that counts failed starts")
    add("in-place", 0, "restarts of ranks by the launcher")
    parser.add_argument("--launcher", action="store_true", help="the script starts its ranks by itself: torchrun")
    parser.add_argument("-m", "--module", action="store_true", help="the script is the name of a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    return parser


def join(
    host: str, port: int, job: str, nodes: int, rank: int, place: ultraserver.Place | None = None, size: int = 0
) -> Node:
    """Meet the other nodes at the rendezvous, node 0's name or address. JoinError: they are not all there in time, or
    belong to another job. With ``place`` ranks follow the places, in parts of ``size`` nodes; PlaceError: these are not
    whole."""
    own: dict[str, Any] = {"port": _free_port(), "place": place}
    if nodes == 1:
        return Node(0, int(own["port"]), ())
    deadline = time.monotonic() + JOIN_SECONDS
    if rank == 0:
        try:
            with _server(host, port, deadline) as server:
                return _lead(server, job, nodes, deadline, own, size)
        except OSError as error:
            raise JoinError(f"node 0 cannot listen there: {error}") from None
    return _follow(host, port, {"job": job, "rank": rank, **own}, deadline)


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


def _lead(server: socket.socket, job: str, nodes: int, deadline: float, own: dict[str, Any], size: int) -> Node:
    peers: dict[int, socket.socket] = {}
    known = {0: own}
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
        peers[rank], known[rank] = peer, hello
    numbers = {rank: rank for rank in known}
    if own["place"]:
        places = {rank: (str(each["place"][0]), int(each["place"][1])) for rank, each in known.items()}
        try:
            numbers = ultraserver.order(places, size)
        except ultraserver.PlaceError as error:
            for peer in peers.values():
                _say(peer, {"misplaced": str(error)})
            raise
    first = min(numbers, key=lambda rank: numbers[rank])
    port = int(known[first]["port"]) if first else _free_port()
    for rank, peer in peers.items():
        _say(peer, {"port": port, "first": first, "number": numbers[rank]})
    return Node(0, port, tuple(peers[rank] for rank in sorted(peers)), numbers[0], first)


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
    if "misplaced" in answer:
        raise ultraserver.PlaceError(answer["misplaced"])
    return Node(hello["rank"], int(answer["port"]), (leader,), int(answer["number"]), int(answer["first"]))


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
        self._terminated = self._trains = self._is_broken = self._is_lost = self._launcher_ends = False
        self._peers = {peer: number for number, peer in enumerate(node.peers, int(node.rank == 0))}
        self._heard: set[int] = set()
        self._rest: dict[socket.socket, bytes] = {}
        """The last line of each peer, as far as it has come."""
        self._speaking = threading.Lock()
        self._selector = selectors.DefaultSelector()
        for peer in node.peers:
            self._selector.register(peer, selectors.EVENT_READ)
        self._files: dict[int, list[str]] = {}
        """Process of each rank that runs, with the files to which torchrun lets it write."""
        self._last_line: dict[int, float] = {}
        """Time of the last line that came from each process."""
        self._noticed: dict[int, float] = {}
        """The same of lines about another rank's end."""
        self._failures: list[tuple[float, int, int]] = []
        """Time, exit code and local rank of each rank that failed here; -1 where that is not known."""
        self._local: dict[int, int] = {}
        """Local rank of each process."""
        self._in_traceback = set[int]()
        """Local ranks of whose traceback the last line is still to come."""
        self._errors: dict[int, tuple[float, str]] = {}
        """Time and last line of the last traceback, by local rank, or the refusal."""
        self._last_words: dict[int, tuple[float, str]] = {}
        """Time and text of the last line of each local rank."""
        self._reports: list[tuple[float, int, int]] = []
        """On node 0 time, node and exit code of each failure."""
        self._first: dict[str, int] = {}
        """The node that failed first, its exit code, and whether the training had begun."""
        self._begun, self._verdict_at = time.monotonic(), float("inf")
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
        signal.signal(signal.SIGTERM, self._on_signal)
        self._readers = []
        sys.stderr.write(_before(asked.record))
        for local, each in enumerate(self._processes):
            self._watch(each.pid, [])
            self._local[each.pid] = -1 if asked.launcher else local
            for source, sink in ((each.stdout, sys.stdout), (each.stderr, sys.stderr)):
                prefix = b"" if asked.launcher else f"[default{local}]:".encode()
                words = (each.pid, source, sink, prefix)
                self._readers.append(threading.Thread(target=self._pass_on, args=words, daemon=True))
                self._readers[-1].start()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Pass SIGTERM on: the ranks save and end by themselves."""
        self._terminated = True
        if not self._end(number):
            sys.exit(128 + number)
        self._report(self._node.rank, EXIT_CODE)

    def run(self) -> int:
        deadline = float("inf")
        while any(each.poll() is None for each in self._processes) or self._awaits_verdict():
            self._look()
            if not self._is_lost and self._must_end():
                self._is_lost = True
                deadline = time.monotonic() + _KILL_AFTER_SECONDS
                if not self._asked.launcher:  # torchrun does so itself
                    self._end(signal.SIGTERM)
            elif time.monotonic() > deadline or self._launcher_has_finished():
                self._end(signal.SIGKILL)
        self._look()
        for reader in self._readers:
            reader.join(_LAST_WORDS_SECONDS)
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        hears = self._node.rank == 0 and not any(each.returncode for each in self._processes)
        while hears and self._node.first in self._peers.values() and time.monotonic() < deadline:
            self._look()  # rank 0 may speak for longer
        code = self._ended()
        self._report(self._node.rank, code)
        return code

    def _look(self) -> None:
        """Note failures here and elsewhere, as they come."""
        if self._asked.launcher and not self._asked.in_place:
            ranks = _ranks_of(self._processes[0].pid)
            self._local |= ranks
            for rank in ranks.keys() - self._files.keys():
                with contextlib.suppress(OSError):
                    files = [os.readlink(f"/proc/{rank}/fd/{number}") for number in (1, 2)]
                    self._watch(rank, [each for each in files if os.path.isfile(each)])
        for ready, _ in self._selector.select(_LOOK_SECONDS):
            if isinstance(ready.fileobj, socket.socket):
                self._hear(ready.fileobj)
                continue
            self._selector.unregister(ready.fd)
            os.close(ready.fd)
            if ready.data != self._processes[0].pid and self._asked.launcher:
                self._note(ready.data, _exit_code(ready.data), "a rank")
        for local, each in enumerate(self._processes):
            code = each.poll() or 0
            if code and each.pid in self._files:
                for reader in self._readers[2 * local : 2 * local + 2]:
                    reader.join(_LOOK_SECONDS)  # its last words
            # torchrun ends with 1, after its ranks.
            if not (self._asked.launcher and self._failures):
                self._note(each.pid, code, f"local rank {local}")
        if time.monotonic() > self._verdict_at:
            _, node, code = min(self._reports)
            self._learn({"node": node, "code": code})

    def _watch(self, pid: int, files: list[str]) -> None:
        self._files[pid] = files
        # Systems without such descriptors see a failure with the next look.
        with contextlib.suppress(AttributeError, OSError):
            self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)

    def _note(self, pid: int, code: int, who: str) -> None:
        """Note a failure here at the time of the rank's last line, unless the gang has ended already."""
        if not code or (self._first and not self._terminated) or (files := self._files.pop(pid, None)) is None:
            return
        sys.stderr.write(f"{who} failed: {f'exit code {code}' if code > 0 else f'signal {-code}'}\n")
        code = code if code > 0 else 128 - code
        written = [found.st_mtime for each in files if (found := os.stat(each)).st_size]
        last, now = max(written, default=self._last_line.get(pid, 0.0)), time.time()
        noticed = max([last for each in files if _NOTICED.search(_tail(each))], default=self._noticed.get(pid, 0.0))
        ago = now - last if now - last < _TEARDOWN_SECONDS and code != EXIT_CODE else 0.0
        ago -= 60 if now - noticed < _TEARDOWN_SECONDS else 0  # after all others
        self._failures.append((time.monotonic() - ago, code, self._local.get(pid, -1)))
        self._report(self._node.rank, code, ago)

    def _report(self, node: int, code: int, ago: float = 0.0) -> None:
        """Take the report of a node's end, or of its good end, to node 0, and node 0's own to all."""
        if self._node.rank == 0 and code:
            self._reports.append((time.monotonic() - ago, node, code))
            window = _WINDOW_SECONDS if self._asked.stay and code != 128 + signal.SIGKILL else 0.0
            self._verdict_at = min(self._verdict_at, time.monotonic() + window)
        elif node == self._node.rank:
            self._tell({"code": code, "ago": ago})
        elif node == 0 and code:
            self._learn({"node": 0, "code": code})

    def _tell(self, what: dict[str, Any]) -> None:
        for peer in self._peers:
            with contextlib.suppress(OSError), self._speaking:  # it has gone already
                _say(peer, what)

    def _learn(self, first: dict[str, int]) -> None:
        if self._first:
            return
        self._first = {"trains": self._trains, **first}
        if self._node.rank == 0:
            self._tell(self._first)
        if first["node"] != self._node.rank and first["code"] != EXIT_CODE:
            sys.stderr.write(f"node {first['node']} failed first, with exit code {first['code']}\n")

    def _hear(self, peer: socket.socket) -> None:
        part, number = b"", self._peers[peer]
        with contextlib.suppress(OSError):
            part = peer.recv(4096)
        *lines, self._rest[peer] = (self._rest.get(peer, b"") + part).split(b"\n")
        for said in map(json.loads, lines):
            if "line" in said:
                self._write(sys.stdout, said["line"].encode())
                continue
            self._heard.add(number)
            if "node" in said:
                self._learn(said)
            else:
                self._report(number, said["code"], said["ago"])
        if not part:
            self._selector.unregister(peer)
            del self._peers[peer]
            if number not in self._heard:  # gone without a word
                self._report(number, 128 + signal.SIGKILL)

    def _must_end(self) -> bool:
        """Return whether the ranks here are lost; nodes that were asked to stop take the others with them in order."""
        follows = self._first and self._first["code"] != EXIT_CODE and not self._asked.launcher
        return not self._terminated and bool(follows or (self._failures and not self._awaits_verdict()))

    def _launcher_has_finished(self) -> bool:
        said_at = self._last_line.get(self._processes[0].pid, 0.0)
        return self._launcher_ends and bool(self._failures) and time.time() > said_at + 2 * _LOOK_SECONDS

    def _awaits_verdict(self) -> bool:
        waits = self._failures and (self._peers or self._node.rank == 0) and not (self._first or self._terminated)
        return bool(waits) and time.monotonic() < self._failures[0][0] + _VERDICT_SECONDS

    def _end(self, number: int) -> bool:
        """Send a signal to the processes that run; return whether there are any."""
        running = [each for each in self._processes if each.poll() is None]
        for each in running:
            each.send_signal(number)
        return bool(running)

    def _ended(self) -> int:
        """Return this node's exit code, for a node that only follows after its stay."""
        asked, rank = self._asked, self._node.rank
        failed_at, code, local = min(self._failures, default=(0.0, 0, -1))
        first = self._first or {"node": rank, "trains": self._trains or asked.nnodes > 1}
        is_well = not self._is_lost and not any(each.returncode for each in self._processes)
        is_refused = code == REFUSED or os.path.exists(os.environ.get("TRN_REFUSED") or "/nonexistent")
        cause = self._cause(local, code)
        if is_refused and code and not self._terminated:
            _leave(cause)
        if is_well or is_refused or self._terminated:
            return code
        if first["node"] == rank:
            is_start = not first["trains"] and failed_at - self._begun < _START_SECONDS
            ends, line = self._cannot_start(code, is_start, cause)
            _leave(line)
            return REFUSED if ends else code
        time.sleep(asked.stay and asked.stay + min(_STAGGER_SECONDS * rank, _LONGEST_STAGGER_SECONDS))
        return EXIT_CODE if asked.stay or first["code"] == EXIT_CODE else code or 1

    def _cause(self, local: int, code: int) -> str:
        """Return a rank's exit code with its error; -1 for a local rank that is not known."""
        nothing = (0.0, "")
        at, said = self._errors.get(local, nothing) if local >= 0 else min(self._errors.values(), default=nothing)
        ended, last = self._last_words.get(local, nothing)
        if ended - at > _TEARDOWN_SECONDS:  # it was handled
            said = last
        if code >= 128:  # no line says anything of a signal
            said = ""
        number = self._node.number * self._asked.nproc_per_node + local
        return f"exit code {code}{f' of rank {number}' if local >= 0 else ''}{f': {said}' if said else ''}"

    def _cannot_start(self, code: int, is_start: bool, cause: str) -> tuple[bool, str]:
        """Count a failed start; return whether it is one too many, and the cause of the end. Signals are faults of
        nodes, and end the count."""
        most, _, codes = self._asked.failed_starts.partition(":")
        record, attempt, count = Path(self._asked.record or os.devnull), os.environ.get("TRN_ATTEMPT", ""), 0
        is_counted = str(code) in codes.split(",") if codes else code < 128
        if is_start and is_counted and (self._asked.record or self._is_broken):
            count = 1 if self._asked.record else int(attempt or 0) + 1
            with contextlib.suppress(OSError, ValueError):
                same, before = map(int, record.read_text().split(maxsplit=2)[:2])
                count += before if same == code and attempt != "0" else 0
        with contextlib.suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(f"{code} {count} {cause}\n")
        if not 0 < int(most) <= count:
            return False, cause
        what = f"exit code {code} before a step, {count} times in a row: no restart mends that"
        return True, f"{what} (--failed-starts {self._asked.failed_starts}); {cause}"

    def _pass_on(self, pid: int, source: IO[bytes] | None, sink: IO[str], prefix: bytes) -> None:
        """Copy each line with the rank's prefix, in the form of ``torchrun --tee``."""
        assert source is not None
        for line in source:
            self._last_line[pid] = time.time()
            if _NOTICED.search(line):
                self._noticed[pid] = time.time()
            self._is_broken = self._is_broken or _BROKEN.search(line) is not None
            self._launcher_ends = self._launcher_ends or (not prefix and _LAUNCHER_ENDS.match(line) is not None)
            whole = prefix + line
            self._note_error(whole)
            self._write(sink, whole)
            if self._node.number == 0 < self._node.rank and _FIRST_RANK.match(whole):
                self._tell({"line": whole.decode(errors="replace")})

    def _note_error(self, line: bytes) -> None:
        """Keep the last line of a rank's traceback: the summary that torchrun prints afterwards does not have it."""
        found = _RANK.match(line)
        if found is None:
            return
        rank, text = int(found[1]), line[found.end() :]
        words = text.decode(errors="replace").strip()[:_CAUSE_CHARACTERS]
        if words:
            self._last_words[rank] = (time.monotonic(), words)
        if text.startswith(_TRACEBACK):
            self._in_traceback.add(rank)
        elif _ERROR.match(text) and (rank in self._in_traceback or text.startswith(b"refused: ")):
            self._in_traceback.discard(rank)
            self._errors[rank] = (time.monotonic(), words)

    def _write(self, sink: IO[str], line: bytes) -> None:
        self._trains = self._trains or _PROGRESS.search(line) is not None
        sink.buffer.write(line)  # type: ignore[attr-defined]
        sink.flush()


def _before(record: str) -> str:
    """Return a line with the cause by which the run before ended, or the start, if it made no step; empty for the first
    start, and without a record."""
    with contextlib.suppress(OSError, ValueError):
        if record and os.environ.get("TRN_ATTEMPT") not in (None, "0"):
            _, count, cause = Path(record).read_text().strip().split(maxsplit=2)
            return f"the {'start' if int(count) else 'run'} before ended with {cause}\n"
    return ""


def _leave(cause: str) -> None:
    """Print the cause of an end as the log's last line, and leave it as the container's message, where there is a file
    for that: the kubelet's own choice is the log's end."""
    sys.stderr.write(f"the first failure: {cause}\n")
    with contextlib.suppress(OSError):
        if os.path.exists(_MESSAGE_FILE):
            Path(_MESSAGE_FILE).write_text(f"{cause}\n")


def _ranks_of(launcher: int) -> dict[int, int]:
    """Return the processes of the ranks that torchrun has started, with their local ranks."""
    found = {}
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if b"\0RANK=" in environment:
                local = re.search(rb"\0LOCAL_RANK=(\d+)", environment)
                found[int(pid)] = int(local[1]) if local else -1
    return found


def _tail(path: str) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(os.stat(path).st_size - 4096, 0))
        return file.read()


def _exit_code(pid: int) -> int:
    """Return the exit code of a process that has ended and is not collected yet; 0 where it is not known."""
    try:
        return os.waitstatus_to_exitcode(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[49]))
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
