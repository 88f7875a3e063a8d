"""Files of web servers, by urllib3, and of lists of such files."""

import json
import re
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from trainium_workloads.stage.files import BUFFER, CopyInterruptedError, File, SourceChangedError, StageError

_LINE = re.compile(r"(?:(?P<sha256>[0-9a-fA-F]{64})[ \t]+\*?)?(?P<where>[^\s#].*)")
_RETRIES = urllib3.Retry(
    total=6,
    redirect=5,
    backoff_factor=0.5,
    status_forcelist=(408, 425, 429, 500, 502, 503, 504),
    raise_on_status=False,
)


class Web:
    """One file at ``https://…``, or the files of a list there. A proxy comes from the environment.

    A list is JSON, ``[{"url": ..., "path": ..., "sha256": ..., "size": ...}]`` with the URL alone required, or text
    with a line a file: a URL, or a line of ``sha256sum``. URLs are relative to the list's own.
    """

    revision = ""

    def __init__(self, source: str, workers: int, *, is_list: bool) -> None:
        parts = urlsplit(source)
        if not parts.hostname:
            raise StageError(f"{source} is no http or https URL")
        self._source, self._is_list, self._workers = source, is_list, workers
        proxies = {} if urllib.request.proxy_bypass(parts.hostname) else urllib.request.getproxies()
        options: Any = {"maxsize": workers, "retries": _RETRIES, "timeout": urllib3.Timeout(60)}
        proxy = proxies.get(parts.scheme)
        self._pool = urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)

    def list_files(self) -> Iterable[File]:
        """See :class:`trainium_workloads.stage.files.Source`."""
        if not self._is_list:
            name = unquote(urlsplit(self._source).path).rstrip("/").rpartition("/")[2]
            return [self._examined(File(name, self._source, None))]
        found = list(entries(self._source, self._open(self._source).read().decode(errors="replace")))
        if not found:
            raise StageError(f"the list {self._source} names no files")
        with ThreadPoolExecutor(self._workers) as pool:
            # Where sum and size are known, the server need not be asked.
            return list(pool.map(lambda file: file if file.size and file.checksum else self._examined(file), found))

    def _examined(self, file: File) -> File:
        """Return the file with its size and version, which the answer to a request for its first byte names. Not all
        servers answer HEAD, and a signed URL is for GET alone."""
        answer = self._open(file.where, "bytes=0-0")
        if answer.status == 206:
            answer.read()  # else the connection ends with the answer
        answer.close()
        if answer.status == 416:  # nothing at all is in the file
            return replace(file, size=0)
        length = answer.headers.get("Content-Length", "")
        if answer.status == 206:
            length = answer.headers.get("Content-Range", "").rpartition("/")[2]
        size = int(length) if length.isdigit() and not answer.headers.get("Content-Encoding") else None
        return replace(file, size=size, version=_version(answer))

    def fetch(self, file: File, part: Path) -> str:
        """See :class:`trainium_workloads.stage.files.Source`. A part of the same version is continued."""
        there = part.stat().st_size if part.exists() and (file.version or file.checksum) else 0
        if there and there == file.size:
            return ""
        answer = self._open(file.where, f"bytes={there}-" if there else "", file.version)
        try:
            if file.version and _version(answer) not in ("", file.version):
                raise SourceChangedError(f"{file.where} changed after it was listed")
            # A server without ranges sends all.
            follows = answer.headers.get("Content-Range", "").startswith(f"bytes {there}-")
            with part.open("ab" if follows else "wb") as out:
                for piece in answer.stream(BUFFER, decode_content=False):
                    out.write(piece)
        except HTTPError as error:
            raise CopyInterruptedError(f"{file.where} breaks off: {error}") from None
        finally:
            answer.release_conn()
        return ""

    def _open(self, url: str, span: str = "", version: str = "") -> urllib3.BaseHTTPResponse:
        """Return the answer to a request, with its body unread. ``span`` is the value of ``Range``, empty for all of
        the file; ``version`` that of ``If-Range``: all of the file comes where it has another version."""
        headers = {"User-Agent": "trainium-eks", "Accept-Encoding": "identity"}
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


def entries(source: str, body: str) -> Iterator[File]:
    """Yield the files of a list; StageError: an entry is no file's."""
    try:
        for each in json.loads(body) if body.lstrip().startswith("[") else _lines(body):
            where, sum_, size = str(each["url"]), str(each.get("sha256") or "").lower(), each.get("size")
            if sum_ and not re.fullmatch(r"[0-9a-f]{64}", sum_):
                raise StageError(f"the list {source} has {sum_!r} where a SHA-256 belongs")
            target = urljoin(source, where)
            if urlsplit(target).scheme not in ("https", urlsplit(source).scheme):
                raise StageError(f"the list {source} names {target}, which is no https URL")
            path = str(each.get("path") or "") or unquote(urlsplit(target).path).rpartition("/")[2]
            checksum = f"sha256:{sum_}" if sum_ else ""
            yield File(path.removeprefix("./"), target, None if size is None else int(size), "", checksum)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StageError(
            f'the list {source} must be [{{"url": ..., "path": ..., "sha256": ...}}, ...]: {error}'
        ) from None


def _lines(body: str) -> Iterator[dict[str, str]]:
    for found in filter(None, map(_LINE.fullmatch, map(str.strip, body.splitlines()))):
        where, sha256 = found["where"], found["sha256"] or ""
        if urlsplit(where).scheme:
            yield {"url": where, "sha256": sha256}
        else:  # a name in sha256sum's list is no URL yet, and keeps its directories
            yield {"url": quote(where), "path": where, "sha256": sha256}


def _version(answer: urllib3.BaseHTTPResponse) -> str:
    """Return the ETag, unless it is a weak one (bytes may change under it), or the time of the last modification."""
    etag = answer.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified", "")
