"""Requests over HTTP for copies that take days: kept connections, patience, redirects without secrets.

Not urllib.request, which opens a connection for every request: with TLS that is most of the time of a small file.
Proxies come from the environment (``https_proxy``, ``http_proxy``, ``no_proxy``).
"""

import email.utils
import http.client
import os
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from trainium_workloads.stage.files import Interrupted, StageError, lowered

TIMEOUT_SECONDS = 60.0
"""Longest silence of a server."""
ATTEMPTS = 8
"""Tries of one request; with the pauses between them, three minutes of a server that is away."""
REDIRECTS = 5
LONGEST_PAUSE_SECONDS = 60.0

BROKEN = (OSError, http.client.HTTPException, ssl.SSLError)
"""Errors of a connection that ends before its time."""
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})

Headers = Callable[[str, str], Mapping[str, str]]
"""Method and URL to the headers of one request."""


class Answer(Protocol):
    """Answer of a server: to be read in pieces."""

    @property
    def status(self) -> int:
        """Status code, such as 200."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers, with names in lower case."""
        ...

    def read(self, amount: int) -> bytes:
        """Return at most this number of bytes; none at the end."""
        ...


class Web:
    """Connections of one process, one for each thread and server."""

    def __init__(self, *, timeout_seconds: float = TIMEOUT_SECONDS, pause: Callable[[float], object] = time.sleep):
        self._timeout_seconds = timeout_seconds
        self._pause = pause
        self._mine = threading.local()

    @contextmanager
    def open(self, method: str, url: str, headers: Headers, also: Mapping[str, str] | None = None) -> Iterator[Answer]:
        """Send a request and follow redirects; repeat it within limits while the server says "later" or is away.

        An answer of 400 and more is left to the caller. Reading the body may break off (:data:`BROKEN`).

        Args:
            method: ``GET`` or ``HEAD``.
            url: ``http``, ``https``, or ``file`` for one of this machine.
            headers: called for each request; left out after a redirect to another server, which must not learn a token.
            also: further headers, for all requests.

        Raises:
            Interrupted: no answer, or always "later".
            StageError: a URL or a redirect that cannot be followed.
        """
        if urlsplit(url).scheme == "file":
            local = _FileAnswer(url, also or {})
            try:
                yield local
            finally:
                local.close()
            return
        answer, keep = self._ask(method, url, headers, also or {})
        done = False
        try:
            yield answer
            done = True
        finally:
            # A body that was not read to its end is still on its way, and would be taken for the next answer.
            if not (done and answer.is_read) or not keep:
                self._drop(answer.origin)

    def _ask(self, method: str, url: str, headers: Headers, also: Mapping[str, str]) -> "tuple[_HttpAnswer, bool]":
        origin = _origin(url)
        for _ in range(REDIRECTS + 1):
            own = headers(method, url) if _origin(url) == origin else {}
            answer, keep = self._patiently(method, url, lambda own=own: {**own, **also})  # type: ignore[misc]
            location = answer.headers.get("location", "")
            if answer.status not in (301, 302, 303, 307, 308) or not location:
                return answer, keep
            self._drop(answer.origin)
            target = urljoin(url, location)
            if urlsplit(target).scheme not in ("https", urlsplit(url).scheme):
                raise StageError(f"{url} redirects to {target}, which is not encrypted")
            url = target
        raise StageError(f"{url} redirects more than {REDIRECTS} times")

    def _patiently(self, method: str, url: str, headers: Callable[[], Mapping[str, str]]) -> "tuple[_HttpAnswer, bool]":
        why = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(min(2.0**attempt, LONGEST_PAUSE_SECONDS))
            try:
                answer, keep = self._once(method, url, headers())
            except http.client.InvalidURL as error:
                raise StageError(f"{url} is no URL: {error}") from None
            except ssl.SSLCertVerificationError as error:
                raise StageError(f"{url}: its certificate is not trusted: {error.verify_message}") from None
            except BROKEN as error:
                self._drop(_origin(url))
                why = str(error) or type(error).__name__
                continue
            if answer.status not in _LATER:
                return answer, keep
            why = f"{answer.status} {answer.reason}"
            self._drop(_origin(url))
            self._pause(_retry_after_seconds(answer.headers))
        raise Interrupted(f"{url}: {why} ({ATTEMPTS} tries)")

    def _once(self, method: str, url: str, headers: Mapping[str, str]) -> "tuple[_HttpAnswer, bool]":
        origin = _origin(url)
        target = target_of(url)
        kept = self._connections.get(origin)
        # The server may have closed a connection that was kept: that is no fault, and asked again at once.
        for known in [kept, None] if kept else [None]:
            connection = known or self._connect(origin)
            try:
                connection.request(method, target, headers={"User-Agent": "trainium-eks", **headers})
                response = connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
                self._drop(origin)
                if connection is not kept:
                    raise
                continue
            return _HttpAnswer(origin, response), not response.will_close
        raise AssertionError("unreachable")

    @property
    def _connections(self) -> dict[str, http.client.HTTPConnection]:
        found: dict[str, http.client.HTTPConnection] | None = getattr(self._mine, "connections", None)
        if found is None:
            found = self._mine.connections = {}
        return found

    def _connect(self, origin: str) -> http.client.HTTPConnection:
        connection = connection_to(origin, self._timeout_seconds)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connections[origin] = connection
        return connection

    def _drop(self, origin: str) -> None:
        connection = self._connections.pop(origin, None)
        if connection is not None:
            connection.close()


