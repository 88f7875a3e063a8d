"""Downloads from the projects' servers, each with the checksum that its project publishes.

One attempt per host: where one request gets no answer, the host's other files are not requested. The hosts are tried at
the same time.
"""

import hashlib
import re
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from trainium_eks.local.toolchain import store, web
from trainium_eks.local.toolchain.registry import Image, Notes, Registry
from trainium_eks.local.toolchain.throttle import Throttle
from trainium_eks.local.toolchain.tools import (
    CONTROL_PLANE,
    ETCD,
    HELM,
    KWOK_IMAGE_DIGEST,
    PARTS,
    PROMETHEUS_TOOLS,
    VOLCANO_IMAGE_DIGESTS,
    VOLCANO_TOOLS,
    Pins,
    Release,
)
from trainium_eks.local.toolchain.web import DownloadRefusedError, Unreachable

_CHUNK_BYTES = 1 << 20
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Origins:
    """The servers of the projects."""

    kubernetes: str = "https://dl.k8s.io/release"
    etcd: str = "https://github.com/etcd-io/etcd/releases/download"
    helm: str = "https://get.helm.sh"
    images: str = "https://registry.k8s.io"
    kwok_image_digest: str = KWOK_IMAGE_DIGEST
    docker: str = "https://registry-1.docker.io"
    volcano_image_digests: Mapping[str, str] = field(default_factory=lambda: VOLCANO_IMAGE_DIGESTS)


@dataclass(frozen=True)
class File:
    """A file of a release and the file with its checksum."""

    url: str
    checksums: str
    """URL of lines of ``<sha256>  <name>``, or of the sum alone."""
    member: str = ""
    """The tool inside an archive; the file itself is the tool when empty."""


class _Cancelled(Exception):  # noqa: N818 - reads as what it is where it is raised
    """The error in a thread after another error ended the downloads."""


def download(
    tools: Iterable[str],
    pins: Release,
    origins: Origins,
    scratch: Path,
    notes: Notes,
    progress: Callable[[str], None],
) -> tuple[dict[str, Path], dict[str, str]]:
    """Fetch the published tools for this platform into the scratch directory.

    Args:
        tools: the tools.
        pins: their versions.
        origins: the servers.
        scratch: an empty directory.
        notes: digests of image tags that were fetched before.
        progress: called at most about once a second, and for each message that must not be lost.

    Returns:
        The files, checked and executable, and why each other tool could not be downloaded.

    Raises:
        store.Unwritable: a file cannot be written.
    """
    files: dict[str, Path] = {}
    reasons: dict[str, str] = {}
    by_host: dict[str, dict[str, File | Image]] = {}
    for tool in tools:
        found = source(tool, pins, origins)
        if isinstance(found, str):
            reasons[tool] = found
        else:
            by_host.setdefault(_host(found), {})[tool] = found
    work = _Work(scratch, notes, Throttle(progress))
    with ThreadPoolExecutor(max_workers=len(by_host) or 1) as pool:
        try:
            for got, refused in pool.map(work.fetch_all, by_host, by_host.values()):
                files |= got
                reasons |= refused
        except BaseException:
            work.cancelled.set()
            raise
    return files, reasons


def source(tool: str, pins: Release, origins: Origins) -> File | Image | str:
    """Return where a tool is published, or why it is not."""
    version, system, architecture = pins.version(tool), pins.platform.system, pins.platform.architecture
    where = str(pins.platform)
    if tool in PARTS:
        return PARTS[tool].unpublished
    if tool in PROMETHEUS_TOOLS:
        return "there is none; it is built"
    if version is None:
        return f"no known release of Kubernetes {pins.minor}" if isinstance(pins, Pins) else "no known release"
    if system not in ("linux", "darwin") or architecture not in ("amd64", "arm64"):
        return f"not published for {where}"
    if system != "linux" and (tool in CONTROL_PLANE or tool in VOLCANO_TOOLS or tool == "kwok"):
        # The server's binaries are published for Linux only; kwok's for others too, but without a checksum.
        return f"not published {'with a checksum ' if tool == 'kwok' else ''}for {system}"
    if tool == "etcd":
        name = f"etcd-v{ETCD}-{where}"
        archive = f"{name}.tar.gz" if system == "linux" else f"{name}.zip"
        base = f"{origins.etcd}/v{ETCD}"
        return File(f"{base}/{archive}", f"{base}/SHA256SUMS", f"{name}/etcd")
    if tool == "helm":
        url = f"{origins.helm}/helm-v{HELM}-{where}.tar.gz"
        return File(url, f"{url}.sha256sum", f"{where}/helm")
    if tool == "kwok":
        # Beside the binaries of a kwok release lies no checksum; its image has one.
        repository = f"{origins.images}/v2/kwok/kwok"
        return Image(repository, origins.kwok_image_digest, pins.platform, "usr/local/bin/kwok")
    if tool in VOLCANO_TOOLS:
        # A release has no binaries at all; its images hold one static program each, at the root.
        reference = origins.volcano_image_digests.get(tool) or f"v{version}"
        return Image(f"{origins.docker}/v2/volcanosh/{tool}", reference, pins.platform, tool)
    url = f"{origins.kubernetes}/v{version}/bin/{system}/{architecture}/{tool}"
    return File(url, f"{url}.sha256")


