"""Downloads from the projects' servers, each with the checksum that its project publishes.

One attempt per host: where one request gets no answer, the host's other files are not requested.
"""

import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from trainium_eks.local.toolchain import store, web
from trainium_eks.local.toolchain.registry import Registry
from trainium_eks.local.toolchain.tools import Platform, Tool
from trainium_eks.local.toolchain.web import RefusedError, UnreachableError


def download(
    tools: Sequence[Tool], scratch: Path, notes: Path, progress: Callable[[str], None]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Fetch the published tools for this platform into the scratch directory.

    Return the files by tool, checked and executable, and why each other tool could not be downloaded.
    """
    where = Platform.here()
    files: dict[str, Path] = {}
    reasons: dict[str, str] = {}
    silent: dict[str, str] = {}
    for tool in tools:
        host = urlsplit(tool.url or tool.image).netloc
        if why := tool.unpublished(where) or silent.get(host, ""):
            reasons[tool.name] = why
            continue
        progress(f"downloading {tool.name} from {host}")
        try:
            files[tool.name] = _fetch(tool, where, scratch, notes, progress)
        except RefusedError as error:
            reasons[tool.name] = str(error)
            progress(f"{tool.name} is not used from {host}: {error}")
        except UnreachableError as error:
            reasons[tool.name] = silent[host] = f"{host} cannot be reached: {error}"
            progress(silent[host])
    return files, reasons


def _fetch(tool: Tool, where: Platform, scratch: Path, notes: Path, progress: Callable[[str], None]) -> Path:
    file = scratch / tool.name
    if tool.image:
        Registry(tool, progress, notes).fetch(where, file)
    else:
        names = {"system": where.system, "machine": where.machine}
        url, member = tool.url.format(**names), tool.member.format(**names)
        raw = scratch / f"{tool.name}.download"
        expected = _published(tool.checksums.format(**names), url.rpartition("/")[2])
        actual = web.save(url, raw)
        if actual != expected:
            raise RefusedError(f"WRONG CHECKSUM: {url} has sha256 {actual}, published is {expected}")
        with store.writing(scratch):
            if member:
                _extract(raw, member, file, url)
            else:
                raw.rename(file)
    with store.writing(scratch):
        file.chmod(0o755)
    return file


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
