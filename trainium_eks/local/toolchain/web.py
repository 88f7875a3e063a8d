"""Requests to servers: one attempt each, and two kinds of failure, because the next step differs.

Proxies come from the environment (``HTTPS_PROXY``, ``NO_PROXY``).
"""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from trainium_eks.local.toolchain import store

_CONNECT_SECONDS = 5.0
_STALL_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20

_T = TypeVar("_T")


class RefusedError(Exception):
    """The error for a file that an answering host does not give, or that is wrong; the message says why."""

    def __init__(self, message: str, code: int = 0, challenge: str = "") -> None:
        super().__init__(message)
        self.code = code
        """HTTP's status, where that is the reason."""
        self.challenge = challenge
        """The host's demand for authorization (``WWW-Authenticate``)."""


class UnreachableError(Exception):
    """The error for a host that does not answer; the message says why."""


def get(url: str, headers: Mapping[str, str] | None = None, authorization: str = "") -> bytes:
    """Return a small file."""
    with _opened(url, _CONNECT_SECONDS, headers, authorization) as response:
        return _answered(url, response.read)


def save(url: str, to: Path, authorization: str = "") -> str:
    """Save a file and return its SHA-256."""
    digest = hashlib.sha256()
    done = 0
    with _opened(url, _STALL_SECONDS, None, authorization) as response:
        length = response.headers.get("Content-Length") or ""
        with store.writing(to.parent):
            to.write_bytes(b"")
        while chunk := _answered(url, lambda: response.read(_CHUNK_BYTES)):
            digest.update(chunk)
            done += len(chunk)
            with store.writing(to.parent), to.open("ab") as file:
                file.write(chunk)
    if length.isdigit() and done != int(length):
        raise UnreachableError(f"{url} broke off after {done} of {length} bytes")
    return digest.hexdigest()


def _opened(
    url: str, timeout_seconds: float, headers: Mapping[str, str] | None, authorization: str
) -> http.client.HTTPResponse:
    """Return an answer with its body unread.

    The authorization is sent to this host alone: registries redirect to stores that have signed the address, and refuse
    a request that brings a token as well.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "trainium-eks", **(headers or {})})
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    response: http.client.HTTPResponse = _answered(
        url, lambda: urllib.request.urlopen(request, timeout=timeout_seconds)
    )
    return response


def _answered(url: str, ask: Callable[[], _T]) -> _T:
    try:
        return ask()
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate") or ""
        raise RefusedError(f"{url}: {error.code} {error.reason}", error.code, challenge) from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        words = reason.strerror if isinstance(reason, OSError) else None
        raise UnreachableError(words or str(reason) or type(reason).__name__) from None
