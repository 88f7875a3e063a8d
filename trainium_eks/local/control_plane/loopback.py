"""A small client of the API server for starts, without a client library, which takes a second to load."""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import Any

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane import credentials
from trainium_eks.local.control_plane.flags import HOST
from trainium_eks.local.paths import Paths

_LOOK_SECONDS = 10.0
"""Timeout of a look, which is repeated."""
_REQUEST_SECONDS = 65.0
"""A little more than the API server's own limit (``--request-timeout``, 60 s)."""


class Loopback:
    """The client of an API server on this machine, with the administrator's rights."""

    def __init__(self, paths: Paths, port: int) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(credentials.certificate(paths, "ca")))
        self._tls.load_cert_chain(
            credentials.certificate(paths, credentials.ADMINISTRATOR), credentials.key(paths, credentials.ADMINISTRATOR)
        )

    def has(self, path: str) -> bool:
        """Return whether a path is answered with success; False when the API server cannot be reached."""
        try:
            return self._request("GET", path, _LOOK_SECONDS)[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer to a path."""
        answer: dict[str, Any] = json.loads(self._successful("GET", path))
        return answer

    def delete(self, path: str) -> None:
        """Delete the object or the whole collection at a path."""
        self._successful("DELETE", path)

    def _successful(self, method: str, path: str) -> bytes:
        try:
            status, body = self._request(method, path, _REQUEST_SECONDS)
        except (OSError, http.client.HTTPException) as error:
            raise LocalCloudError(
                f"The API server at {HOST}:{self._port} does not answer {method} {path}: {error}"
            ) from error
        if status not in (http.HTTPStatus.OK, http.HTTPStatus.CREATED, http.HTTPStatus.ACCEPTED):
            raise LocalCloudError(
                f"The API server refuses {method} {path}: {status} {body.decode(errors='replace')[:400]}"
            )
        return body

    def _request(self, method: str, path: str, timeout_seconds: float) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(HOST, self._port, timeout=timeout_seconds, context=self._tls)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def is_healthy(url: str) -> bool:
    """Return whether a process of this machine answers a health check with 200."""
    try:
        # Without a proxy: a proxy of the environment does not reach this machine's loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
