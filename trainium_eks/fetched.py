"""Third-party files that a program needs and this repository does not contain: fetched once, verified, and cached.

Each file is pinned by its SHA-256, so every machine reads the same files on any day, and an update that changes nothing
downloads nothing.
"""

import contextlib
import contextvars
import hashlib
import http.client
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_SECONDS = 30.0
"""Time limit for each response of the server."""

SCRATCH = ".fetching-"
"""Prefix of directories that are being written, or were left behind."""

_ATTEMPTS = 5

PLANNING: contextvars.ContextVar[bool] = contextvars.ContextVar("trainium_eks_planning", default=False)
"""True while a plan is recorded, which downloads nothing: a program then names the files that it would fetch."""


class FetchError(Exception):
    """A file that is not in the cache and could not be downloaded; the message names the file, the source and the
    reason."""


@dataclass(frozen=True)
class ProjectFiles:
    """Files at one fixed state of a project."""

    name: str
    """Name and version of the project (``training-operator-v1.9.3``)."""
    url: str
    """Base URL of the paths, without a slash at the end."""
    sha256: Mapping[str, str]
    """Path (``base/service.yaml``) to the SHA-256 of the file's bytes."""

    @property
    def digest(self) -> str:
        """SHA-256 over all paths and hashes, which changes with every pinned file."""
        lines = "".join(f"{sha}  {path}\n" for path, sha in sorted(self.sha256.items()))
        return hashlib.sha256(lines.encode()).hexdigest()


def cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the user's cache directory, which several clones share.

    It is ``TRN_CACHE`` when set; otherwise ``trainium-eks`` in the platform's cache directory (``~/.cache`` and
    ``XDG_CACHE_HOME``, ``~/Library/Caches``).
    """
    if chosen := environment.get("TRN_CACHE"):
        return Path(chosen).expanduser().absolute()
    # Imported here, because most programs never need it.
    import platformdirs

    return platformdirs.user_cache_path("trainium-eks", appauthor=False)


def place(source: ProjectFiles, directory: Path) -> Path:
    """Return the directory in which :func:`fetch` keeps the files of a source."""
    return directory / f"{source.name}-{source.digest[:12]}"


def fetch(source: ProjectFiles, directory: Path, url: str = "") -> Path:
    """Return the directory with all pinned files of a source; it is downloaded unless all files are there with the
    right hashes.

    Other processes may fetch at the same time: the directory appears complete or not at all.

    Args:
        source: the files to fetch.
        directory: the parent of the returned directory.
        url: a mirror with the same files, used instead of the source's URL; empty for none.

    Raises:
        FetchError: a file cannot be downloaded or written, or its hash differs.
    """
    home = place(source, directory)
    if not wrong(source, home):
        return home
    try:
        directory.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=directory, prefix=SCRATCH))
    except OSError as error:
        raise FetchError(f"{directory} cannot be written: {error.strerror or error}") from error
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(lambda path: _save(source, path, url or source.url, scratch), sorted(source.sha256)):
                pass
        _put(source, scratch, home)
    except OSError as error:
        raise FetchError(f"{directory} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return home


def wrong(source: ProjectFiles, home: Path) -> tuple[str, ...]:
    """Return the paths of files that are missing or differ from the pinned hashes."""
    return tuple(path for path, sha in sorted(source.sha256.items()) if _sha256(home / path) != sha)


def _sha256(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _save(source: ProjectFiles, path: str, url: str, scratch: Path) -> None:
    content = _get(f"{url}/{path}")
    found = hashlib.sha256(content).hexdigest()
    if found != source.sha256[path]:
        raise FetchError(f"{url}/{path} has SHA-256 {found}, and {source.name} is pinned to {source.sha256[path]}")
    file = scratch / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def _put(source: ProjectFiles, scratch: Path, home: Path) -> None:
    """Move a complete directory to its place. Wrong files there are removed, unless another process has replaced
    them."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(OSError):
            scratch.rename(home)
        if not wrong(source, home):
            return
        discarded = Path(tempfile.mkdtemp(dir=home.parent, prefix=SCRATCH))
        with contextlib.suppress(OSError):
            home.rename(discarded / "old")
        shutil.rmtree(discarded, ignore_errors=True)
    raise FetchError(f"{home} changed while it was being written; remove it and try again")


def _get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "trainium-eks"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            content: bytes = response.read()
            return content
    except urllib.error.HTTPError as error:
        raise FetchError(f"{url}: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise FetchError(f"{url}: {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(f"{url}: {str(error) or type(error).__name__}") from None
