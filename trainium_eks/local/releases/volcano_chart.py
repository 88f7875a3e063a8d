"""Volcano's chart out of Volcano's Go module, for machines that cannot reach its repository."""

import gzip
import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from trainium_eks.local.toolchain import VOLCANO, go_command, sources, store

_DIRECTORY = PurePosixPath("installer/helm/chart/volcano")


def package(environment: Mapping[str, str]) -> bytes:
    """Return the chart of the programs' version, packed as by ``helm package``.

    The same bytes every time, for a release is known by its chart's digest.
    """
    with store.writing(Path(tempfile.gettempdir())):
        with tempfile.TemporaryDirectory(prefix="trn-chart-") as scratch:
            directory = sources.source(VOLCANO, Path(scratch), environment) / _DIRECTORY
        files = sorted(_files(directory))
        if not files:
            raise go_command.GoError(f"the module of {VOLCANO.versions} has no chart in {_DIRECTORY}")
        return _packed(files)


def _files(chart: Path) -> Iterator[tuple[PurePosixPath, Path]]:
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
