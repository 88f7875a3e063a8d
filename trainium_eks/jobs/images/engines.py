"""Container engines: docker, podman or buildah, whichever is here. Runs them; their words go to stderr as they come."""

import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from trainium_eks.jobs.images.images import DOCKERFILE, PLATFORM
from trainium_eks.kube.errors import ClusterError, MissingError

ENGINES = ("docker", "podman", "buildah")
"""In the order in which they are looked for."""

_LAST_LINES = 2


class EngineError(ClusterError):
    """An engine failed, or there is none; the text says what to do."""


class NoEngine(EngineError, MissingError):  # noqa: N818 - reads as what it is where it is caught
    """No engine is on this machine, or none of them works."""


class Runner(Protocol):
    """Runs a program."""

    def run(self, argv: Sequence[str], *, stdin: str = "") -> None:
        """Shows what it says.

        Raises:
            EngineError: it ended with another code than 0.
        """
        ...

    def ask(self, argv: Sequence[str]) -> tuple[int, str]:
        """Its exit code and all that it says, shown to nobody."""
        ...


class Programs:
    """Programs of this machine."""

    def run(self, argv: Sequence[str], *, stdin: str = "") -> None:
        """See :meth:`Runner.run`. On a terminal the program has it to itself, for its bars."""
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

    def ask(self, argv: Sequence[str]) -> tuple[int, str]:
        """See :meth:`Runner.ask`."""
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.returncode, done.stdout.strip()


@dataclass(frozen=True)
class Engine:
    """One engine, and how it is spoken to."""

    name: str
    runner: Runner
    auth_file: Path | None = None
    """Where podman and buildah keep our login while this is used; docker has a store of its own, often the system's."""

    def build(self, reference: str, directory: Path, arguments: Mapping[str, str]) -> None:
        """Builds the image of a directory's Dockerfile.

        Raises:
            EngineError: the base cannot be had, or a step fails.
        """
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
        self.runner.run(
            [
                self.name,
                "build",
                "--platform",
                PLATFORM,
                *self._transport(base),
                *given,
                "--file",
                file,
                "--tag",
                reference,
                str(directory),
            ]
        )

    def has(self, reference: str) -> bool:
        """Whether the engine holds an image."""
        kind = ["inspect", "--type", "image"] if self.name == "buildah" else ["image", "inspect"]
        return self.runner.ask([self.name, *kind, reference])[0] == 0

    def pull(self, reference: str) -> None:
        """Fetches an image from its registry."""
        self.runner.run([self.name, "pull", "--platform", PLATFORM, *self._transport(reference), reference])

    def tag(self, reference: str, other: str) -> None:
        """Gives an image another name."""
        self.runner.run([self.name, "tag", reference, other])

    def push(self, reference: str) -> None:
        """Brings an image to its registry."""
        self.runner.run([self.name, "push", *self._transport(reference), *self._logins(), reference])

    def login(self, registry: str, user: str, password: str) -> None:
        """Logs in. The password is written to the engine's input: arguments can be read by everybody on a machine.

        Raises:
            EngineError: the registry refuses.
        """
        given = ("--username", user, "--password-stdin", *self._transport(registry), *self._logins(login=True))
        self.runner.run([self.name, "login", *given, registry], stdin=password)

    def _logins(self, *, login: bool = False) -> list[str]:
        """What is pulled comes by the user's own logins; ours is for the stack's registry."""
        if self.name == "docker" or self.auth_file is None or not (login or self.auth_file.exists()):
            return []
        return ["--authfile", str(self.auth_file)]

    def _transport(self, reference: str) -> list[str]:
        if self.name == "docker":
            return []
        host = urlsplit(f"//{reference.partition('/')[0]}").hostname or ""
        # docker trusts loopback registries without TLS, too.
        return ["--tls-verify=false"] if host in ("localhost", "127.0.0.1", "::1") else []


def find(asked: str | None, runner: Runner, auth_file: Path | None = None) -> Engine:
    """The engine asked for, else the first that is here and works.

    Raises:
        EngineError: there is none, or its service does not run.
    """
    here = [name for name in ([asked] if asked else ENGINES) if shutil.which(name)]
    if not here:
        what = f"{asked} is not on PATH" if asked else f"none of {', '.join(ENGINES)} is on PATH"
        raise NoEngine(f"{what}: install one, or build in the cluster with --in-cluster, which needs none")
    why = []
    for name in here:
        code, said = runner.ask([name, "info"])
        if code == 0:
            return Engine(name, runner, auth_file)
        why.append(f"{name} is here, but does not work: {_last(said)}{_remedy(name)}")
    others = "" if asked else "; or build in the cluster with --in-cluster"
    raise NoEngine("\n".join(why) + others)


def _remedy(name: str) -> str:
    remedies = {
        "docker": " (start Docker Desktop, or `sudo systemctl start docker`)",
        "podman": " (on macOS and Windows: `podman machine start`)",
    }
    return remedies.get(name, "")


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it says nothing"


def _shown(process: "subprocess.Popen[str]", stdin: str) -> str:
    """Shows the output line by line; its last lines."""
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
