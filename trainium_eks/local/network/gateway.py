"""The way out of the pods' network: a proxy for HTTP and HTTPS, and the API server, at the bridge's address.

Pods have no route out of their network and reach the outside through a proxy only, as in companies' networks:
downloads, object storage, package indexes. The gateway listens in the pods' network and connects from the machine's
network, with sockets that a forked process opens in one and hands over. A request to ``localhost`` goes first to the
pod that sends it, and then to the machine, where a developer's servers run.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from trainium_eks.local import linux
from trainium_eks.local.linux import Namespaces
from trainium_eks.local.network import network

PROXY_PORT = 3128
API_PORT = 6443
PROXY = f"http://{network.GATEWAY}:{PROXY_PORT}"
"""Value of ``http_proxy`` and ``https_proxy`` in pods."""
API_SERVER = (network.GATEWAY, API_PORT)

_HEAD_SECONDS = 10.0
_CONNECT_SECONDS = 20.0
_HEAD_LIMIT = 2**16

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Gateway:
    """The gateway of a stack's pods."""

    def __init__(self, network_pid: int, api_server: tuple[str, int], holder_of: Callable[[str], int]) -> None:
        """Make a gateway that does not listen yet.

        ``holder_of`` returns a process in the network of the pod with an address; 0 for none.
        """
        self._network_pid = network_pid
        self._api_server = api_server
        self._holder_of = holder_of

    async def serve(self) -> None:
        """Begin to listen."""
        ports = (PROXY_PORT, API_PORT)
        proxy, api = await opened_in(
            self._network_pid, lambda: [socket.create_server((network.GATEWAY, port)) for port in ports]
        )
        await asyncio.start_server(self._proxied, sock=proxy, limit=_HEAD_LIMIT)
        await asyncio.start_server(self._to_api_server, sock=api)

    async def _to_api_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await _joined((reader, writer), await asyncio.open_connection(*self._api_server))
        writer.close()

    async def _proxied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            host, port, first = parse_request(head)
            client = str(writer.get_extra_info("peername")[0])
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    there = await self._connected(client, host, port)
            except (OSError, TimeoutError) as error:
                text = f"{host}:{port} cannot be reached from this machine: {error or 'no answer'}\n".encode()
                writer.write(b"HTTP/1.1 502 x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
                await writer.drain()
            else:
                if first:
                    there[1].write(first)
                else:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _joined((reader, writer), there)
        writer.close()

    async def _connected(self, client: str, host: str, port: int) -> _Streams:
        try:
            address = ip_address("127.0.0.1" if host == "localhost" else host)
        except ValueError:
            return await asyncio.open_connection(host, port)  # another name
        is_loopback, is_pod = address.is_loopback, address in network.RANGE
        inside = self._holder_of(client) if is_loopback else self._network_pid if is_pod else 0
        if inside:
            try:
                (found,) = await opened_in(inside, lambda: [socket.create_connection((host, port), timeout=5)])
                return await asyncio.open_connection(sock=found)
            except OSError:
                if not is_loopback:
                    raise
        return await asyncio.open_connection(host, port)


def parse_request(head: bytes) -> tuple[str, int, bytes]:
    """Return host and port of a request to a proxy, and the first bytes to send there: none for ``CONNECT``.

    A :class:`ValueError` says that it is no request to a proxy.
    """
    line, _, rest = head.partition(b"\r\n")
    method, target, version = line.decode("latin-1").split(" ")
    if method == "CONNECT":
        host, _, port = target.rpartition(":")
        return host.strip("[]"), int(port), b""
    parts = urlsplit(target)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"no request to a proxy: {target}")
    path = target[target.index("/", len("http://")) :] if "/" in target[len("http://") :] else "/"
    # One request a connection: the next request may be for another host.
    kept = [each for each in rest.split(b"\r\n") if not each.lower().startswith((b"proxy-", b"connection:"))]
    headers = b"\r\n".join([b"Connection: close", *kept])
    return parts.hostname, parts.port or 80, f"{method} {path} {version}\r\n".encode("latin-1") + headers


async def opened_in(pid: int, opened: Callable[[], Sequence[socket.socket]]) -> list[socket.socket]:
    """Return sockets that are opened in another process's network namespace."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        _hand_over(pid, opened, theirs)
    theirs.close()
    ours.setblocking(False)
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(ours, _done, ready)
    try:
        await ready
        said, descriptors, _, _ = socket.recv_fds(ours, 1024, 8)
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        ours.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    if not descriptors:
        raise OSError(said.decode() or "nothing was opened")
    return [socket.socket(fileno=each) for each in descriptors]


def _done(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def _hand_over(pid: int, opened: Callable[[], Sequence[socket.socket]], theirs: socket.socket) -> None:
    """Open sockets in a process's network and send them, in a forked process. Does not return."""
    with contextlib.suppress(BaseException):
        try:
            linux.join(pid, Namespaces.USER | Namespaces.NET)
            made = opened()
            socket.send_fds(theirs, [b"x"], [each.fileno() for each in made])
        except OSError as error:
            theirs.send(str(error).encode()[:1000])
    os._exit(0)


async def _joined(one: _Streams, other: _Streams) -> None:
    """Pass data on in both directions until both sides have ended."""
    try:
        await asyncio.gather(_passed(one[0], other[1]), _passed(other[0], one[1]))
    finally:
        other[1].close()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(2**18):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
