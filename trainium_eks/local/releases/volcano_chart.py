"""Volcano's chart out of Volcano's Go module, for machines that cannot reach its repository."""

import gzip
import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from trainium_eks.local.toolchain import go_command, store
from trainium_eks.local.toolchain.supply import is_offline
from trainium_eks.local.toolchain.tools import VOLCANO

_MODULE = "volcano.sh/volcano"
_DIRECTORY = PurePosixPath("installer/helm/chart/volcano")


def package(environment: Mapping[str, str]) -> bytes:
    """Return the chart of version :data:`~trainium_eks.local.toolchain.tools.VOLCANO`, packed as by ``helm package``.

    The same bytes every time, for a release is known by its chart's digest.

    Args:
        environment: the user's variables: ``PATH``, Go's variables, ``TRN_OFFLINE``.

    Raises:
        go_command.GoFailed: Go or the module is missing.
        store.Unwritable: there is no room for scratch files.
    """
    ours = go_command.go_environment(environment, is_offline(environment))
    try:
        with tempfile.TemporaryDirectory(prefix="trn-chart-") as scratch:
            directory = go_command.source(_MODULE, f"v{VOLCANO}", Path(scratch), ours) / _DIRECTORY
        files = sorted(_files(directory))
        if not files:
            raise go_command.GoFailed(f"{_MODULE} {VOLCANO} has no chart in {_DIRECTORY}")
        return _packed(files)
    except OSError as error:
        raise store.unwritable(Path(tempfile.gettempdir()), error) from error


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
