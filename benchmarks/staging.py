"""How fast ``stage`` copies objects of an S3 server on this machine, beside plain copies of the same pieces.

Run by hand on an idle machine: ``python benchmarks/staging.py DIRECTORY``, with a directory of the file system in
question. ``disk`` writes the pieces from memory and syncs each; ``network`` asks the server for them and drops them;
``both`` writes and syncs what comes. These have as many threads as ``stage``, and take turns with it, and with the one
of another checkout's ``workloads`` (``--against``). The server sends a file of one piece again and again. The fastest
turn counts: memory that a virtual machine uses for the first time takes its host seconds.
"""

import argparse
import functools
import hashlib
import multiprocessing
import os
import random
import re
import resource
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
import isolated_run

PIECE, CHUNK, WORKERS = 2**24, 2**20, 16
"""Bytes of a request and of a write, and requests at once, as ``stage`` has them."""


class Objects(socketserver.StreamRequestHandler):
    """A connection to a bucket of equal objects: lists them, and sends pieces of them."""

    count, size, etag, file = 0, 0, "", 0
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Answer requests until the connection ends."""
        while first := self.rfile.readline():
            asked = re.search(rb"(?i)\nrange: bytes=(\d+)-(\d*)", b"\n" + b"".join(iter(self.rfile.readline, b"\r\n")))
            start, stop = (int(asked[1]), int(asked[2] or self.size - 1) + 1) if asked else (0, self.size)
            body = b""
            if b"list-type" in first:
                each = f".bin</Key><Size>{self.size}</Size><ETag>{self.etag}</ETag></Contents>"
                entries = "".join(f"<Contents><Key>set/{n:06d}{each}" for n in range(self.count))
                body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()
            head = f"HTTP/1.1 {206 if asked else 200} OK\r\nETag: {self.etag}\r\n"
            head += f"Content-Range: bytes {start}-{stop - 1}/{self.size}\r\n" if asked else ""
            self.wfile.write(f"{head}Content-Length: {len(body) or stop - start}\r\n\r\n".encode() + body)
            while first.startswith(b"GET") and not body and start < stop:
                here = start % PIECE
                start += os.sendfile(self.connection.fileno(), self.file, here, min(stop - start, PIECE - here))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--bytes", type=int, default=10**9, help="of each file")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--against", type=Path, metavar="WORKLOADS")
    asked = parser.parse_args()
    isolated_run.isolate()
    data = os.urandom(PIECE)
    # An object that is uploaded in parts has no MD5.
    etag = hashlib.md5(data[: asked.bytes]).hexdigest() if asked.bytes <= PIECE else f"{'a' * 32}-2"
    Objects.count, Objects.size, Objects.etag = asked.files, asked.bytes, f'"{etag}"'
    own = Path(__file__).resolve().parents[1] / "workloads"
    contestants = {"disk": functools.partial(_copy, data, True), "network": functools.partial(_copy, b"", False)}
    contestants |= {"both": functools.partial(_copy, b"", True), "stage": functools.partial(_stage, own)}
    if asked.against:
        contestants["stage before"] = functools.partial(_stage, asked.against.resolve())
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    socketserver.ThreadingTCPServer.request_queue_size = 4 * WORKERS
    with tempfile.TemporaryDirectory(dir=asked.directory) as place:
        Path(place, "data").write_bytes(data)
        Objects.file = os.open(f"{place}/data", os.O_RDONLY)
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Objects)
        multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True).start()
        for turn in range(asked.turns):
            # In another order each time: the disk is busy with the files of the one before for a while.
            for name in random.Random(turn).sample(list(contestants), len(contestants)):
                Path(place, "to").mkdir()
                began, used = time.monotonic(), _processor_seconds()
                contestants[name](Path(place, "to"), server.server_address[1])
                found[name].append((time.monotonic() - began, _processor_seconds() - used))
                shutil.rmtree(f"{place}/to")
                os.sync()
    disk, network, both = (min(found[name])[0] for name in ("disk", "network", "both"))
    limit = max(network, min(disk, both))
    print(f"{asked.files} x {asked.bytes:,} bytes   seconds     GB/s  files/s  of the limit  processor seconds")
    for name, turns in found.items():
        seconds, used = (min(each) for each in zip(*turns, strict=True))
        rates = f"{asked.files * asked.bytes / seconds / 1e9:8.2f} {asked.files / seconds:8.0f}"
        print(f"{name:22s} {seconds:9.2f} {rates} {limit / seconds:10.2f} {used:12.2f}")
    return 0


def _stage(workloads: Path, to: Path, port: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(workloads), "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}"}
    command = [sys.executable, "-m", "trainium_workloads.stage", "s3://bucket/set/", f"--workers={WORKERS}"]
    command += ["--root", str(to.parent), "--to", to.name]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def _copy(data: bytes, keeps: bool, to: Path, port: int) -> None:
    """Copy all pieces of all objects: from memory, or from the server."""
    own = threading.local()

    def copy(number: int, start: int) -> None:
        stop = min(start + PIECE, Objects.size)
        target = os.open(to / str(number) if keeps else os.devnull, os.O_WRONLY | os.O_CREAT)
        for at in range(start, stop, CHUNK) if data else ():
            os.pwrite(target, memoryview(data)[at - start : min(at + CHUNK, stop) - start], at)
        if not data:
            if not hasattr(own, "socket"):
                own.socket, own.buffer = socket.create_connection(("127.0.0.1", port)), memoryview(bytearray(CHUNK))
            line = f"GET /bucket/set/{number:06d}.bin HTTP/1.1\r\nRange: bytes={start}-{stop - 1}\r\n\r\n"
            own.socket.sendall(line.encode())
            have = own.socket.recv_into(own.buffer)
            body = bytes(own.buffer[:1000]).index(b"\r\n\r\n") + 4
            while (start := start + have - body) < stop or have > body:
                if keeps:
                    os.pwrite(target, own.buffer[body:have], start - have + body)
                have, body = own.socket.recv_into(own.buffer) if start < stop else 0, 0
        if keeps:
            os.fsync(target)
        os.close(target)

    pieces = [(number, start) for number in range(Objects.count) for start in range(0, Objects.size, PIECE)]
    # In memory all pieces are there at once: more threads would wait for the lock of one file, and spin.
    with ThreadPoolExecutor(2 if data and Objects.size > PIECE else WORKERS) as pool:
        list(pool.map(copy, *zip(*pieces, strict=True)))


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    sys.exit(main())
