"""The projects' own downloads, each with the checksum that its project publishes.

One attempt per host: where one request gets no answer, the host's other files are not asked for. The hosts are asked
at the same time. Proxies are those of the environment (``HTTPS_PROXY``, ``NO_PROXY``).
"""

import hashlib
import http.client
import json
import re
import shutil
import tarfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from trainium_eks.local.toolchain import store
from trainium_eks.local.toolchain.throttle import Throttle
from trainium_eks.local.toolchain.tools import CONTROL_PLANE, ETCD, HELM, KWOK, KWOK_IMAGE_DIGEST, Pins

_T = TypeVar("_T")

_CONNECT_SECONDS = 5.0
_STALL_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20
_MEGABYTE = 1_000_000

_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


@dataclass(frozen=True)
class Origins:
    """Where the projects publish."""

    kubernetes: str = "https://dl.k8s.io/release"
    etcd: str = "https://github.com/etcd-io/etcd/releases/download"
    helm: str = "https://get.helm.sh"
    images: str = "https://registry.k8s.io"
    kwok_image_digest: str = KWOK_IMAGE_DIGEST


@dataclass(frozen=True)
class Release:
    """A file of a release and the file with its checksum."""

    url: str
    checksums: str
    """URL of lines of ``<sha256>  <name>``, or of the sum alone."""
    member: str = ""
    """The tool inside an archive; the file itself is the tool when empty."""


@dataclass(frozen=True)
class Image:
    """A container image that has the tool in its last layer. Its digest is its checksum, and that of all in it."""

    repository: str
    """``https://<registry>/v2/<name>``."""
    digest: str
    """Of the image for all platforms."""
    pins: Pins
    member: str


class _Refused(Exception):  # noqa: N818 - reads as what it is where it is raised
    """One file is not available from a host that answers; the message says why."""


class _Unreachable(Exception):  # noqa: N818 - reads as what it is where it is raised
    """A host does not answer; the message says why."""


class _Cancelled(Exception):  # noqa: N818 - reads as what it is where it is raised
    """Something else ended the downloads."""


