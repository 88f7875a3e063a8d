"""Listing of a source's files."""

import fnmatch
import json
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from trainium_workloads.stage import hugging_face, s3
from trainium_workloads.stage import web as webs
from trainium_workloads.stage.checksums import Checksum, announced
from trainium_workloads.stage.files import (
    Access,
    File,
    Interrupted,
    Listing,
    StageError,
    check_paths,
    safe_path,
    validator_of,
)
from trainium_workloads.stage.web import Web

SCHEMES = ("s3", "https", "http", "hf", "file")
"""Schemes of a source's URL."""

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_LINE = re.compile(r"(?:(?P<sha256>[0-9a-fA-F]{64})[ \t]+\*?)?(?P<where>\S.*)")


@dataclass(frozen=True)
class Selection:
    """Patterns that choose files of a source."""

    include: tuple[str, ...] = ()
    """Patterns (``*.parquet``) of whole paths, one of which must match; all files when empty. ``*`` matches slashes."""
    exclude: tuple[str, ...] = ()
    """Patterns none of which may match."""

    def holds(self, path: str) -> bool:
        """Return whether a path is chosen."""
        wanted = not self.include or any(fnmatch.fnmatchcase(path, each) for each in self.include)
        return wanted and not any(fnmatch.fnmatchcase(path, each) for each in self.exclude)


def list_files(
    source: str,
    web: Web,
    *,
    is_manifest: bool = False,
    selection: Selection | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Listing:
    """Return the files of a source.

    Args:
        source: ``s3://…``, ``https://…``, ``hf://…`` or ``file:///…``.
        web: connections.
        is_manifest: the source is a list of files, not data: see :func:`_of_manifest`.
        selection: chosen files; all when None.
        environment: see the sources' own modules.

    Raises:
        StageError: the source is invalid, missing or not allowed, or has paths that cannot lie in one directory.
        Interrupted: it does not answer.
    """
    scheme = urlsplit(source).scheme
    if scheme not in SCHEMES:
        raise StageError(f"{source!r} is no source: it must begin with {', '.join(f'{each}://' for each in SCHEMES)}")
    if is_manifest:
        found = Listing(tuple(_of_manifest(source, web)))
    elif scheme == "s3":
        found = s3.list_files(source, web, environment)
    elif scheme == "hf":
        found = hugging_face.list_files(source, web, environment)
    elif scheme == "file":
        found = Listing(tuple(_of_this_machine(source)))
    else:
        name = safe_path(unquote(urlsplit(source).path).rstrip("/").rpartition("/")[2], source)
        found = Listing((_examined(File(name, source, None), web),))
    if selection is not None:
        chosen = tuple(file for file in found.files if selection.holds(file.path))
        if not chosen:
            raise StageError(f"of the {len(found.files)} files of {source}, none is chosen by --include and --exclude")
        found = Listing(chosen, found.revision)
    check_paths(found.files, source)
    return found


def _examined(file: File, web: Web) -> File:
    """Return the file with its size, checksum and validator from its server. Servers that refuse HEAD are asked
    for one byte."""
    for method, also in (("HEAD", {}), ("GET", {"Range": "bytes=0-0"})):
        with web.open(method, file.url, file.access.headers, also) as answer:
            answer.read(2)
            status, headers = answer.status, answer.headers
        if status < 400:
            break
    if status == 416:  # nothing at all is in the file
        return File(file.path, file.url, 0, file.checksum, "", file.access)
    if status >= 400:
        raise StageError(f"{file.url}: {status}" + (" (not public?)" if status in (401, 403) else ""))
    length = headers.get("content-range", "").rpartition("/")[2] if status == 206 else headers.get("content-length", "")
    known = file.checksum or (announced(headers) if method == "HEAD" else None)
    size = int(length) if length.isdigit() and not headers.get("content-encoding") else None
    return File(file.path, file.url, size, known, validator_of(headers), file.access)


def _of_manifest(source: str, web: Web) -> Iterator[File]:
    """Yield the files of a list: JSON, ``[{"url": ..., "path": ..., "sha256": ..., "size": ...}]`` with the URL
    alone required, or text with a line a file, a URL or a line of ``sha256sum`` (``<sha256>  <path or URL>``).
    URLs are relative to the list's own."""
    url = source
    status, _, body = webs.text(web, url, Access().headers)
    if status >= 400:
        raise StageError(f"the list {source}: {status}")
    entries = list(_json_entries(source, body) if body.lstrip().startswith("[") else _text_entries(body))
    if not entries:
        raise StageError(f"the list {source} names no files")
    found = []
    for where, path, sha256, size in entries:
        target = urljoin(url, where)
        if urlsplit(target).scheme not in ("https", urlsplit(url).scheme):
            raise StageError(f"the list {source} names {target}, which is no https URL")
        place = path or (where if not urlsplit(where).scheme else unquote(urlsplit(target).path).rpartition("/")[2])
        found.append(File(safe_path(place.removeprefix("./"), source), target, size, _sha256(sha256, source)))
    with ThreadPoolExecutor(16) as pool:
        # Where sum and size are known, the server need not be asked.
        yield from pool.map(
            lambda each: each if each.size is not None and each.checksum else _examined(each, web), found
        )


def _json_entries(source: str, body: str) -> Iterator[tuple[str, str, str, int | None]]:
    try:
        data: Any = json.loads(body)
        for each in data:
            size = each.get("size")
            yield (
                str(each["url"]),
                str(each.get("path") or ""),
                str(each.get("sha256") or "").lower(),
                None if size is None else int(size),
            )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StageError(
            f'the list {source} must be [{{"url": ..., "path": ..., "sha256": ...}}, ...]: {error}'
        ) from None


def _text_entries(body: str) -> Iterator[tuple[str, str, str, int | None]]:
    for line in body.splitlines():
        found = _LINE.fullmatch(line.strip())
        if found and not line.lstrip().startswith("#"):
            where = found["where"]
            # A name in sha256sum's list is no URL yet.
            yield (
                where if urlsplit(where).scheme else quote(where),
                "" if urlsplit(where).scheme else where,
                (found["sha256"] or "").lower(),
                None,
            )


def _sha256(text: str, source: str) -> Checksum | None:
    if not text:
        return None
    if not _SHA256.fullmatch(text):
        raise StageError(f"the list {source} has {text!r} where a SHA-256 belongs")
    return Checksum("sha256", text)


def _of_this_machine(source: str) -> Iterator[File]:
    root = Path(unquote(urlsplit(source).path))
    if not root.exists():
        raise StageError(f"there is no {root} on the machine that copies")
    access = _Here()
    for path in [root] if root.is_file() else sorted(_regular(root)):
        found = path.stat()
        inside = path.name if path == root else path.relative_to(root).as_posix()
        validator = f"{found.st_mtime_ns}-{found.st_ino}"
        yield File(safe_path(inside, source), path.as_uri(), found.st_size, None, validator, access)


def _regular(root: Path) -> Iterator[Path]:
    """Yield the files below a directory; links are left out: they may lead anywhere on this machine."""
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                yield path


class _Here(Access):
    """Access to files of this machine; their checksum is computed when they are compared."""

    def checksum(self, file: File) -> Checksum | None:
        """See :meth:`Access.checksum`."""
        path = Path(unquote(urlsplit(file.url).path))
        try:
            return Checksum("sha256", Checksum("sha256", "").of(path))
        except OSError as error:
            raise Interrupted(f"{path}: {error.strerror}") from None
