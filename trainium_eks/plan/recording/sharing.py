"""Two recordings of one program that import the SDKs once: in a forked process, and then in the process itself.

A file has the names of the SDKs' modules that the program imported last. They are imported before it runs: generated
code, which reads no variable and no file of the program.
"""

import contextlib
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from trainium_eks.plan.recording import lazy_sdk

ELSEWHERE = 75
"""Exit code of a program that finds an SDK at another place than this process has: it needs a process of its own."""


def take_request(modules: Path, leave_with: Callable[[int], None]) -> tuple[str, bool]:
    """Return the request that this process answers, and whether it is the first of two. The requests come as lines
    through the socket that is standard input; the exit code of the first recording's process goes back."""
    parent, channel = os.getppid(), socket.socket(fileno=os.dup(0)).makefile("rw")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    first = channel.readline()
    importlib.import_module("trainium_eks.plan.recording.program")
    _import(modules)
    child = os.fork()
    if child == 0:
        channel.close()
        leave_with(os.getppid())
        return first, True
    leave_with(parent)
    _, status = os.waitpid(child, 0)
    _kill_others()
    print(os.waitstatus_to_exitcode(status), file=channel, flush=True)
    _import(modules)
    second = channel.readline()
    channel.close()
    return second or sys.exit(), False


def keep_names(modules: Path) -> None:
    """Write the names of the SDKs' modules that are loaded, or end this process with :data:`ELSEWHERE`."""
    # The SDKs' lazy modules are of another type until they are loaded.
    of_loaded = (ModuleType, lazy_sdk.Module)
    loaded = [each for each in list(sys.modules.items()) if each[0][:7] == "pulumi_" and type(each[1]) in of_loaded]
    for name, module in loaded:
        if "." not in name and (getattr(PathFinder.find_spec(name), "origin", None) != module.__file__):
            os._exit(ELSEWHERE)
    modules.write_text("\n".join(sorted(name for name, _ in loaded)))


def _import(modules: Path) -> None:
    """Import the modules; one that is gone, or fails, fails again where the program imports it."""
    for name in modules.read_text().split():
        with contextlib.suppress(Exception):
            getattr(importlib.import_module(name), "__all__", None)  # loads a lazy module


def _kill_others() -> None:
    """Kill the other processes of this session: what the program left behind."""
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if pid != os.getpid() and os.getsid(pid) == os.getpid():
                os.kill(pid, signal.SIGKILL)
