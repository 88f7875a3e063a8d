"""The names of pods' processes in the process table, by which ``down`` finds them.

The processes are Python. Each name belongs to a link to the interpreter in the stack's directory; a link does not know
the virtual environment that it was made in, so the import paths are passed on.
"""

import contextlib
import hashlib
import os
import sys
from functools import cache
from pathlib import Path

from trainium_eks.local.paths import Paths

AGENT = "trn-pod-agent"
SHIM = "trn-pod-shim"
NETWORK = "trn-pod-network"
"""Holds the pods' network."""

ISOLATION_VARIABLE = "TRN_POD_ISOLATION"
"""Environment variable that sets the isolation (``net``, ``ns``, ``plain``); by default the best that works."""

NAMES = (AGENT, SHIM, NETWORK)
"""In the order in which they are stopped."""


def program(paths: Paths, name: str) -> str:
    """Return the path of the link to the interpreter."""
    return str(paths.pods / "bin" / name)


def link(paths: Paths) -> None:
    """Make the links, or replace them for another interpreter."""
    interpreter = os.path.realpath(sys.executable)
    (paths.pods / "bin").mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in NAMES:
        place = Path(program(paths, name))
        with contextlib.suppress(OSError):
            if os.readlink(place) == interpreter:
                continue
        part = place.with_suffix(".part")
        part.unlink(missing_ok=True)
        part.symlink_to(interpreter)
        part.replace(place)


def agent_command(paths: Paths, server: str, listen: str, isolation: str) -> list[str]:
    """Return the agent's command line."""
    return [
        program(paths, AGENT),
        "-s",
        "-m",
        "trainium_eks.local.agent.agent",
        f"--root={paths.root}",
        f"--server={server}",
        f"--listen={listen}",
        f"--isolation={isolation}",
        f"--code={_code()}",
    ]


def python_environment() -> dict[str, str]:
    """Return the environment of these processes: import paths, and the few variables that a daemon inherits."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "TMPDIR", "LANG", "TRN_CACHE", "XDG_CACHE_HOME")
        if name in os.environ
    }
    places = [str(Path(__file__).resolve().parents[3]), *(each for each in sys.path if each and os.path.isdir(each))]
    base = {os.path.realpath(each) for each in (os.path.dirname(os.__file__),)}
    wanted = dict.fromkeys(each for each in places if os.path.realpath(each) not in base)
    return {**kept, "PYTHONPATH": os.pathsep.join(wanted)}


@cache
def _code() -> str:
    """Return the digest of the code that the agent and the shims run."""
    rooms = ("agent", "runtime", "spec", "images", "network")
    here = Path(__file__).parents[1]
    files = sorted([here / "linux.py", *(file for room in rooms for file in (here / room).glob("*.py"))])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
