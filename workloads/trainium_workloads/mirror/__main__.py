"""``python -m trainium_workloads.mirror SOURCE TARGET``; lines and exit codes are those of ``stage``."""

import argparse
import hashlib
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_workloads.mirror.registry import INDEXES, MANIFESTS, Reference, Repository, logins_of
from trainium_workloads.stage.__main__ import FAILED, TRY_AGAIN
from trainium_workloads.stage.__main__ import _end as end
from trainium_workloads.stage.files import Interrupted, StageError, as_expected
from trainium_workloads.stage.progress import Progress
from trainium_workloads.stage.web import ATTEMPTS, BROKEN, Web

AT_ONCE = 4
"""Blobs that are copied at once; each holds a mebibyte in memory."""
PLATFORM = ("linux", "amd64")
_PIECE = 1024 * 1024
_TRIES = 4


@dataclass(frozen=True)
class Image:
    """An image's manifest and its blobs."""

    body: bytes
    kind: str
    digest: str
    blobs: tuple[tuple[str, int], ...]
    """Digest and size of the config and the layers, each once."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; the exit code."""
    parser = argparse.ArgumentParser(prog="mirror", description="Copies an image to another registry.")
    parser.add_argument("source", help="<registry>/<repository>:<tag> or @sha256:<digest>")
    parser.add_argument("target", help="<registry>/<repository>:<tag>")
    parser.add_argument("--logins", type=Path, help="docker's config.json, or the file of a Kubernetes Secret")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, end)
    with Progress() as progress:
        try:
            logins = logins_of(asked.logins.read_text(encoding="utf-8")) if asked.logins else {}
            digest, did = mirror(Reference.parse(asked.source), Reference.parse(asked.target), logins, progress)
        except StageError as error:
            progress.tell(str(error), "failed")
            return FAILED
        except (Interrupted, *BROKEN) as error:
            progress.tell(str(error) or type(error).__name__, "interrupted")
            return TRY_AGAIN
        progress.tell(f"{asked.target} is {digest}", "complete" if did else "unchanged")
    return 0


def mirror(source: Reference, target: Reference, logins: dict[str, str], progress: Progress) -> tuple[str, bool]:
    """Copies an image for one platform. Its digest, and whether anything was copied.

    Raises:
        StageError: it cannot be done.
        Interrupted: not now.
    """
    web = Web()
    origin = Repository(source.host, source.name, web, logins)
    to = Repository(target.host, target.name, web, logins)
    image = find(origin, source.what)
    there = to.digest(target.what)
    if there == image.digest:
        return image.digest, False
    if there:
        raise StageError(f"{target.name}:{target.what} is there already and is {there}: choose another tag")
    total = sum(size for _, size in image.blobs)
    progress.begin("copying", total_bytes=total, total_files=len(image.blobs))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda blob: _copy_blob(origin, to, blob[0], blob[1], progress), image.blobs))
    digest = to.put_manifest(target.what, image.body, image.kind)
    if digest and digest != image.digest:
        raise StageError(f"{to.host} has {digest} for what was {image.digest}")
    return image.digest, True


def find(origin: Repository, what: str) -> Image:
    """The image for our platform, by way of digests.

    Raises:
        StageError: there is none.
    """
    shown = f"{origin.host}/{origin.name}:{what}"
    body, kind, digest = origin.manifest(what)
    with as_expected(f"the manifest of {shown}"):
        if kind in INDEXES:
            known = json.loads(body)["manifests"]
            wanted = [str(each["digest"]) for each in known if _is_ours(each.get("platform") or {})]
            if not wanted:
                raise StageError(f"{shown} has no image for {'/'.join(PLATFORM)}")
            body, kind, digest = origin.manifest(wanted[0])
        if kind not in MANIFESTS:
            raise StageError(f"{shown} is {kind or 'of an unknown kind'}, and no image")
        data = json.loads(body)
        # One layer may be there twice (the empty one).
        blobs = {str(each["digest"]): int(each["size"]) for each in (data["config"], *data["layers"])}
        return Image(body, kind, digest, tuple(blobs.items()))


def _is_ours(platform: dict[str, Any]) -> bool:
    return (platform.get("os"), platform.get("architecture")) == PLATFORM


def _copy_blob(origin: Repository, to: Repository, digest: str, size: int, progress: Progress) -> None:
    """Copies one blob, unless it is there: from a mount in the same registry, else byte by byte."""
    if to.has_blob(digest):
        progress.add(size)
        progress.finish_file()
        return
    for left in reversed(range(_TRIES)):
        location = to.mount(digest, origin.name if origin.host == to.host else "")
        if not location:
            progress.add(size)
            break
        sent = _Sent()
        try:
            to.upload(location, digest, size, _read(origin, digest, size, progress, sent))
            break
        except Interrupted:
            progress.add(-sent.bytes)
            if not left:
                raise
            time.sleep(2.0 * (_TRIES - left))
    progress.finish_file()


@dataclass
class _Sent:
    """How much of a blob went through."""

    bytes: int = 0


def _read(origin: Repository, digest: str, size: int, progress: Progress, sent: _Sent) -> Iterator[bytes]:
    """A blob's bytes, verified before the last of them is given away; goes on where a connection breaks off."""
    known, held, fruitless = hashlib.sha256(), b"", 0
    while sent.bytes < size:
        before = sent.bytes
        try:
            with origin.blob(digest, sent.bytes + len(held)) as answer:
                if (sent.bytes or held) and answer.status != 206:
                    raise Interrupted(f"{origin.host} cannot go on within blob {digest}")
                while piece := answer.read(_PIECE):
                    known.update(piece)
                    if held:
                        sent.bytes += len(held)
                        progress.add(len(held))
                        yield held
                    held = piece
        except BROKEN as error:
            fruitless = fruitless + 1 if sent.bytes == before else 0
            if fruitless >= ATTEMPTS:
                raise Interrupted(f"{origin.host}: blob {digest} breaks off: {error}") from None
            continue
        break
    if f"sha256:{known.hexdigest()}" != digest:
        raise StageError(f"{origin.host}/{origin.name}: blob {digest} came with sha256:{known.hexdigest()}")
    sent.bytes += len(held)
    progress.add(len(held))
    yield held


if __name__ == "__main__":
    sys.exit(main())
