"""Local images: the environments of pods with an image ``local/<name>[:<tag>]``.

No container image: a virtual environment in the user's cache, made once from a requirements file and shared by all
clones and stacks. Its tag is a digest of the interpreter and the requirements, so the same file gives the same image.
``local/python`` always exists: the interpreter that runs ``trn``, with its standard library alone. In a pod of any
local image ``trainium_workloads`` can be imported, too.
"""

import hashlib
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

from trainium_eks.fetched import cache
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane.processes import write_json, writing
from trainium_eks.local.images.installing import Progress, Recipe, environment, install
from trainium_eks.local.images.installing import workloads as workloads
from trainium_eks.model.catalogue.versions import IMAGES
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json

PREFIX = "local/"

PYTHON = "python"
"""Name of the image that always exists."""

NAME = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*")

_DIGEST_LENGTH = 12


@dataclass(frozen=True)
class LocalImage:
    """A local image for pods."""

    name: str
    """Without the prefix: ``torch``."""
    tag: str
    """Twelve hexadecimal digits."""
    path: Path
    """Directory of the environment, with ``bin/python`` in it."""
    has_torch: bool
    """Whether ``torch`` and ``torchrun`` are in it."""
    size_bytes: int = 0
    made: float = 0.0
    """Seconds since the epoch; 0 for ``local/python``, which is made when it is first used."""
    requirements: str = ""

    @property
    def reference(self) -> str:
        """Return the image's name in a pod: ``local/torch:0123456789ab``."""
        return f"{PREFIX}{self.name}:{self.tag}"

    @property
    def programs(self) -> Path:
        """Return the directory that comes first in a container's ``PATH``."""
        return self.path / "bin"


def is_local(reference: str) -> bool:
    """Return whether an image runs here instead of being simulated."""
    return reference.startswith(PREFIX)


