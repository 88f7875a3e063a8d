"""Serves the hardware counters of a node's EFA interfaces to Prometheus. Standard library only.

node-exporter's InfiniBand collector reads a fixed list of counter names, none of which EFA's driver has. Series are
named as AWS' own exporter for EFA names them: ``node_amazonefa_<counter>`` with ``device`` and ``port``.

    python exporter.py SYSFS PORT        SYSFS is the node's /sys, as it is mounted here
"""

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PREFIX = "node_amazonefa_"
GAUGES = frozenset({"lifespan"})
"""Files beside the counters that are settings: milliseconds for which the kernel answers from memory."""


def samples(sysfs: Path) -> Iterator[tuple[str, str, str, int]]:
    """Counter, device, port and value, of every EFA interface of the node.

    A counter that the driver does not have on this device (``Operation not supported``) is left out: a zero would be
    a claim.
    """
    for device in sorted((sysfs / "class" / "infiniband").glob("*")):
        if driver(device) != "efa":
            continue
        for port in sorted((device / "ports").glob("*")):
            for file in sorted((port / "hw_counters").glob("*")):
                try:
                    yield file.name, device.name, port.name, int(file.read_text())
                except (OSError, ValueError):
                    continue


def driver(device: Path) -> str:
    """The kernel driver of a device; empty where that cannot be read."""
    try:
        return (device / "device" / "driver").resolve().name
    except OSError:
        return ""


def exposition(sysfs: Path) -> str:
    """Everything, in Prometheus' text format."""
    by_counter: dict[str, list[str]] = {}
    for counter, device, port, value in samples(sysfs):
        line = f'{PREFIX}{counter}{{device="{device}",port="{port}"}} {value}'
        by_counter.setdefault(counter, []).append(line)
    lines = []
    for counter, found in by_counter.items():
        lines += [f"# TYPE {PREFIX}{counter} {'gauge' if counter in GAUGES else 'counter'}", *found]
    return "\n".join([*lines, ""])


def serve(sysfs: Path, port: int) -> ThreadingHTTPServer:
    """The server, bound and not yet serving."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path in ("/metrics", "/healthz")
            body = exposition(sysfs).encode() if self.path == "/metrics" else b""
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a scrape every half minute is no news."""

    return ThreadingHTTPServer(("", port), Handler)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2])).serve_forever()
