"""The isolation of pods on this machine: tried once when the agent starts, from the best kind down."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainium_eks import whole_file
from trainium_eks.local import linux
from trainium_eks.local.runtime.sandbox import Sandbox, StartError
from trainium_eks.local.spec.plan import Container, Isolation, PodDirectory, PodPlan
from trainium_eks.model.validation.parsing import parse_json

_TRY_SECONDS = 60.0
"""Time limit for a pod that ends at once. A machine that is merely busy must not leave pods less isolated for good."""
_WORDS: Mapping[Isolation, tuple[str, str]] = {
    Isolation.NET: (
        "in separate namespaces, network included",
        "they are processes of your user, read this machine's files, and share its memory and processors; "
        "network policies do not hold, so pods of all teams reach each other",
    ),
    Isolation.NS: (
        "in separate namespaces, on this machine's network",
        "they are processes of your user, read this machine's files, and are on its network: "
        "two jobs cannot listen on the same port, and network policies do not hold",
    ),
    Isolation.PLAIN: (
        "as plain processes",
        "nothing is: they are processes of your user with this machine's files, network and processes; a program "
        "finds a volume by its mount path only where that stands in the command or in a variable",
    ),
}


@dataclass(frozen=True)
class Chosen:
    """The chosen kind of isolation."""

    isolation: Isolation
    refused: Mapping[str, str] = field(default_factory=dict)
    """Better kinds to the reason why they do not work here."""

    def sentences(self) -> tuple[str, ...]:
        """Return the sentences for the user."""
        how, missing = _WORDS[self.isolation]
        lines = [f"Pods with local/ images run here, {how}. Not isolated: {missing}."]
        lines += [f"Isolation {name!r} does not work here: {why}" for name, why in self.refused.items()]
        return tuple(lines)

    def save(self, pods: Path) -> None:
        """Save the choice for ``trn``."""
        made = {"isolation": self.isolation, "refused": dict(self.refused)}
        whole_file.write(pods / "isolation.json", json.dumps(made))

    @staticmethod
    def load(pods: Path) -> "Chosen | None":
        """Return the saved choice, if any."""
        try:
            data = parse_json((pods / "isolation.json").read_text(encoding="utf-8"))
            return Chosen(Isolation(data["isolation"]), dict(data["refused"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def candidates(asked: str) -> tuple[Isolation, ...]:
    """Return the kinds to try, the best first."""
    if asked in {each.value for each in Isolation}:
        return (Isolation(asked),)
    return tuple(Isolation) if linux.AVAILABLE else (Isolation.PLAIN,)


def attempt(isolation: Isolation, network_pid: int, environment: Mapping[str, str]) -> str:
    """Return why a kind does not work; empty when it does. By a pod that ends at once."""
    if isolation is Isolation.PLAIN:
        return ""
    command = [sys.executable, "-S", "-s", "-m", __name__, isolation.value, str(network_pid)]
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=_TRY_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"


def _try(isolation: Isolation, network_pid: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = PodDirectory(Path(scratch))
        container = Container(name="try", argv=("/bin/sh", "-c", "test -d /proc/self"), environment={}, directory="/")
        plan = PodPlan(
            uid="try",
            namespace="try",
            name="try",
            hostname="try",
            isolation=isolation,
            address="100.127.255.254",
            init=(),
            containers=(container,),
            network_pid=network_pid,
        )
        sandbox = Sandbox(plan, directory)
        try:
            started = sandbox.start(container)
        finally:
            sandbox.close()
        os.close(started.output)
        _, status = os.waitpid(started.waited, 0)
        if status:
            raise StartError("a process in a pod did not end well")


if __name__ == "__main__":
    try:
        _try(Isolation(sys.argv[1]), int(sys.argv[2]))
    except (OSError, StartError) as problem:
        sys.exit(str(problem))