def with_local_image(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Deployment of the library's Python programs with ``local/python`` as its image; others unchanged."""
    if manifest.get("kind") != "Deployment":
        return manifest
    spec = manifest["spec"]
    template = spec["template"]
    containers = template["spec"]["containers"]
    # From its own registry, or from a cache with the same name behind its prefix.
    if not all(str(each.get("image")).endswith(IMAGES["python"].partition("/")[2]) for each in containers):
        return manifest
    here = {**template["spec"], "containers": [{**each, "image": f"{PREFIX}{PYTHON}"} for each in containers]}
    return {**manifest, "spec": {**spec, "template": {**template, "spec": here}}}


def find(name: str) -> LocalImage | None:
    """Return an image that can be used now; None when it has to be made first.

    The name is ``local/torch`` (the newest of that name), ``local/torch:<tag>``, or the same without ``local/``.
    """
    name, _, tag = name.removeprefix(PREFIX).partition(":")
    found = [each for each in all_images() if each.name == name and tag in ("", each.tag)]
    return max(found, key=lambda each: each.made, default=None)


def all_images() -> tuple[LocalImage, ...]:
    """Return every image that can be used, by name, the newest of each first."""
    tag = digest("")
    found = [LocalImage(PYTHON, tag, _home() / f"{PYTHON}-{tag}", has_torch=False)]
    for record in sorted(_home().glob("*.json")):
        image = _read(record)
        # An environment whose interpreter was uninstalled cannot be used any more.
        if image is not None and (image.programs / "python").exists():
            found.append(image)
    return tuple(sorted(found, key=lambda each: (each.name, -each.made)))


def how_to_make(reference: str) -> str:
    """Return advice on a missing image, for messages."""
    name, _, tag = reference.removeprefix(PREFIX).partition(":")
    if tag and find(name) is not None:
        return f"an image with another tag is here: use {PREFIX}{name}"
    known = "" if name in ("torch", "stage") else " --requirements FILE"
    return f"make it with `trn local images make {name}{known}`"


def ensure(image: LocalImage) -> LocalImage:
    """Make ``local/python``'s environment where it is missing; other images exist when they are found."""
    if image.name == PYTHON and not (image.programs / "python").exists():
        with _lock(image.path):
            if not (image.programs / "python").exists():
                environment(image.path)
    return image


def make(recipe: Recipe, progress: Progress = lambda _line: None) -> LocalImage:
    """Make an image, or return an existing one with the same requirements.

    Killed at any moment, it leaves nothing that would be found as an image.

    A :class:`NotOfferedError` says that no index has the recipe's first requirement.
    """
    if not NAME.fullmatch(recipe.name) or recipe.name == PYTHON:
        why = (
            "that one is always there" if recipe.name == PYTHON else "use lower-case letters, digits and single - or _"
        )
        raise LocalCloudError(f"an image cannot be called {recipe.name!r}: {why}")
    tag = digest(recipe.requirements)
    place = _home() / f"{recipe.name}-{tag}"
    record = place.with_suffix(".json")
    with _lock(place):
        there = _read(record)
        if there is not None and (there.programs / "python").exists():
            # With a new date it is the newest of its name.
            image = replace(there, made=time.time())
            _write(record, image)
            progress(f"{image.reference} is there already")
            return image
        shutil.rmtree(place, ignore_errors=True)
        progress(f"Making {PREFIX}{recipe.name}:{tag}" + (f": {recipe.size}" if recipe.size else ""))
        try:
            environment(place)
            install(recipe, place, progress)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        has_torch = any(place.glob("lib*/python*/site-packages/torch/__init__.py"))
        size = sum(file.lstat().st_size for file in place.rglob("*") if not file.is_dir() or file.is_symlink())
        image = LocalImage(recipe.name, tag, place, has_torch, size, time.time(), recipe.requirements)
        _write(record, image)
        return image


def remove(name: str) -> tuple[LocalImage, ...]:
    """Remove images from the cache: all of a name, or with ``:<tag>`` a single one.

    Neither ``local/python`` is removed nor an image in which a process runs.
    """
    name, _, tag = name.removeprefix(PREFIX).partition(":")
    if name == PYTHON:
        raise LocalCloudError(f"{PREFIX}{PYTHON} is always there: it is the interpreter that runs trn")
    found = tuple(each for each in all_images() if each.name == name and tag in ("", each.tag))
    if not found:
        raise LocalCloudError(f"there is no image {PREFIX}{name}{':' * bool(tag)}{tag}; `trn local images` lists them")
    for image in found:
        if used_by := _used_by(image.path):
            raise LocalCloudError(f"{image.reference} is in use by process {used_by}; delete its pod first")
    for image in found:
        # First the record, by which the image is found.
        image.path.with_suffix(".json").unlink(missing_ok=True)
        shutil.rmtree(image.path, ignore_errors=True)
    return found


def digest(requirements: str) -> str:
    """Return the tag of an image made from these requirements by this interpreter."""
    interpreter = f"{sys.implementation.cache_tag} {platform.python_version()} {platform.machine()} {sys.base_prefix}"
    return hashlib.sha256(f"{interpreter}\n{requirements}".encode()).hexdigest()[:_DIGEST_LENGTH]


def _home() -> Path:
    return cache() / "images"


def _lock(place: Path) -> FileLock:
    with writing(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(place.with_suffix(".lock"), fallback_to_soft=False)


def _read(record: Path) -> LocalImage | None:
    try:
        data = parse_json(record.read_text(encoding="utf-8"))
        return LocalImage(
            name=str(data["name"]),
            tag=str(data["tag"]),
            path=record.with_suffix(""),
            has_torch=bool(data["hasTorch"]),
            size_bytes=int(data["sizeBytes"]),
            made=float(data["made"]),
            requirements=str(data["requirements"]),
        )
    except (OSError, *MISSHAPEN):
        return None


def _write(record: Path, image: LocalImage) -> None:
    data = {
        "name": image.name,
        "tag": image.tag,
        "hasTorch": image.has_torch,
        "sizeBytes": image.size_bytes,
        "made": image.made,
        "python": platform.python_version(),
        "requirements": image.requirements,
    }
    write_json(record, data, 0o644)


def _used_by(place: Path) -> int | None:
    """Return the id of a process with a path in that directory on its command line; None for none."""
    start = f"{place}{os.sep}"
    for process in psutil.process_iter(["cmdline"]):
        if any(argument.startswith(start) for argument in process.info["cmdline"] or ()):
            return int(process.pid)
    return None
