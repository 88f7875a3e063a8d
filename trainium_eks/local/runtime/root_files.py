"""The file system that a container sees: the machine's files, read-only, with the pod's volumes mounted at their paths.

A user namespace may not put an overlay on ``/``. So the root is a small file system in memory, into which the machine's
directories are bound. A directory that must show a path missing on the machine (``/etc/volcano``) is built the same way
one level down: its entries are bound one by one. :func:`layout` decides on the mounts, and only reads from the machine;
:func:`build` makes them, in the container's mount namespace.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.local import linux
from trainium_eks.local.runtime import beneath
from trainium_eks.local.spec.plan import Mount

EMPTY = ("/dev", "/proc", "/run", "/sys")
"""Directories that show nothing of the machine, except the mounts of :func:`build`."""

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_ROOT_SIZE = "256m"
_ASIDE = ".mount"


@dataclass(frozen=True)
class Layout:
    """The directories and mounts of a root."""

    composed: tuple[str, ...]
    """Directories that are put together entry by entry, parents first; ``/`` is the first."""
    mounts: tuple[Mount, ...]
    """Mounts made after these, parents first."""


def layout(mounts: Iterable[Mount]) -> Layout:
    """Return the root's layout for these mounts.

    Parents of a target may be symbolic links of the machine (``/var/run``).
    """
    wanted: dict[str, Mount] = {}
    for each in mounts:
        # The links are the machine's, so they lead to the same place within.
        target = os.path.join(os.path.realpath(os.path.dirname(each.target)), os.path.basename(each.target))
        wanted[os.path.normpath(target)] = Mount(each.source, os.path.normpath(target), each.read_only)
    ordered = sorted(wanted)
    composed = {"/"}
    for target in ordered:
        if _outer(target, wanted) is not None or _can_be_covered(target, wanted[target].source):
            continue
        parent = os.path.dirname(target)
        while parent not in composed:
            composed.add(parent)
            parent = os.path.dirname(parent)
    return Layout(tuple(sorted(composed)), tuple(wanted[target] for target in ordered))


def _outer(target: str, wanted: Mapping[str, Mount]) -> Mount | None:
    """Return the innermost mount that a target lies in."""
    parent = os.path.dirname(target)
    while parent != "/":
        if parent in wanted:
            return wanted[parent]
        parent = os.path.dirname(parent)
    return None


def _can_be_covered(target: str, source: str) -> bool:
    """Return whether the machine has a path of the same kind there, onto which to mount."""
    if any(target == each or target.startswith(f"{each}/") for each in EMPTY):
        return False
    try:
        mode = os.lstat(target).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) if os.path.isdir(source) else stat.S_ISREG(mode)


def build(root: Path, wanted: Layout, shared_memory: Path, *, read_only: bool = False) -> None:
    """Build the root and change to it, in the container's mount and process namespaces."""
    linux.mount("tmpfs", str(root), "tmpfs", f"size={_ROOT_SIZE},mode=755")
    composed = set(wanted.composed)
    targets = {each.target for each in wanted.mounts}
    for directory in wanted.composed:
        place = f"{root}{directory}" if directory != "/" else str(root)
        os.makedirs(place, exist_ok=True)
        if directory not in EMPTY and not directory.startswith(tuple(f"{each}/" for each in EMPTY)):
            _compose(directory, place, composed, targets)
    for directory in EMPTY:
        os.makedirs(f"{root}{directory}", exist_ok=True)
    _devices(f"{root}/dev", shared_memory)
    linux.mount("proc", f"{root}/proc", "proc")
    linux.bind("/sys", f"{root}/sys", read_only=True)
    for each in wanted.mounts:
        _mount(root, each)
    if read_only:
        linux.remount_read_only(str(root))
    linux.change_root(str(root))


def pinned(mount: Mount) -> Mount:
    """Return the mount with its source opened, so that a pod can no longer exchange the source.

    An :class:`OSError` says that the path in the volume leads out of the volume.
    """
    if not mount.below:
        return mount
    descriptor = beneath.open_or_create(mount.source, mount.below)
    return Mount(f"/proc/self/fd/{descriptor}", mount.target, mount.read_only)


def _mount(root: Path, mount: Mount) -> None:
    """Mount in the root. The target may lie in a volume that other pods change meanwhile."""
    is_file = not os.path.isdir(mount.source)
    target = beneath.open_or_create(root, mount.target, is_file=is_file, links_in_root=True)
    try:
        place = f"/proc/self/fd/{target}"
        if not mount.read_only:
            linux.bind(mount.source, place)
            return
        # Made read-only where no pod can exchange it, and then moved to its place.
        aside = str(root / _ASIDE)
        _make_target(mount.source, aside)
        linux.bind(mount.source, aside, read_only=True)
        linux.move(aside, place)
        os.unlink(aside) if is_file else os.rmdir(aside)
    finally:
        os.close(target)


def _compose(directory: str, place: str, composed: set[str], targets: set[str]) -> None:
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return  # missing, or not readable for this user
    for entry in entries:
        here, there = f"{directory.rstrip('/')}/{entry.name}", f"{place}/{entry.name}"
        if here in composed or here in EMPTY:
            os.makedirs(there, exist_ok=True)
        elif here in targets:
            continue  # its own source goes there
        elif entry.is_symlink():
            os.symlink(os.readlink(here), there)
        elif entry.is_dir() or entry.is_file():
            _make_target(here, there)
            # Entries that this user may not read stay empty.
            with contextlib.suppress(OSError):
                linux.bind(here, there, read_only=True)


def _make_target(source: str, place: str) -> None:
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    elif not os.path.lexists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT, 0o644))


def _devices(place: str, shared_memory: Path) -> None:
    for name in _DEVICES:
        if os.path.exists(f"/dev/{name}"):
            _make_target(f"/dev/{name}", f"{place}/{name}")
            linux.bind(f"/dev/{name}", f"{place}/{name}")
    os.mkdir(f"{place}/pts")
    linux.mount("devpts", f"{place}/pts", "devpts", "newinstance,ptmxmode=0666,mode=0620")
    os.symlink("pts/ptmx", f"{place}/ptmx")
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"{place}/{name}")
    os.mkdir(f"{place}/shm")
    linux.bind(str(shared_memory), f"{place}/shm")
