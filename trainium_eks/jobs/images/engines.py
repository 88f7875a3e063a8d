"""Programs of this machine for container images. Their output goes to stderr as it comes.

docker, podman and finch build, pull and push by one command line.
"""

import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.aws.ecr import Login
from trainium_eks.jobs.images.images import DOCKERFILE, PLATFORM
from trainium_eks.kube.errors import ClusterError, MissingError

ENGINES = ("docker", "podman", "finch")
"""Names, in the order of the search."""
_REMEDIES = {
    "docker": " (start Docker Desktop, or `sudo systemctl start docker`)",
    "podman": " (on macOS and Windows: `podman machine start`)",
    "finch": " (on macOS and Windows: `finch vm start`)",
}
_LAST_LINES = 2


class EngineError(ClusterError):
    """An engine failed or is missing; the text names the remedy."""


class NoEngineError(EngineError, MissingError):
    """No program for the task is on this machine, or none of them works."""


def run(argv: Sequence[str], *, stdin: str = "") -> None:
    """Run a program and show its output; on a terminal the program has it to itself, for its bars."""
    given = subprocess.PIPE if stdin else subprocess.DEVNULL
    if sys.stderr.isatty():
        process = subprocess.Popen(argv, stdin=given, stdout=sys.stderr, stderr=sys.stderr, text=True)
        process.communicate(stdin or None)
        said = ""
    else:
        process = subprocess.Popen(argv, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = _shown(process, stdin)
    if process.returncode:
        shown = " ".join(argv[:3])
        raise EngineError(f"{shown} ended with code {process.returncode}" + (f":\n{said}" if said else ""))


def ask(argv: Sequence[str]) -> tuple[int, str]:
    """Run a program silently, and return its exit code and all its output."""
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout.strip()


@dataclass(frozen=True)
class Engine:
    """One of :data:`ENGINES`, with its commands."""

    name: str
    auth_file: Path | None = None
    """File in which podman keeps our login meanwhile; the others have separate stores."""

    def build(self, reference: str, directory: Path, arguments: Mapping[str, str]) -> None:
        """Build the image of a directory's Dockerfile."""
        base = arguments.get("BASE", "")
        if base:
            try:
                self.pull(base)
            except EngineError as error:
                raise EngineError(
                    f"the base {base} cannot be had: check its name, the network, and whether its registry wants a "
                    f"login ({self.name} login {base.partition('/')[0]})\n{error}"
                ) from None
        given = (part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}"))
        file = str(directory / DOCKERFILE)
        options = ["--platform", PLATFORM, *given, "--file", file, "--tag", reference]
        run([self.name, "build", *options, str(directory)])

    def has(self, reference: str) -> bool:
        """Return whether the engine holds an image."""
        return ask([self.name, "image", "inspect", reference])[0] == 0

    def pull(self, reference: str) -> None:
        """Pull an image from its registry."""
        run([self.name, "pull", "--platform", PLATFORM, reference])

    def push(self, reference: str) -> None:
        """Push an image to its registry."""
        run([self.name, "push", *self._logins(), reference])

    def login(self, login: Login) -> None:
        """Log in. The password is written to the engine's input: arguments can be read by everybody on a machine."""
        given = ("--username", login.user, "--password-stdin", *self._logins(login=True))
        run([self.name, "login", *given, login.registry], stdin=login.password)

    def _logins(self, *, login: bool = False) -> list[str]:
        """Return the options for our login, which is for the stack's registry alone; pulls use the user's own
        logins."""
        if self.name != "podman" or self.auth_file is None or not (login or self.auth_file.exists()):
            return []
        return ["--authfile", str(self.auth_file)]


def find(asked: str | None, auth_file: Path | None = None) -> Engine:
    """Return the engine with the given name, else the first of :data:`ENGINES` that is here and works."""
    here = [name for name in ([asked] if asked else ENGINES) if shutil.which(name)]
    if not here:
        what = f"{asked} is not on PATH" if asked else f"none of {', '.join(ENGINES)} is on PATH"
        raise NoEngineError(f"{what}: install one, or use the cluster with --in-cluster, which needs none")
    why = []
    for name in here:
        code, said = ask([name, "info"])
        if code == 0:
            return Engine(name, auth_file)
        last = said.rpartition("\n")[2].strip() or "it says nothing"
        why.append(f"{name} is here, but does not work: {last}{_REMEDIES.get(name, '')}")
    others = "" if asked else "; or use the cluster with --in-cluster"
    raise NoEngineError("\n".join(why) + others)


def _shown(process: "subprocess.Popen[str]", stdin: str) -> str:
    """Show the output line by line; return its last lines."""
    assert process.stdout is not None
    if process.stdin is not None:
        process.stdin.write(stdin)
        process.stdin.close()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    for line in process.stdout:
        sys.stderr.write(line)
        sys.stderr.flush()
        last.append(line.rstrip())
    process.wait()
    return "\n".join(last)
