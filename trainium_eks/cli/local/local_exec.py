"""``trn local exec``: a command in a container that runs on this machine."""

from collections.abc import Sequence

from trainium_eks.cli.local.local import Target
from trainium_eks.client.failure import WRONG_USAGE, Failure


def run(target: Target, pod: str, namespace: str | None, container: str | None, command: Sequence[str]) -> int:
    """Run ``trn local exec POD -- COMMAND``; return the command's exit code."""
    from trainium_eks.local.runtime import exec_command

    if not command:
        raise Failure(WRONG_USAGE, f"what is to be run? For a shell: trn local exec {pod} -- sh")
    return exec_command.run(exec_command.find(target.paths(), pod, namespace, container), command)
