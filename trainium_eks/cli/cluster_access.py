"""A kubeconfig of a stack's outputs as a file, for as long as it is used."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from trainium_eks.cli.failure import WRONG_USAGE, Failure


@contextmanager
def kubeconfig_file(text: str) -> Iterator[Path]:
    """The kubeconfig in a file, for its owner alone, that is gone afterwards.

    Raises:
        Failure: when the text is none, or a command that it names is not on this machine.
    """
    if not text.lstrip().startswith("{"):
        title = "the outputs hold no kubeconfig (pulumi shows it only with --show-secrets); give one with --kubeconfig"
        raise Failure(WRONG_USAGE, title)
    check_commands(text)
    handle, name = tempfile.mkstemp(prefix="trn-kubeconfig-")  # 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def check_commands(kubeconfig: str) -> None:
    """That the command which gets the token is there: without it the client would ask without one, and be refused.

    Raises:
        Failure: naming the command.
    """
    for command in _commands(kubeconfig):
        if shutil.which(command) is None:
            raise Failure(
                WRONG_USAGE,
                f"{command} is not on PATH; the kubeconfig gets its token from it.\n"
                "  Install: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
            )


def _commands(kubeconfig: str) -> Iterator[str]:
    try:
        data: Any = yaml.safe_load(kubeconfig)
        for user in data["users"]:
            if "exec" in user["user"]:
                yield str(user["user"]["exec"]["command"])
    except (yaml.YAMLError, KeyError, TypeError):
        return  # the client says what is wrong with it
