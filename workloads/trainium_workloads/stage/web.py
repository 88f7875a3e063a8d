"""Files of web servers, by urllib3, and of lists of such files."""

import json
import re
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from trainium_workloads.stage.files import BUFFER, Changed, Checksum, File, Interrupted, StageError, announced

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
        answer = self._open("GET", self._source, {}, preload_content=True)
        if answer.status >= 400:
            raise StageError(f"the list {self._source}: {answer.status}")
        found = list(entries(self._source, answer.data.decode(errors="replace")))
        if not found:
            raise StageError(f"the list {self._source} names no files")
        with ThreadPoolExecutor(self._workers) as pool:
            # Where sum and size are known, the server need not be asked.
            return list(pool.map(lambda file: file if file.size and file.checksum else self._examined(file), found))

    def _examined(self, file: File) -> File:
        """Return the file with its size and version from its server; a server that refuses HEAD is asked for a byte."""
        answer = self._open("HEAD", file.where, {})
        if answer.status >= 400:
            answer = self._open("GET", file.where, {"Range": "bytes=0-0"})
            answer.close()
        if answer.status == 416:  # nothing at all is in the file
            return File(file.path, file.where, 0, "", file.checksum)
        if answer.status >= 400:
            raise StageError(f"{file.where}: {answer.status}" + " (not public?)" * (answer.status in (401, 403)))
        headers = {name.lower(): value for name, value in answer.headers.items()}
        length = headers.get("content-length", "")
        if answer.status == 206:
            length = headers.get("content-range", "").rpartition("/")[2]
        size = int(length) if length.isdigit() and not headers.get("content-encoding") else None
        return File(file.path, file.where, size, _version(headers), file.checksum or announced(headers))

    def fetch(self, file: File, part: Path) -> Checksum | None:
        """See :class:`trainium_workloads.stage.files.Source`. A part of the same version is continued."""
        there = part.stat().st_size if part.exists() and (file.version or file.checksum) else 0
        if there and there == file.size:
            return None
        answer = self._open("GET", file.where, {"Range": f"bytes={there}-", "If-Range": file.version} if there else {})
        try:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            if answer.status not in (200, 206):
                gone = " any more" if answer.status in (404, 410) else ""
                raise StageError(f"{file.where} is not there or refused{gone}: {answer.status}")
            if file.version and (seen := _version(headers)) and seen != file.version:
                raise Changed(f"{file.where} changed after it was listed")
            # A server without ranges sends all.
            follows = headers.get("content-range", "").startswith(f"bytes {there}-")
            with part.open("ab" if follows else "wb") as out:
                for piece in answer.stream(BUFFER, decode_content=False):
                    out.write(piece)
        except HTTPError as error:
            raise Interrupted(f"{file.where} breaks off: {error}") from None
        finally:
            answer.release_conn()
        return announced(headers)

    def _open(self, method: str, url: str, headers: dict[str, str], *, preload_content: bool = False) -> Any:
        headers = {"User-Agent": "trainium-eks", "Accept-Encoding": "identity", **headers}
        try:
            answer = self._pool.request(method, url, headers=headers, preload_content=preload_content)
        except HTTPError as error:
            raise Interrupted(f"{url}: {error}") from None
        if urlsplit(end := answer.geturl() or url).scheme not in ("", "https", urlsplit(url).scheme):
            raise StageError(f"{url} redirects to {end}, which is not encrypted")
        if answer.status in _RETRIES.status_forcelist:
            raise Interrupted(f"{url}: {answer.status}")
        return answer


def entries(source: str, body: str) -> Iterator[File]:
    """Yield the files of a list.

    Raises:
        StageError: an entry is no file's.
    """
    try:
        found = json.loads(body) if body.lstrip().startswith("[") else list(_lines(body))
        for each in found:
            where, sum_, size = str(each["url"]), str(each.get("sha256") or "").lower(), each.get("size")
            if sum_ and not re.fullmatch(r"[0-9a-f]{64}", sum_):
                raise StageError(f"the list {source} has {sum_!r} where a SHA-256 belongs")
            target = urljoin(source, where)
            if urlsplit(target).scheme not in ("https", urlsplit(source).scheme):
                raise StageError(f"the list {source} names {target}, which is no https URL")
            # The path of a relative URL is the file's; of another URL, its last part.
            own = unquote(urlsplit(target).path).rpartition("/")[2] if urlsplit(where).scheme else unquote(where)
            path = str(each.get("path") or "") or (own if "path" in each else own.rpartition("/")[2])
            checksum = Checksum("sha256", sum_) if sum_ else None
            yield File(path.removeprefix("./"), target, None if size is None else int(size), "", checksum)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StageError(
            f'the list {source} must be [{{"url": ..., "path": ..., "sha256": ...}}, ...]: {error}'
        ) from None


def _lines(body: str) -> Iterator[dict[str, str]]:
    for found in filter(None, map(_LINE.fullmatch, map(str.strip, body.splitlines()))):
        # A name in sha256sum's list is no URL yet, and keeps its directories.
        where = found["where"]
        yield {"url": where if urlsplit(where).scheme else quote(where), "path": "", "sha256": found["sha256"] or ""}


def _version(headers: dict[str, str]) -> str:
    """Return the ETag, unless it is a weak one (bytes may change under it), or the time of the last modification."""
    etag = headers.get("etag", "")
    return etag if etag and not etag.startswith("W/") else headers.get("last-modified", "")
