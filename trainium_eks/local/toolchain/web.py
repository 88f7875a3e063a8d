"""Requests to servers: one attempt each, and two kinds of failure, because the next step differs.

Proxies come from the environment (``HTTPS_PROXY``, ``NO_PROXY``).
"""

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import TypeVar

CONNECT_SECONDS = 5.0
STALL_SECONDS = 30.0

_T = TypeVar("_T")


class DownloadRefusedError(Exception):
    """The error for a file that an answering host does not give; the message says why."""

    def __init__(self, message: str, code: int = 0, challenge: str = "") -> None:
        super().__init__(message)
        self.code = code
        """HTTP's status, where that is the reason."""
        self.challenge = challenge
        """The host's demand for authorization (``WWW-Authenticate``)."""


class Unreachable(Exception):  # noqa: N818 - reads as what it is where it is raised
    """The error for a host that does not answer; the message says why."""


def get(url: str, headers: Mapping[str, str] | None = None, authorization: str = "") -> bytes:
    """Return a small file.

    Raises:
        DownloadRefusedError: the host does not give it.
        Unreachable: the host does not answer.
    """
    with opened(url, CONNECT_SECONDS, headers, authorization) as response:
        return answered(url, response.read)


def opened(
    url: str, timeout_seconds: float, headers: Mapping[str, str] | None = None, authorization: str = ""
) -> http.client.HTTPResponse:
    """Return an answer with its body unread.

    Args:
        url: address of the request.
        timeout_seconds: how long the host may be silent.
        headers: headers of the request.
        authorization: sent to this host alone. Registries redirect to stores that have signed the address, and refuse a
            request that brings a token as well.

    Raises:
        DownloadRefusedError: the host does not give it.
        Unreachable: the host does not answer.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "trainium-eks", **(headers or {})})
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    response: http.client.HTTPResponse = answered(url, lambda: urllib.request.urlopen(request, timeout=timeout_seconds))
    return response


def answered(url: str, ask: Callable[[], _T]) -> _T:
    """Return the result of a request, with failures as one of the two errors."""
    try:
        return ask()
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate") or ""
        raise DownloadRefusedError(f"{url}: {error.code} {error.reason}", error.code, challenge) from None
    except urllib.error.URLError as error:
        raise Unreachable(_words(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(_words(error)) from None


def _words(error: object) -> str:
    words = error.strerror if isinstance(error, OSError) else None
    return words or str(error) or type(error).__name__
