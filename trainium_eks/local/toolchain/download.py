"""Downloads from the projects' servers, each with the checksum that its project publishes.

One attempt per host: where one request gets no answer, the host's other files are not requested. The hosts are tried at
the same time.
"""

import re
import shutil
import tarfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from trainium_eks.local.toolchain import store, web
from trainium_eks.local.toolchain.registry import Notes, Registry
from trainium_eks.local.toolchain.throttle import Throttle
from trainium_eks.local.toolchain.tools import Platform, Tool
from trainium_eks.local.toolchain.web import RefusedError, UnreachableError

_MEGABYTE = 1_000_000


class _CancelledError(Exception):
    """The error in a thread after another error ended the downloads."""


def download(
    tools: Sequence[Tool], scratch: Path, notes: Notes, progress: Callable[[str], None]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Fetch the published tools for this platform into the scratch directory.

    Return the files by tool, checked and executable, and why each other tool could not be downloaded.
    """
    where = Platform.here()
    files: dict[str, Path] = {}
    reasons = {tool.name: why for tool in tools if (why := tool.unpublished(where))}
    by_host: dict[str, list[Tool]] = {}
    for tool in tools:
        if tool.name not in reasons:
            by_host.setdefault(urlsplit(tool.url or tool.image).netloc, []).append(tool)
    work = _Work(where, scratch, notes, Throttle(progress))
    with ThreadPoolExecutor(max_workers=len(by_host) or 1) as pool:
        try:
            for got, refused in pool.map(work.fetch_all, by_host, by_host.values()):
                files |= got
                reasons |= refused
        except BaseException:
            work.cancelled.set()
            raise
    return files, reasons


class _Work:
    """The shared state of the threads of one :func:`download`."""

    def __init__(self, where: Platform, scratch: Path, notes: Notes, throttle: Throttle) -> None:
        self._where = where
        self._scratch = scratch
        self._notes = notes
        self._throttle = throttle
        self.cancelled = threading.Event()

    def fetch_all(self, host: str, tools: Sequence[Tool]) -> tuple[dict[str, Path], dict[str, str]]:
        """Fetch one host's files, one after the other."""
        files: dict[str, Path] = {}
        reasons: dict[str, str] = {}
        for tool in tools:
            try:
                files[tool.name] = self._fetch(tool)
            except RefusedError as error:
                reasons[tool.name] = str(error)
                self._throttle.now(f"{tool.name} is not used from {host}: {error}")
            except UnreachableError as error:
                self._throttle.now(f"{host} cannot be reached: {error}")
                unreached = [each.name for each in tools if each.name not in files and each.name not in reasons]
                return files, reasons | dict.fromkeys(unreached, f"{host} cannot be reached: {error}")
        return files, reasons

    def _fetch(self, tool: Tool) -> Path:
        file = self._scratch / tool.name

        def save(url: str, to: Path, authorization: str = "") -> str:
            return web.save(url, to, authorization, lambda done, total: self._tell(tool, done, total))

        if tool.image:
            Registry(tool, save, self._throttle.now, self._notes).fetch(self._where, file)
        else:
            names = {"system": self._where.system, "machine": self._where.machine}
            url, member = tool.url.format(**names), tool.member.format(**names)
            raw = self._scratch / f"{tool.name}.download"
            expected = _published(tool.checksums.format(**names), url.rpartition("/")[2])
            actual = save(url, raw)
            if actual != expected:
                raise RefusedError(f"WRONG CHECKSUM: {url} has sha256 {actual}, published is {expected}")
            with store.writing(self._scratch):
                if member:
                    _extract(raw, member, file, url)
                else:
                    raw.rename(file)
        with store.writing(self._scratch):
            file.chmod(0o755)
        return file

    def _tell(self, tool: Tool, done: int, total: int) -> None:
        if self.cancelled.is_set():
            raise _CancelledError
        of = f" of {total // _MEGABYTE}" if total else ""
        self._throttle(f"downloading {tool.name}: {done // _MEGABYTE}{of} MB")


def _published(checksums: str, name: str) -> str:
    for line in web.get(checksums).decode(errors="replace").splitlines():
        sum_, _, listed = line.strip().partition(" ")
        if re.fullmatch(r"[0-9a-f]{64}", sum_) and listed.strip().lstrip("*") in (name, ""):
            return sum_
    raise RefusedError(f"{checksums} names no checksum of {name}")


def _extract(archive: Path, member: str, to: Path, url: str) -> None:
    try:
        with tarfile.open(archive) as archived:
            found = archived.extractfile(member)
            if found is None:
                raise KeyError(member)
            with found, to.open("wb") as outside:
                shutil.copyfileobj(found, outside)
    except (KeyError, tarfile.TarError, EOFError) as error:
        raise RefusedError(f"{url} has no {member}: {error}") from None
