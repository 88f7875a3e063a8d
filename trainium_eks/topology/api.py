"""The API server, as a program asks it in a pod that has Python and nothing else."""

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NODES = "/api/v1/nodes"
REQUEST_SECONDS = 30.0
MERGE = "application/merge-patch+json"

_PAGE = 500

Object = Mapping[str, Any]


class ApiStatusError(Exception):
    """An answer of the API server that is no success."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"{status} {message}")


Failures = (OSError, http.client.HTTPException, ValueError, ApiStatusError)
"""What a request may end with: no connection, no HTTP, no JSON, no success."""


class Connection:
    """A connection to the API server, for one thread.

    It has the rights of a service account: ``account`` is the directory with the files ``token`` and ``ca.crt``. An
    answer, or the next line of a watch, may take ``seconds``.
    """

    def __init__(self, host: str, port: int, account: Path, seconds: float = REQUEST_SECONDS) -> None:
        tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        self._http = http.client.HTTPSConnection(host, port, timeout=seconds, context=tls)
        self._token = account / "token"

    def send(
        self, method: str, path: str, body: Object | None = None, *, accept: str = "", content: str = ""
    ) -> http.client.HTTPResponse:
        """Send a request and return the answer, which is still to be read.

        After one of :data:`Failures` the next request opens a new connection.
        """
        # The kubelet renews the token.
        headers = {"Authorization": f"Bearer {self._token.read_text(encoding='utf-8')}"}
        headers |= {"Accept": accept or "application/json", "Content-Type": content or "application/json"}
        try:
            self._http.request(method, path, None if body is None else json.dumps(body), headers)
            answer = self._http.getresponse()
            if answer.status >= http.HTTPStatus.BAD_REQUEST:
                raise ApiStatusError(answer.status, f"{method} {path}: {answer.read().decode(errors='replace')[:400]}")
        except Failures:
            self.close()
            raise
        return answer

    def items(self, path: str, accept: str = "", labels: str = "") -> tuple[list[Object], str]:
        """Return all objects at a path, or those that a selector of labels takes, and the version of the list."""
        found: list[Object] = []
        after = ""
        while True:
            given = {"continue": after, "labelSelector": labels}
            query = urllib.parse.urlencode({"limit": _PAGE} | {key: value for key, value in given.items() if value})
            with self.send("GET", f"{path}?{query}", accept=accept) as answer:
                page = json.load(answer)
            found += page["items"]
            after = page["metadata"].get("continue", "")
            if not after:
                return found, page["metadata"]["resourceVersion"]

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
