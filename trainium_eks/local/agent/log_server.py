"""The server for logs of pods, which replaces the kubelets of all nodes.

It serves the API server only, and checks its client certificate.
"""

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qs, unquote, urlsplit

from trainium_eks.local.control_plane import kubelet
from trainium_eks.local.runtime.output import LogFilter, Reader, Selection, timestamp
from trainium_eks.local.spec.plan import PodDirectory

FOLLOW_SECONDS = 0.2
"""Interval between two looks at a log that is followed."""

_REQUEST_SECONDS = 60.0

# A Status object: clients show its message; for any other answer they report that they cannot read it.
_FAILURE = {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure"}
_NO_EXEC = json.dumps({**_FAILURE, "message": kubelet.NO_EXEC, "reason": "NotImplemented", "code": 501})


@dataclass(frozen=True)
class ContainerRun:
    """One run of a container, with its log."""

    directory: PodDirectory
    container: str
    restart: int
    is_running: Callable[[], bool]
    """Returns whether the log may still grow."""


class NoLogError(Exception):
    """The error for a log that does not exist; the message says why, as a kubelet does."""


Find = Callable[[str, str, str, bool], ContainerRun | None]
"""Finds a log by namespace, pod, container and "of the previous run"; None for a simulated pod."""


class LogServer:
    """The HTTPS server that answers the API server."""

    def __init__(self, find: Find) -> None:
        self._find = find

    async def serve(self, host: str, port: int, tls: ssl.SSLContext) -> asyncio.Server:
        """Begin to listen."""
        return await asyncio.start_server(self._answer, host, port, ssl=tls)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError, EOFError, ValueError, TimeoutError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                method, target, *_ = (await reader.readline()).decode("latin-1").split()
                while (await reader.readline()).strip():
                    pass
            if not is_api_server(writer.get_extra_info("peercert")):
                await _say(writer, 403, "only the API server of this stack is answered\n")
            else:
                await self._route(writer, method, target)
        with contextlib.suppress(OSError, ssl.SSLError):
            writer.close()

    async def _route(self, writer: asyncio.StreamWriter, method: str, target: str) -> None:
        parts = urlsplit(target)
        kind, *names = [unquote(each) for each in parts.path.strip("/").split("/")]
        if kind in ("exec", "attach", "portForward", "run"):
            await _say(writer, 501, _NO_EXEC, "application/json")
        elif kind == "containerLogs" and len(names) == 3 and method == "GET":
            await self._logs(writer, names, parse_qs(parts.query))
        else:
            await _say(writer, 404, "not found\n")

    async def _logs(self, writer: asyncio.StreamWriter, names: list[str], query: Mapping[str, list[str]]) -> None:
        namespace, pod, container = names
        try:
            run = self._find(namespace, pod, container, query.get("previous", ["false"])[0] == "true")
            wanted = parse_filter(query, time.time())
        except (NoLogError, ValueError) as error:
            await _say(writer, 400, str(error))
            return
        if run is None:
            await _say(writer, 200, f"{kubelet.MESSAGE}\n")
            return
        reader = Reader(run.directory.log(container, run.restart))
        try:
            await _stream(writer, reader, run, wanted)
        finally:
            reader.close()


def parse_filter(query: Mapping[str, list[str]], now: float) -> LogFilter:
    """Return the log filter for the parameters of a request.

    A :class:`ValueError` names a parameter that cannot be parsed.
    """
    given = {name: values[0] for name, values in query.items() if values and values[0]}
    since = ""
    if "sinceSeconds" in given:
        since = timestamp(now - int(given["sinceSeconds"]))
    elif "sinceTime" in given:
        since = timestamp(datetime.fromisoformat(given["sinceTime"].replace("Z", "+00:00")).timestamp())
    return LogFilter(
        follow=given.get("follow") == "true",
        tail=int(given["tailLines"]) if "tailLines" in given else None,
        since=since,
        timestamps=given.get("timestamps") == "true",
        limit_bytes=int(given["limitBytes"]) if "limitBytes" in given else None,
    )


def is_api_server(certificate: Mapping[str, object] | None) -> bool:
    """Return whether a certificate of the stack's authority is the API server's certificate for kubelets."""
    names = (certificate or {}).get("subject") or ()
    assert isinstance(names, tuple)
    return any(("commonName", kubelet.CLIENT_USER) in each for each in names)


async def _stream(writer: asyncio.StreamWriter, reader: Reader, run: ContainerRun, wanted: LogFilter) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    selection = Selection(wanted)
    data = selection.first(reader)
    while True:
        if data:
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
        if writer.is_closing() or selection.is_full:
            break
        # Before the read: lines written between this check and the run's end are still read.
        goes_on = wanted.follow and run.is_running()
        data = selection.more(reader)
        if not goes_on and not data:
            break
        if goes_on and not data:
            await asyncio.sleep(FOLLOW_SECONDS)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _say(writer: asyncio.StreamWriter, status: int, text: str, kind: str = "text/plain") -> None:
    body = text.encode()
    head = f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
