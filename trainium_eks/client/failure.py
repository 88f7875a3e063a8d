"""Failure of a command: one shape for people and for ``--json``."""

import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from trainium_eks.kube.errors import ClusterError, MissingError
from trainium_eks.kube.pod_text import printable
from trainium_eks.model.machine_faults import machine_fault
from trainium_eks.model.validation.problems import Problem, Setting, config_path, config_set, describe
from trainium_eks.plan.resource import SCHEMA_VERSION

FAILED = 1
"""Something was found or failed: invalid config, a program that fails, a rule that is broken."""
WRONG_USAGE = 2
"""The command cannot begin: wrong options, no project, no such stack, file or commit, no tool, no credentials."""

INTERRUPTED = 130
"""Ctrl-C ended the command."""

TRACEBACK = "TRN_TRACEBACK"
"""Environment variable that shows the traceback of an error that no command has foreseen."""

LOCAL_PACKAGES = frozenset(
    {"boto3", "botocore", "cryptography", "filelock", "kubernetes", "psutil", "ruamel", "urllib3"}
)
"""Packages of the extra ``local``, by the names of their modules; the extra ``cli`` lacks them."""

_LONGEST_SAID = 500
_COMMANDS = (
    *(
        "acceptance",
        "cancel",
        "capacity",
        "check",
        "comment",
        "deploy",
        "doctor",
        "fabric",
        "image",
        "jobs",
        "kubeconfig",
    ),
    *("local", "logs"),
    *("orphans", "plan", "predict", "profile", "scale", "secret", "serve", "stage"),
    *("status", "tensorboard", "train", "wait"),
)
_COMMAND = re.compile(rf"(?<![\w./-])trn (?=(?:{'|'.join(_COMMANDS)})\b)")


class CommandError(Exception):
    """Error that ends a command with exit code 1."""

    code = FAILED

    def __init__(
        self,
        title: str,
        problems: Iterable[Problem] = (),
        detail: str = "",
        spell: Callable[[str], str] = config_path,
        setting: Setting = config_set,
    ) -> None:
        super().__init__(title)
        self.title = title
        """One line."""
        self.problems = tuple(problems)
        """Problems of the config, or of a component's arguments, when those are the reason."""
        self.detail = detail
        """The program's own traceback, when the program failed."""
        self.spell = spell
        """How the reader writes the problems' paths: as the config's keys, or as a component's arguments (``str``)."""
        self.setting = setting
        """Remedy that sets a value of the config: a line of the stack's file, or a command."""

    def text(self) -> str:
        """Return the text for people."""
        parts = (self.title, describe(self.problems, self.spell, self.setting), self.detail.rstrip())
        return "\n".join(part for part in parts if part)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for tools. A failure without problems of config is one problem with an empty path."""
        found = self.problems or (Problem("", self.title),)
        shown = [{**problem.to_json(), "path": self.spell(problem.path)} for problem in found]
        return {"schemaVersion": SCHEMA_VERSION, "problems": shown, "detail": self.detail}


class UsageError(CommandError):
    """Error that ends a command before it begins, with exit code 2."""

    code = WRONG_USAGE


def complain(failure: CommandError) -> int:
    """Print a failure on stderr; return its exit code."""
    sys.stderr.write(f"{printable(as_typed(failure.text()))}\n")
    return failure.code


def failure_of(error: Exception) -> CommandError | None:
    """Return the failure that an error of a command is; None for an error that no command has foreseen."""
    if isinstance(error, ClusterError):
        return (UsageError if isinstance(error, MissingError) else CommandError)(str(error))
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in LOCAL_PACKAGES:
        return UsageError(f"the Python package {error.name} is missing: pip install 'trainium-eks[local]' brings it")
    if isinstance(error, OSError) and (fault := machine_fault(error)):
        return CommandError(fault)
    return error if isinstance(error, CommandError) else None


def unexpected(error: Exception) -> CommandError:
    """Return the failure for an error that no command has foreseen."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{where.filename.rpartition('trainium_eks/')[2]}, line {where.lineno}"
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return CommandError(
        f"{said[:_LONGEST_SAID]} ({place}). Something answered in a form that trn does not know, or trn has a fault: "
        f"{TRACEBACK}=1 before the command shows where it comes from; please report it with that"
    )


def as_typed(text: str) -> str:
    """Return the text with each ``trn`` command as it can be typed here: ``./trn`` in a checkout without an installed
    ``trn``."""
    return text if shutil.which("trn") else _COMMAND.sub("./trn ", text)
