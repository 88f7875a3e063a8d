"""System calls of Linux that Python's standard library lacks, by ctypes. Importable everywhere."""

import ctypes
import errno
import os
import sys
from enum import IntFlag
from functools import cache

AVAILABLE = sys.platform.startswith("linux")
"""Whether this machine has these system calls."""


class Namespaces(IntFlag):
    """The kinds of namespaces (``clone(2)``)."""

    MOUNT = 0x00020000
    UTS = 0x04000000
    IPC = 0x08000000
    USER = 0x10000000
    PID = 0x20000000
    NET = 0x40000000


class Resolve(IntFlag):
    """The limits to the resolution of a path (``openat2(2)``)."""

    NO_MAGIC_LINKS = 0x02
    BENEATH = 0x08
    """Refuse links that lead out of the directory."""
    IN_ROOT = 0x10
    """Take the directory as the root."""


_FILES = {
    Namespaces.USER: "user",
    Namespaces.MOUNT: "mnt",
    Namespaces.UTS: "uts",
    Namespaces.IPC: "ipc",
    Namespaces.PID: "pid",
    Namespaces.NET: "net",
}

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
_MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 0x1000, 0x2000, 0x4000, 0x40000
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY = 0x1
_SYS_OPENAT2, _SYS_MOUNT_SETATTR = 437, 442  # the same on all architectures
_RENAMED_TRIES = 64
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "arm64": 41}


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def unshare(kinds: Namespaces) -> None:
    """Make new namespaces for this process (of processes: for its children)."""
    _checked(_libc().unshare(int(kinds)), "unshare")


def become_root(uid: int, gid: int) -> None:
    """Map root of the new user namespace to this user."""
    # In the kernel's order: a group may only be mapped once groups can no longer be dropped.
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def join(pid: int, kinds: Namespaces) -> None:
    """Enter namespaces of another process, the user namespace first."""
    wanted = [kind for kind in _FILES if kind in kinds]
    opened = [(kind, os.open(f"/proc/{pid}/ns/{_FILES[kind]}", os.O_RDONLY | os.O_CLOEXEC)) for kind in wanted]
    try:
        for kind, descriptor in opened:
            _checked(_libc().setns(descriptor, int(kind)), f"setns {_FILES[kind]} of process {pid}")
    finally:
        for _, descriptor in opened:
            os.close(descriptor)


def mount(source: str, target: str, kind: str, options: str = "") -> None:
    """Mount a file system of a kind (``tmpfs``, ``proc``, ``devpts``)."""
    flags = _MS_NOSUID | (0 if kind == "devpts" else _MS_NODEV)
    _mount(source, target, kind, flags, options)


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Mount a directory or file, with all mounts in it, at another path."""
    _mount(source, target, None, _MS_BIND | _MS_REC, None)
    if read_only:
        make_read_only(target)


def move(source: str, target: str) -> None:
    """Move a mount."""
    _mount(source, target, None, _MS_MOVE, None)


def open_in(directory: int, path: str, flags: int, resolution: Resolve) -> int:
    """Return a descriptor of a path in an open directory.

    ``EXDEV`` or ``ELOOP`` say that the path may not be resolved so, ``ENOSYS`` that the kernel lacks the call.
    """
    if not AVAILABLE:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = (ctypes.c_uint64 * 3)(flags, 0, int(resolution))
    for _ in range(_RENAMED_TRIES):
        found: int = _libc().syscall(_SYS_OPENAT2, directory, os.fsencode(path), how, ctypes.sizeof(how))
        # Again where another process has just renamed a directory on the way.
        if found >= 0 or ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    _checked(found, path)
    return found


def make_private(target: str) -> None:
    """Hide later mounts below a mount from other namespaces."""
    _mount(None, target, None, _MS_REC | _MS_PRIVATE, None)


def make_read_only(target: str) -> None:
    """Make a mount and all mounts in it read-only; before Linux 5.12 only the mount itself."""
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _libc().syscall(
        _SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, attributes, ctypes.sizeof(attributes)
    )
    if result < 0:
        remount_read_only(target)


def remount_read_only(target: str) -> None:
    """Make one mount read-only, and none in it."""
    # Flags that the mount has in the outer namespace must be kept.
    kept = os.statvfs(target).f_flag & (_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _mount(None, target, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept, None)


def change_root(directory: str) -> None:
    """Make a mount the root, and unmount the old one."""
    os.chdir(directory)
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root is not known on {os.uname().machine}")
    # Onto itself: the old root then lies over the new one, from where it is taken away (pivot_root(2), "Notes").
    _checked(_libc().syscall(number, b".", b"."), "pivot_root")
    _checked(_libc().umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")


def set_host_name(name: str) -> None:
    """Set the host name of the UTS namespace."""
    encoded = name.encode()
    _checked(_libc().sethostname(encoded, len(encoded)), "sethostname")


def die_with_parent(signal_number: int) -> None:
    """Have this process get a signal when its parent ends."""
    _checked(_libc().prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants."""
    _checked(_libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    encoded = (None if each is None else os.fsencode(each) for each in (source, target, kind))
    data = None if options is None else options.encode()
    _checked(_libc().mount(*encoded, ctypes.c_ulong(flags), data), f"mount {source or ''} on {target}")
