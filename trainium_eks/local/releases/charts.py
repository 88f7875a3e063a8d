"""The sources of a release's chart: the project, ``TRN_CHARTS``, the user's cache, or its repository.

Volcano's chart comes from its Go module too, where the repository cannot be reached.
"""

import contextlib
import gzip
import hashlib
import io
import os
import re
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import yaml

from trainium_eks import fetched
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.releases.helm_cli import HelmCli, HelmError, HelmTimeoutError
from trainium_eks.local.releases.release_inputs import REPOSITORY_FLAGS, ReleaseInputs
from trainium_eks.local.toolchain import VOLCANO, go_command, is_off, sources, store
from trainium_eks.model.catalogue.versions import CHARTS

VARIABLE = "TRN_CHARTS"
"""Environment variable: a directory with charts, each ``<name>-<version>.tgz`` or ``<name>/Chart.yaml``."""

PULL_SECONDS = 20.0

_VOLCANO_CHART = PurePosixPath("installer/helm/chart/volcano")

# Helm's messages when a repository answers and does not have the chart. All else (no such host, refused, a proxy's
# 403, a certificate of a proxy) is a repository that this machine cannot reach.
_NOT_THERE = re.compile(
    r"\bnot found in \S+ (index|repository)|no chart (name|version) found|improper constraint|"
    r"(manifest|name) unknown|/manifests/\S+: not found|: (404 )?not found$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class FoundChart:
    """A chart that is on this machine."""

    name: str
    version: str
    path: Path
    digest: str
    origin: str
    """The chart's source, for messages; empty for the project's charts."""


@dataclass(frozen=True)
class Missing:
    """A chart that is not available on this machine, which is no fault of the program."""

    name: str
    reason: str
    """One line, with the remedy."""


class Charts:
    """A finder of charts. Safe to use from many threads; failures of a repository's host are remembered."""

    def __init__(self, helm: HelmCli, project: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._helm = helm
        self._project = project
        self._environment = environment
        self._given = environment.get(VARIABLE, "")
        self._cache = fetched.cache(environment) / "charts"
        self._hosts: dict[str, _Host] = {}

    def find(self, wanted: ReleaseInputs) -> FoundChart | Missing:
        """Return the chart of a release.

        It is an error that the chart does not exist (no such directory, no repository, or a repository that answers and
        does not have it), and none that its repository cannot be reached.
        """
        is_oci = wanted.chart.startswith("oci://")
        if not wanted.repository.get("repo") and not is_oci:
            path = (self._project / wanted.chart).resolve()
            if not path.exists():
                raise LocalCloudError(
                    f"Helm release {wanted.namespace}/{wanted.name}: there is no chart {path}. Give a directory "
                    "relative to the project, an oci:// reference, or `repositoryOpts.repo`"
                )
            return _read(path, "")
        if not wanted.version:
            raise LocalCloudError(f"Helm release {wanted.namespace}/{wanted.name}: name the version of {wanted.chart}")
        name = wanted.chart.rstrip("/").rpartition("/")[2]
        if self._given:
            found = _in_directory(Path(self._given).expanduser().absolute(), name, wanted.version)
            if found is not None:
                return found
        with contextlib.suppress(ClusterError):  # none, or one that is not whole
            package = self._place(wanted, name)
            cached = _read(package, f"the cache: {package}")
            if _is_version(cached, name, wanted.version):
                return cached
        pulled = self._pulled(wanted, name)
        return self._volcanos(wanted, pulled) if isinstance(pulled, Missing) else pulled

    def _place(self, wanted: ReleaseInputs, name: str) -> Path:
        source = wanted.repository.get("repo") or wanted.chart
        directory = re.sub(r"[^A-Za-z0-9.-]+", "_", source.partition("://")[2])
        return self._cache / directory / f"{name}-{wanted.version}.tgz"

    def _pulled(self, wanted: ReleaseInputs, name: str) -> FoundChart | Missing:
        source = wanted.repository.get("repo") or wanted.chart
        if go_command.is_offline(self._environment):
            return _unreachable(source, name, wanted.version, "not asked, TRN_OFFLINE is set")
        host = self._hosts.setdefault(urlsplit(source).netloc, _Host())
        with host.lock:
            if host.unreachable:
                return _unreachable(source, name, wanted.version, host.unreachable)
            try:
                return self._pull(wanted, name)
            except HelmTimeoutError:
                host.unreachable = f"no answer within {PULL_SECONDS:.0f} s"
            except HelmError as error:
                if _NOT_THERE.search(str(error)):
                    place = f"{source} does not have {name} {wanted.version}"
                    raise LocalCloudError(f"Helm release {wanted.namespace}/{wanted.name}: {place}: {error}") from error
                host.unreachable = _last_words(str(error))
        return _unreachable(source, name, wanted.version, host.unreachable)

    def _pull(self, wanted: ReleaseInputs, name: str) -> FoundChart:
        flags = [f"{REPOSITORY_FLAGS[key]}={value}" for key, value in wanted.repository.items()]
        if wanted.devel:
            flags.append("--devel")
        package = self._place(wanted, name)
        try:
            package.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=package.parent, prefix=".pull-") as scratch:
                self._helm.pull(wanted.chart, wanted.version, Path(scratch), flags=flags, timeout_seconds=PULL_SECONDS)
                pulled = next(Path(scratch).glob("*.tgz"), None)
                if pulled is None:
                    raise LocalCloudError(f"helm pull {wanted.chart} fetched no package")
                chart = _read(pulled, wanted.repository.get("repo") or wanted.chart)
                if not _is_version(chart, name, wanted.version):
                    raise LocalCloudError(
                        f"{chart.origin} sent {chart.name} {chart.version} where {name} {wanted.version} was asked for"
                    )
                pulled.replace(package)
        except OSError as error:
            raise _uncachable(package.parent, error) from error
        return FoundChart(chart.name, chart.version, package, chart.digest, chart.origin)

    def _volcanos(self, wanted: ReleaseInputs, missing: Missing) -> FoundChart | Missing:
        """Return the chart out of Volcano's Go module, if it is the wanted one; otherwise the missing chart."""
        known = CHARTS["volcano"]
        is_it = (wanted.repository.get("repo"), wanted.chart, wanted.version) == (
            known.repository,
            known.chart,
            known.version,
        )
        if not is_it or is_off(VOLCANO, self._environment):
            return missing
        place = self._place(wanted, known.chart)
        part = place.with_suffix(f".{os.getpid()}.part")
        try:
            content = _volcano_package(self._environment)
            place.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            part.replace(place)
        except go_command.GoError as error:
            return Missing(missing.name, f"{missing.reason}; nor in Go's modules: {str(error).splitlines()[0]}")
        except (store.UnwritableError, OSError) as error:
            raise _uncachable(place.parent, error) from error
        return _read(place, "Volcano's Go module")


@dataclass
class _Host:
    """The state of a repository's host. One pull at a time: the others learn from it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    unreachable: str = ""


def _in_directory(directory: Path, name: str, version: str) -> FoundChart | Missing | None:
    """Return the chart in the directory that the user gave; None when it has no version of it."""
    if not directory.is_dir():
        raise LocalCloudError(f"{VARIABLE} is {directory}, which is not a directory")
    candidates = sorted(directory.glob(f"{name}-*.tgz"))
    if (directory / name / "Chart.yaml").is_file():
        candidates.append(directory / name)
    others = []
    for candidate in candidates:
        chart = _read(candidate, f"{VARIABLE}: {candidate}")
        if _is_version(chart, name, version):
            return chart
        if chart.name == name:
            others.append(chart.version)
    if not others:
        return None
    return Missing(name, f"{VARIABLE} has {name} {', '.join(others)}, wanted {version} ({directory})")


def _read(path: Path, origin: str) -> FoundChart:
    """Return name, version and digest of the chart in a directory or package."""
    try:
        if path.is_dir():
            text, digest = (path / "Chart.yaml").read_bytes(), _directory_digest(path)
        else:
            text, digest = _chart_yaml(path), hashlib.sha256(path.read_bytes()).hexdigest()
        metadata: Any = yaml.safe_load(text)
        return FoundChart(str(metadata["name"]), str(metadata["version"]), path, digest, origin)
    except (OSError, EOFError, tarfile.TarError, yaml.YAMLError, KeyError, TypeError, zlib.error) as error:
        raise LocalCloudError(f"{path} is not a Helm chart: {error}") from error


def _chart_yaml(package: Path) -> bytes:
    with tarfile.open(package) as archive:
        for member in archive:
            if member.isfile() and member.name.count("/") == 1 and member.name.endswith("/Chart.yaml"):
                file = archive.extractfile(member)
                if file is not None:
                    return file.read()
    raise KeyError("no Chart.yaml in it")


def _directory_digest(directory: Path) -> str:
    sha = hashlib.sha256()
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = file.read_bytes()
        sha.update(f"{file.relative_to(directory).as_posix()}\0{len(content)}\0".encode())
        sha.update(content)
    return sha.hexdigest()


def _is_version(chart: FoundChart, name: str, version: str) -> bool:
    """Return whether a chart has a version; for Helm, too, ``v0.5.30`` and ``0.5.30`` are the same."""
    return chart.name == name and chart.version.removeprefix("v") == version.removeprefix("v")


def _unreachable(source: str, name: str, version: str, why: str) -> Missing:
    hint = f"set {VARIABLE} to a directory with {name}-{version}.tgz"
    return Missing(name, f"chart repository not reachable: {source} ({why}; {hint})")


def _uncachable(directory: Path, error: Exception) -> ClusterError:
    words = error.strerror if isinstance(error, OSError) else ""
    return LocalCloudError(
        f"charts cannot be cached: {directory}: {words or error}. Free space there, or set TRN_CACHE"
    )


def _last_words(message: str) -> str:
    """Return the end of Go's chain of errors, which is the cause."""
    line = message.strip().splitlines()[-1]
    return ": ".join(line.split(": ")[-2:])


def _volcano_package(environment: Mapping[str, str]) -> bytes:
    """Return the chart of the programs' version, packed as by ``helm package``.

    The same bytes every time, for a release is known by its chart's digest.
    """
    with store.writing(Path(tempfile.gettempdir())):
        with tempfile.TemporaryDirectory(prefix="trn-chart-") as scratch:
            directory = sources.source(VOLCANO, Path(scratch), environment) / _VOLCANO_CHART
        files = sorted(_chart_files(directory))
        if not files:
            raise go_command.GoError(f"the module of {VOLCANO.versions} has no chart in {_VOLCANO_CHART}")
        return _packed(files)


def _chart_files(chart: Path) -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield each path in the package with its file.

    Modules have no symbolic links, and Volcano's ``crd/v1``, which its templates read, is a link to ``crd/bases``.
    """
    for file in chart.rglob("*"):
        if not file.is_file():
            continue
        path = PurePosixPath("volcano", file.relative_to(chart).as_posix())
        yield path, file
        if path.parent.parts[-2:] == ("crd", "bases"):
            yield path.parent.with_name("v1") / path.name, file


def _packed(files: list[tuple[PurePosixPath, Path]]) -> bytes:
    data = io.BytesIO()
    with gzip.GzipFile(fileobj=data, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for path, file in files:
            content = file.read_bytes()
            member = tarfile.TarInfo(str(path))
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()