class _Work:
    """The shared state of the threads of one :func:`download`."""

    def __init__(self, scratch: Path, notes: Notes, throttle: Throttle) -> None:
        self._scratch = scratch
        self._notes = notes
        self._throttle = throttle
        self.cancelled = threading.Event()

    def fetch_all(self, host: str, sources: dict[str, File | Image]) -> tuple[dict[str, Path], dict[str, str]]:
        """Fetch one host's files, one after the other."""
        files: dict[str, Path] = {}
        reasons: dict[str, str] = {}
        for tool, wanted in sources.items():
            try:
                files[tool] = self._fetch(tool, wanted)
            except DownloadRefusedError as error:
                reasons[tool] = str(error)
                self._throttle.now(f"{tool} is not used from {host}: {error}")
            except Unreachable as error:
                self._throttle.now(f"{host} cannot be reached: {error}")
                unreached = [other for other in sources if other not in files and other not in reasons]
                return files, reasons | dict.fromkeys(unreached, f"{host} cannot be reached: {error}")
        return files, reasons

    def _fetch(self, tool: str, wanted: File | Image) -> Path:
        file = self._scratch / tool
        if isinstance(wanted, Image):

            def save(url: str, to: Path, authorization: str) -> str:
                return self._save(tool, url, to, authorization)

            Registry(wanted, save, self._throttle.now, self._notes).fetch(file)
        else:
            self._fetch_file(tool, wanted, file)
        try:
            file.chmod(0o755)
        except OSError as error:
            raise store.unwritable(self._scratch, error) from error
        return file

    def _fetch_file(self, tool: str, wanted: File, to: Path) -> None:
        raw = self._scratch / f"{tool}.download"
        expected = _published(wanted)
        actual = self._save(tool, wanted.url, raw)
        if actual != expected:
            raw.unlink()
            raise DownloadRefusedError(f"WRONG CHECKSUM: {wanted.url} has sha256 {actual}, published is {expected}")
        try:
            if wanted.member:
                _extract(raw, wanted.member, to, wanted.url)
                raw.unlink()
            else:
                raw.rename(to)
        except OSError as error:
            raise store.unwritable(self._scratch, error) from error

    def _save(self, tool: str, url: str, to: Path, authorization: str = "") -> str:
        """Save a file and return its SHA-256."""
        digest = hashlib.sha256()
        done = 0
        with web.opened(url, web.STALL_SECONDS, authorization=authorization) as response, _created(to) as file:
            total = response.headers.get("Content-Length") or ""
            of = f" of {int(total) // _MEGABYTE}" if total.isdigit() else ""
            while chunk := web.answered(url, lambda: response.read(_CHUNK_BYTES)):
                if self.cancelled.is_set():
                    raise _Cancelled
                digest.update(chunk)
                done += len(chunk)
                try:
                    file.write(chunk)
                except OSError as error:
                    raise store.unwritable(self._scratch, error) from error
                self._throttle(f"downloading {tool}: {done // _MEGABYTE}{of} MB")
        if total.isdigit() and done != int(total):
            raise Unreachable(f"{url} broke off after {done} of {total} bytes")
        return digest.hexdigest()


def _published(release: File) -> str:
    name = release.url.rpartition("/")[2]
    lines = web.get(release.checksums).decode(errors="replace").splitlines()
    for line in lines:
        sum_, _, listed = line.strip().partition(" ")
        if re.fullmatch(r"[0-9a-f]{64}", sum_) and listed.strip().lstrip("*") in (name, ""):
            return sum_
    raise DownloadRefusedError(f"{release.checksums} names no checksum of {name}")


def _extract(archive: Path, member: str, to: Path, url: str) -> None:
    try:
        if url.endswith(".zip"):
            with zipfile.ZipFile(archive) as files, files.open(member) as inside, to.open("wb") as outside:
                shutil.copyfileobj(inside, outside)
            return
        with tarfile.open(archive) as archived:
            found = archived.extractfile(member)
            if found is None:
                raise KeyError(member)
            with found, to.open("wb") as outside:
                shutil.copyfileobj(found, outside)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DownloadRefusedError(f"{url} has no {member}: {error}") from None


def _created(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise store.unwritable(path.parent, error) from error


def _host(source: File | Image) -> str:
    return urlsplit(source.url if isinstance(source, File) else source.repository).netloc