class _HttpAnswer:
    """See :class:`Answer`."""

    def __init__(self, origin: str, response: http.client.HTTPResponse) -> None:
        self.origin = origin
        self.status = response.status
        self.reason = response.reason
        self.headers = lowered(dict(response.getheaders()))
        self._response = response

    @property
    def is_read(self) -> bool:
        return self._response.isclosed()

    def read(self, amount: int) -> bytes:
        piece = self._response.read(amount)
        # http.client answers an early end of a known length with less, and no error (bpo-25007 made it so for read(n)).
        if not piece and self._response.length:
            raise http.client.IncompleteRead(b"", self._response.length)
        return piece


class _FileAnswer:
    """A file of this machine, in the form of a server's answer with ranges."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        path = unquote(urlsplit(url).path)
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - read while it lives
        except OSError as error:
            raise StageError(f"{path} cannot be read: {error.strerror}") from None
        size = os.fstat(self._file.fileno()).st_size
        wanted = lowered(headers).get("range", "").removeprefix("bytes=")
        first, _, last = wanted.partition("-")
        self._left = (int(last) + 1 if last else size) - int(first or 0)
        self._file.seek(int(first or 0))
        self.status = 206 if wanted else 200
        self.headers: Mapping[str, str] = {"content-length": str(self._left)}

    def read(self, amount: int) -> bytes:
        piece = self._file.read(min(amount, self._left))
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        self._file.close()


def connection_to(url: str, timeout_seconds: float) -> http.client.HTTPConnection:
    """Return a connection to a URL's server, by the environment's proxy where it names one; opened at the first
    request.

    Raises:
        StageError: neither ``http`` nor ``https``.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StageError(f"{url or 'an empty URL'} is no http or https URL")
    made = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    proxy = _proxy(url)
    if proxy is None:
        return made(parts.hostname, parts.port, timeout=timeout_seconds)
    connection = made(proxy.hostname or "", proxy.port or 80, timeout=timeout_seconds)
    if parts.scheme == "https":
        connection.set_tunnel(parts.hostname, parts.port or 443)
    return connection


def target_of(url: str) -> str:
    """Return the target of a request on a connection of :func:`connection_to`: a path, or for a plain HTTP proxy
    the URL."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return f"{_origin(url)}{path}" if parts.scheme == "http" and _proxy(url) else path


def _proxy(url: str) -> SplitResult | None:
    parts = urlsplit(url)
    named = urllib.request.getproxies_environment().get(parts.scheme, "")
    if not named or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urlsplit(named if "://" in named else f"http://{named}")


def text(
    web: Web, url: str, headers: Headers, also: Mapping[str, str] | None = None
) -> tuple[int, Mapping[str, str], str]:
    """Return status, headers and whole body of a small answer; read again where it breaks off.

    Raises:
        Interrupted, StageError: see :meth:`Web.open`.
    """
    why: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            with web.open("GET", url, headers, also) as answer:
                pieces = []
                while piece := answer.read(65536):
                    pieces.append(piece)
                return answer.status, answer.headers, b"".join(pieces).decode(errors="replace")
        except BROKEN as error:
            why = error
    raise Interrupted(f"{url}: {why}")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _retry_after_seconds(headers: Mapping[str, str]) -> float:
    """Return the pause that the server wants, in either form (RFC 9110, 10.2.3), at most a minute."""
    asked = headers.get("retry-after", "")
    if asked.isdigit():
        return min(float(asked), LONGEST_PAUSE_SECONDS)
    try:
        when = email.utils.parsedate_to_datetime(asked)
    except (TypeError, ValueError):
        return 0.0
    return max(0.0, min(when.timestamp() - time.time(), LONGEST_PAUSE_SECONDS))
