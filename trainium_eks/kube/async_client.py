"""The pod agent's client of the API server: JSON over HTTPS, without a thread and with the standard library alone.

The official client takes a second to load and 70 MB; the agent is to be cheap, and needs a handful of calls.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlencode

_TIMEOUT_SECONDS = 30.0
_LINE_LIMIT = 2**24  # an object is at most 1.5 MiB in etcd, and its JSON larger
_KEPT_CONNECTIONS = 4


class ApiStatusError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        """HTTP status."""
        try:
            self.message = str(json.loads(body)["message"])
        except (ValueError, KeyError, TypeError):
            self.message = body.decode(errors="replace")[:300]
        super().__init__(f"{status} {self.message}")


class UnreachableError(Exception):
    """The API server does not answer."""


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ApiClient:
    """Client of one API server, for one event loop."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._idle: list[_Connection] = []

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Send JSON and return the JSON answered. ApiStatusError: the server refused. Unreachable: it does not answer,
        or not in time; the request may have been carried out."""
        reused = bool(self._idle)
        try:
            return await self._once(method, path, body, query, content_type)
        except UnreachableError:
            # The server has closed the connection meanwhile; that is only known now.
            if not reused or method == "POST":
                raise
            self._forget()
            return await self._once(method, path, body, query, content_type)

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch, until the server ends it. ApiStatusError: the server refused. Unreachable: it
        cannot be reached, or the connection breaks off."""
        connection = await self._connect()
        reader, writer = connection
        try:
            await self._send(writer, "GET", path, None, {**query, "watch": "true"}, "")
            status, headers = await asyncio.wait_for(_head(reader), _TIMEOUT_SECONDS)
            if status >= 400:
                raise ApiStatusError(status, await _body(reader, headers))
            rest = b""
            async for chunk in _chunks(reader):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
        finally:
            writer.close()

    def close(self) -> None:
        """Close all idle connections."""
        self._forget()

    async def _once(
        self, method: str, path: str, body: object, query: Mapping[str, str] | None, content_type: str
    ) -> dict[str, Any]:
        reader, writer = connection = self._idle.pop() if self._idle else await self._connect()
        whole = False
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._send(writer, method, path, body, query or {}, content_type)
                status, headers = await _head(reader)
                data = await _body(reader, headers)
            whole = headers.get("connection", "").lower() != "close"
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
        finally:
            if whole and len(self._idle) < _KEPT_CONNECTIONS:
                self._idle.append(connection)
            else:
                writer.close()
        if status >= 400:
            raise ApiStatusError(status, data)
        answer: dict[str, Any] = json.loads(data)
        return answer

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=_LINE_LIMIT)
        except (OSError, TimeoutError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from error

    async def _send(
        self, writer: asyncio.StreamWriter, method: str, path: str, body: object, query: Mapping[str, str], kind: str
    ) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        target = f"{path}?{urlencode(query)}" if query else path
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._host}:{self._port}", "Accept: application/json"]
        lines += ["User-Agent: trn-pod-agent", f"Content-Length: {len(data)}"]
        if data:
            lines.append(f"Content-Type: {kind}")
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await writer.drain()

    def _forget(self) -> None:
        for _, writer in self._idle:
            with contextlib.suppress(OSError):
                writer.close()
        self._idle = []


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    line = await reader.readline()
    parts = line.split()
    if len(parts) < 2:
        raise EOFError("the connection was closed")
    headers = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(parts[1]), headers


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return b"".join([chunk async for chunk in _chunks(reader)])
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read()


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while True:
        line = await reader.readline()
        if not line:
            raise EOFError("the connection was closed")
        size = int(line.split(b";")[0], 16)
        if size == 0:
            await reader.readline()
            return
        yield await reader.readexactly(size)
        await reader.readexactly(2)
