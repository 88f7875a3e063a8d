"""Files of web servers, by urllib3."""

import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from trainium_workloads.stage.files import BUFFER, CopyInterruptedError, Fetched, File, StageError

_RETRIES = urllib3.Retry(
    total=6,
    redirect=5,
    backoff_factor=0.5,
    status_forcelist=(408, 425, 429, 500, 502, 503, 504),
    raise_on_status=False,
)


class Web:
    """One file at ``https://…``. A proxy comes from the environment."""

    revision = ""

    def __init__(self, source: str) -> None:
        parts = urlsplit(source)
        if not parts.hostname:
            raise StageError(f"{source} is not an http or https URL")
        self._source = source
        proxies = {} if urllib.request.proxy_bypass(parts.hostname) else urllib.request.getproxies()
        options: Any = {"retries": _RETRIES, "timeout": urllib3.Timeout(60)}
        proxy = proxies.get(parts.scheme)
        self._pool = urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)

    def list_files(self) -> Iterable[File]:
        """See :class:`trainium_workloads.stage.files.Source`. An answer to a request for the first byte has the file's
        size and version: not all servers answer HEAD, and a signed URL is for GET alone."""
        name = unquote(urlsplit(self._source).path).rstrip("/").rpartition("/")[2]
        answer = self._open("bytes=0-0")
        answer.close()
        if answer.status == 416:  # nothing at all is in the file
            return [File(name, self._source, 0)]
        length = answer.headers.get("Content-Length", "")
        if answer.status == 206:
            length = answer.headers.get("Content-Range", "").rpartition("/")[2]
        size = int(length) if length.isdigit() and not answer.headers.get("Content-Encoding") else None
        return [File(name, self._source, size, _version(answer))]

    def fetch(self, file: File, part: Path) -> Fetched:
        """See :class:`trainium_workloads.stage.files.Source`. A part of the same version is continued: a file of a day
        would else begin anew with every pod."""
        there = part.stat().st_size if part.exists() and file.version else 0
        if there and there == file.size:
            return Fetched()
        answer = self._open(f"bytes={there}-" if there else "", file.version)
        try:
            if file.version and _version(answer) not in ("", file.version):
                raise CopyInterruptedError(f"{file.where} changed after it was listed")
            # A server without ranges sends all.
            follows = answer.headers.get("Content-Range", "").startswith(f"bytes {there}-")
            with part.open("ab" if follows else "wb") as out:
                for piece in answer.stream(BUFFER, decode_content=False):
                    out.write(piece)
        except HTTPError as error:
            raise CopyInterruptedError(f"{file.where} breaks off: {error}") from None
        finally:
            answer.release_conn()
        return Fetched()

    def _open(self, span: str, version: str = "") -> urllib3.BaseHTTPResponse:
        """Return the answer to a request, with its body unread. ``span`` is the value of ``Range``, empty for all of
        the file; ``version`` that of ``If-Range``: all of the file comes where it has another version."""
        url, headers = self._source, {"User-Agent": "trainium-eks", "Accept-Encoding": "identity"}
        headers |= {"Range": span, "If-Range": version} if span else {}
        try:
            answer = self._pool.request("GET", url, headers=headers, preload_content=False)
        except HTTPError as error:
            raise CopyInterruptedError(f"{url}: {error}") from None
        if urlsplit(end := answer.geturl() or url).scheme not in ("", "https", urlsplit(url).scheme):
            raise StageError(f"{url} redirects to {end}, which is not encrypted")
        if answer.status in _RETRIES.status_forcelist:
            raise CopyInterruptedError(f"{url}: {answer.status}")
        if answer.status >= 400 and answer.status != 416:
            raise StageError(f"{url}: {answer.status}" + " (not public?)" * (answer.status in (401, 403)))
        return answer


def _version(answer: urllib3.BaseHTTPResponse) -> str:
    """Return the ETag, unless it is a weak one (bytes may change under it), or the time of the last modification."""
    etag = answer.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified", "")