def download(
    tools: Iterable[str], pins: Pins, origins: Origins, scratch: Path, progress: Callable[[str], None]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Fetches what is published for this platform into the scratch directory.

    Returns:
        The files, checked and executable, and why each other tool could not be downloaded.

    Raises:
        store.Unwritable: a file cannot be written.
    """
    files: dict[str, Path] = {}
    reasons: dict[str, str] = {}
    by_host: dict[str, dict[str, Release | Image]] = {}
    for tool in tools:
        found = source(tool, pins, origins)
        if isinstance(found, str):
            reasons[tool] = found
        else:
            by_host.setdefault(_host(found), {})[tool] = found
    work = _Work(scratch, Throttle(progress))
    with ThreadPoolExecutor(max_workers=len(by_host) or 1) as pool:
        try:
            for got, refused in pool.map(work.fetch_all, by_host, by_host.values()):
                files |= got
                reasons |= refused
        except BaseException:
            work.cancelled.set()
            raise
    return files, reasons


def source(tool: str, pins: Pins, origins: Origins) -> Release | Image | str:
    """Where a tool is published, or why it is not."""
    version, system, architecture = pins.version(tool), pins.platform.system, pins.platform.architecture
    where = f"{system}-{architecture}"
    if version is None:
        return f"no known release of Kubernetes {pins.minor}"
    if system not in ("linux", "darwin") or architecture not in ("amd64", "arm64"):
        return f"not published for {where}"
    if system != "linux" and (tool in CONTROL_PLANE or tool == "kwok"):
        # The server's binaries are published for Linux only; kwok's for others too, but without a checksum.
        return f"not published {'with a checksum ' if tool == 'kwok' else ''}for {system}"
    if tool == "etcd":
        name = f"etcd-v{ETCD}-{where}"
        archive = f"{name}.tar.gz" if system == "linux" else f"{name}.zip"
        base = f"{origins.etcd}/v{ETCD}"
        return Release(f"{base}/{archive}", f"{base}/SHA256SUMS", f"{name}/etcd")
    if tool == "helm":
        url = f"{origins.helm}/helm-v{HELM}-{where}.tar.gz"
        return Release(url, f"{url}.sha256sum", f"{where}/helm")
    if tool == "kwok":
        # Beside the binaries of a kwok release lies no checksum; its image has one.
        return Image(f"{origins.images}/v2/kwok/kwok", origins.kwok_image_digest, pins, "usr/local/bin/kwok")
    url = f"{origins.kubernetes}/v{version}/bin/{system}/{architecture}/{tool}"
    return Release(url, f"{url}.sha256")


class _Work:
    """What the threads of one :func:`download` share."""

    def __init__(self, scratch: Path, throttle: Throttle) -> None:
        self._scratch = scratch
        self._throttle = throttle
        self.cancelled = threading.Event()

    def fetch_all(self, host: str, sources: dict[str, Release | Image]) -> tuple[dict[str, Path], dict[str, str]]:
        """One host's files, one after the other."""
        files: dict[str, Path] = {}
        reasons: dict[str, str] = {}
        for tool, wanted in sources.items():
            try:
                files[tool] = self._fetch(tool, wanted)
            except _Refused as error:
                reasons[tool] = str(error)
                self._throttle.now(f"{tool} is not used from {host}: {error}")
            except _Unreachable as error:
                self._throttle.now(f"{host} cannot be reached: {error}")
                unreached = [other for other in sources if other not in files and other not in reasons]
                return files, reasons | dict.fromkeys(unreached, f"{host} cannot be reached: {error}")
        return files, reasons

    def _fetch(self, tool: str, wanted: Release | Image) -> Path:
        raw = self._scratch / f"{tool}.download"
        if isinstance(wanted, Release):
            expected = _published(wanted)
            url, member = wanted.url, wanted.member
        else:
            expected = _layer(wanted)
            url, member = f"{wanted.repository}/blobs/sha256:{expected}", wanted.member
        actual = self._save(tool, url, raw)
        if actual != expected:
            raw.unlink()
            raise _Refused(f"WRONG CHECKSUM: {url} has sha256 {actual}, published is {expected}")
        file = self._scratch / tool
        try:
            if member:
                _extract(raw, member, file, url)
                raw.unlink()
            else:
                raw.rename(file)
            file.chmod(0o755)
        except OSError as error:
            raise store.unwritable(self._scratch, error) from error
        return file

    def _save(self, tool: str, url: str, to: Path) -> str:
        """Saves a file; its sha256."""
        digest = hashlib.sha256()
        done = 0
        with _open(url, _STALL_SECONDS) as response, _created(to) as file:
            total = response.headers.get("Content-Length") or ""
            of = f" of {int(total) // _MEGABYTE}" if total.isdigit() else ""
            while chunk := _answered(url, lambda: response.read(_CHUNK_BYTES)):
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
            raise _Unreachable(f"{url} broke off after {done} of {total} bytes")
        return digest.hexdigest()


def _published(release: Release) -> str:
    name = release.url.rpartition("/")[2]
    lines = _get(release.checksums).decode(errors="replace").splitlines()
    for line in lines:
        sum_, _, listed = line.strip().partition(" ")
        if re.fullmatch(r"[0-9a-f]{64}", sum_) and listed.strip().lstrip("*") in (name, ""):
            return sum_
    raise _Refused(f"{release.checksums} names no checksum of {name}")


def _layer(image: Image) -> str:
    """sha256 of the image's last layer on this platform, by way of digests only."""
    ours = {"os": image.pins.platform.system, "architecture": image.pins.platform.architecture}
    try:
        digests = [
            manifest["digest"]
            for manifest in _content(image, image.digest)["manifests"]
            if ours.items() <= manifest["platform"].items()
        ]
        if not digests:
            raise _Refused(f"the image of kwok {KWOK} has nothing for {ours['os']}-{ours['architecture']}")
        layer = _content(image, digests[0])["layers"][-1]["digest"]
        return str(layer).removeprefix("sha256:")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _Refused(f"{image.repository} answers with another kind of image ({error!r})") from None


def _content(image: Image, digest: str) -> dict[str, Any]:
    url = f"{image.repository}/manifests/{digest}"
    answer = _get(url, {"Accept": _MANIFESTS})
    actual = f"sha256:{hashlib.sha256(answer).hexdigest()}"
    if actual != digest:
        raise _Refused(f"WRONG CHECKSUM: {url} has {actual}")
    content: dict[str, Any] = json.loads(answer)
    return content


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
        raise _Refused(f"{url} has no {member}: {error}") from None


def _created(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise store.unwritable(path.parent, error) from error


def _get(url: str, headers: dict[str, str] | None = None) -> bytes:
    with _open(url, _CONNECT_SECONDS, headers) as response:
        return _answered(url, response.read)


def _open(url: str, timeout_seconds: float, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": "trainium-eks", **(headers or {})})
    response: http.client.HTTPResponse = _answered(
        url, lambda: urllib.request.urlopen(request, timeout=timeout_seconds)
    )
    return response


def _answered(url: str, ask: Callable[[], _T]) -> _T:
    try:
        return ask()
    except urllib.error.HTTPError as error:
        raise _Refused(f"{url}: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _Unreachable(_words(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise _Unreachable(_words(error)) from None


def _words(error: object) -> str:
    words = error.strerror if isinstance(error, OSError) else None
    return words or str(error) or type(error).__name__


def _host(source: Release | Image) -> str:
    return urlsplit(source.url if isinstance(source, Release) else source.repository).netloc
