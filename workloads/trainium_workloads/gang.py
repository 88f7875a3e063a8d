"""Launcher of one node's ranks, like ``torchrun``, for images without PyTorch. Standard library alone.

The nodes meet at the rendezvous: the node with its address waits for all others, tells each its number, and keeps the
connections. When a rank fails anywhere, all nodes end their ranks, so that the job sees the failure at once; restarting
is the job's business (Volcano restarts the whole gang).

    python -m trainium_workloads.gang --nnodes 2 --nproc-per-node 4 --rdzv-endpoint host:29500 --rdzv-id my-job train.py
"""

import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import IO, Any

from trainium_workloads.stopping import EXIT_CODE

JOIN_SECONDS = 900.0
"""Longest wait of the nodes for each other: an image of gigabytes is pulled meanwhile."""
_KILL_AFTER_SECONDS = 30.0
_LAST_WORDS_SECONDS = 20.0
"""Time for the ranks' remaining output; processes that they left behind may keep a pipe open for ever."""
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Node:
    """This node among the others."""

    rank: int
    """From 0, the node of the rendezvous."""
    port: int
    """Port of the ranks on node 0: free when the nodes met, for other jobs may be on its network."""
    peers: tuple[socket.socket, ...]
    """Connections to all others (node 0), to node 0 (the others)."""


class JoinError(Exception):
    """The nodes did not find each other; the message says why."""


def main(arguments: list[str] | None = None) -> int:
    """Run the ranks; return 0 when all ended well, the first failed rank's exit code, or 1 for another node's
    failure."""
    asked = _parser().parse_args(arguments)
    # As a container's first process it would not end by SIGTERM otherwise.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    host, _, port = asked.rdzv_endpoint.rpartition(":")
    try:
        node = join(host, int(port), asked.rdzv_id, asked.nnodes, asked.node_rank)
    except (JoinError, OSError) as error:
        sys.stderr.write(f"rendezvous at {asked.rdzv_endpoint}: {error}\n")
        return 1
    environment = {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(node.port),
        "WORLD_SIZE": str(asked.nnodes * asked.nproc_per_node),
        "LOCAL_WORLD_SIZE": str(asked.nproc_per_node),
        "GROUP_RANK": str(node.rank),
    }
    program = [*(["-m"] * asked.module), asked.script, *asked.arguments]
    return _Ranks([sys.executable, "-u", *program], environment, asked.nproc_per_node, node).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainium_workloads.gang", description=__doc__.partition("\n")[0])

    def add(name: str, default: str | int, text: str) -> None:
        names = dict.fromkeys([f"--{name}", f"--{name.replace('-', '_')}"])
        parser.add_argument(*names, type=type(default), default=default, help=f"{text}; default: %(default)s")

    add("nnodes", 1, "nodes of the gang")
    add("nproc-per-node", 1, "ranks here")
    add("node-rank", 0, "this node's number; node 0 has the address of the rendezvous")
    add("rdzv-endpoint", "localhost:29500", "HOST:PORT of the rendezvous")
    add("rdzv-id", "", "name of the job: nodes of another are turned away")
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
    return Node(0, port, tuple(peers.values()))


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

    def __init__(self, command: list[str], environment: dict[str, str], count: int, node: Node) -> None:
        self._node = node
        self._terminated = False
        signal.signal(signal.SIGTERM, self._on_signal)
        first = node.rank * count
        self._processes = [
            subprocess.Popen(
                command,
                env={**os.environ, **environment, "RANK": str(first + local), "LOCAL_RANK": str(local)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for local in range(count)
        ]
        self._readers = []
        for local, each in enumerate(self._processes):
            for source, sink in ((each.stdout, sys.stdout), (each.stderr, sys.stderr)):
                words = (source, sink, f"[default{local}]:".encode())
                self._readers.append(threading.Thread(target=_pass_on, args=words, daemon=True))
                self._readers[-1].start()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Pass SIGTERM on: the ranks save and end by themselves."""
        self._terminated = True
        for each in self._processes:
            if each.poll() is None:
                each.send_signal(number)

    def run(self) -> int:
        code = self._watch()
        if code:
            self._end()
        for reader in self._readers:
            reader.join(_LAST_WORDS_SECONDS)
        for peer in self._node.peers:
            try:
                _say(peer, {"code": code})
            except OSError:
                continue  # it has gone already
        return code

    def _watch(self) -> int:
        """Wait for all ranks here, or for the first failure anywhere, and return the exit code."""
        peers = list(self._node.peers)
        while True:
            if code := self._failed():
                return code
            if all(each.poll() == 0 for each in self._processes):
                return 0
            for peer in select.select(peers, [], [], _LOOK_SECONDS)[0]:
                peers.remove(peer)
                if _left_well(peer) or self._terminated:
                    continue
                # A rank that failed here is the cause, and the other node only faster to say so.
                if code := self._failed():
                    return code
                sys.stderr.write("another node failed or is gone: ending the ranks of this one\n")
                return 1

    def _failed(self) -> int:
        """Return the exit code of a rank here that failed, as a shell has it; 0 while there is none."""
        for local, each in enumerate(self._processes):
            if code := each.poll():
                how = f"exit code {code}" if code > 0 else f"signal {-code}"
                sys.stderr.write(f"local rank {local} failed: {how}\n")
                return code if code > 0 else 128 - code
        return 0

    def _end(self) -> None:
        running = [each for each in self._processes if each.poll() is None]
        for each in running:
            each.terminate()
        deadline = time.monotonic() + _KILL_AFTER_SECONDS
        for each in running:
            try:
                each.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                each.kill()


def _left_well(peer: socket.socket) -> bool:
    """Return whether a node's last message reports success, or a stop on request, which the ranks here are about
    to get, too."""
    try:
        said = peer.recv(1024)
        return bool(said) and json.loads(said).get("code") in (0, EXIT_CODE)
    except (OSError, ValueError):
        return False


def _pass_on(source: IO[bytes] | None, sink: IO[str], prefix: bytes) -> None:
    """Copy each line with the rank's prefix, in the form of ``torchrun --tee``."""
    assert source is not None
    for line in source:
        sink.buffer.write(prefix + line)  # type: ignore[attr-defined]
        sink.flush()


if __name__ == "__main__":
    sys.exit(main())
