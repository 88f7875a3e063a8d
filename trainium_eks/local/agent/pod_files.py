"""The files of a pod's directory, written as a whole or not at all."""

import os
from pathlib import Path

from trainium_eks import whole_file
from trainium_eks.local.runtime import beneath
from trainium_eks.local.spec.known import UnmetError
from trainium_eks.local.spec.plan import Isolation, Mount, PodDirectory
from trainium_eks.local.spec.planning import StartablePod
from trainium_eks.local.spec.volumes import File

# No server answers there, and the failure comes at once: names missing from /etc/hosts are unknown without a wait.
_NO_NAMES = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
_HOST_NAMES = Path("/etc/resolv.conf")


def prepare(place: PodDirectory, made: StartablePod) -> None:
    """Write the files and directories that the containers of a pod use, except its hosts file and its plan."""
    place.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.stop.unlink(missing_ok=True)
    for each in made.plan.all_containers:
        place.container(each.name).mkdir(parents=True, exist_ok=True)
    for file in made.files:
        put(file)
    for directory in made.directories:
        if not os.path.lexists(directory):
            os.makedirs(directory, exist_ok=True)
    for container in made.plan.all_containers:
        for mount in container.mounts:
            # Directories of memory volumes are made with the pod's sandbox.
            if mount.below and mount.source not in made.plan.memory_volumes:
                _make_below(mount, container.name)
    (place.path / "hostname").write_text(f"{made.plan.hostname}\n", encoding="utf-8")
    is_shared = made.plan.isolation is not Isolation.NET and _HOST_NAMES.is_file()
    (place.path / "resolv.conf").write_text(_HOST_NAMES.read_text() if is_shared else _NO_NAMES, encoding="utf-8")


def _make_below(mount: Mount, container: str) -> None:
    try:
        os.close(beneath.open_or_create(mount.source, mount.below))
    except OSError as error:
        why = f"failed to prepare subPath {mount.below!r} for {mount.target}: {error.strerror}"
        raise UnmetError("CreateContainerConfigError", why, container) from None


def put(file: File) -> None:
    """Write a file of a volume; a reader sees the old file or the new one."""
    file.path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(file.path, file.content, file.mode)
