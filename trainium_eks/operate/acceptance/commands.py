"""Commands of ``trn`` as a run calls them: a separate process for each, with the output in the run's folder."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trainium_eks import whole_file
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json
from trainium_eks.operate.acceptance.run import StepError
from trainium_eks.operate.denied_calls import DeniedCall, find_denied_calls

STOP_SECONDS = 900.0
"""Time for a command to end after SIGINT: Pulumi finishes the operations that it has begun, such as a control plane."""

WITH_OUTPUTS = ("train", "status", "wait", "logs", "cancel", "scale", "fabric", "image")
"""Commands that take ``--outputs``. Asking Pulumi for the outputs takes 3 to 6 s with its state in S3 and a KMS key;
``doctor`` reads that state anyway."""

LAST_LINES = 6
"""Lines of a failed command's output that its :class:`StepError` contains."""


@dataclass(frozen=True)
class Answer:
    """A command that has ended."""

    code: int
    output: str
    """Standard output."""
    complaint: str
    """The last lines of standard error, or of standard output where that is empty, in one."""

    @property
    def document(self) -> Any:
        """Return the JSON that a command with ``--json`` printed; :class:`StepError` for anything else."""
        try:
            return parse_json(self.output)
        except MISSHAPEN:
            raise StepError(f"the answer is not JSON: {self.complaint}") from None


@dataclass
class Commands:
    """The way to run ``trn`` for a stack."""

    project: Path
    stack: str
    folder: Path
    """Directory of the outputs, ``<command>.out`` and ``.err`` of each command's last call, and of the file ``child``
    with the process id of the present one."""
    until: float = 0.0
    """Time (seconds since 1970) at which each command is stopped."""

    @property
    def outputs(self) -> Path:
        """Return the file of the stack's outputs, which is there from the end of ``up`` to the destroy."""
        return self.folder / "outputs.json"

    def run(self, *words: str, after: tuple[str, ...] = (), of_stack: bool = True) -> Answer:
        """Run a command to its end; ``after`` goes behind ``--``, and ``of_stack`` is False for a command of no stack.

        :class:`StepError` when time is up. On Ctrl-C the command is asked to end, too, and awaited."""
        command = [sys.executable, "-m", "trainium_eks.cli", *words]
        command += ["--stack", self.stack, "--directory", str(self.project)] if of_stack else []
        command += ["--outputs", str(self.outputs)] if words[0] in WITH_OUTPUTS and self.outputs.is_file() else []
        command += ["--", *after] if after else []
        name = "-".join(word for word in words[:2] if word.isalpha())
        surroundings = {**os.environ, "NO_COLOR": "1", "COLUMNS": "160"}
        out, err = (self.folder / f"{name}.{kind}" for kind in ("out", "err"))
        with out.open("wb") as output, err.open("wb") as errors:
            # A separate session: Ctrl-C at the terminal reaches this process alone, which passes it on once.
            process = subprocess.Popen(
                command,
                cwd=self.project,
                env=surroundings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        whole_file.write(self.folder / "child", str(process.pid))
        try:
            process.wait(timeout=max(self.until - time.time(), 0))
        except subprocess.TimeoutExpired:
            _stop(process)
            raise StepError(f"`trn {' '.join(words)}` was stopped: its time, or the limit of cost, was over") from None
        except KeyboardInterrupt:
            _stop(process)
            raise
        said, told = (file.read_text(encoding="utf-8", errors="replace") for file in (out, err))
        self._note_denied(f"trn {' '.join(words[:2])}", f"{said}\n{told}")
        lines = [line.strip() for line in (told.strip() or said.strip()).splitlines() if line.strip()]
        return Answer(process.returncode, said, " / ".join(lines[-LAST_LINES:]))

    def remove(self, lines: Sequence[str]) -> None:
        """Run command lines of the AWS CLI that remove a resource, as ``trn orphans`` proposes them. A line that fails
        leaves the resource to the next search."""
        for line in lines:
            subprocess.run(shlex.split(line), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)

    def denied(self) -> list[dict[str, str]]:
        """Return each call that AWS denied to a command, with ``command``, ``action``, ``policy`` and ``remedy``."""
        file = self.folder / "denied.json"
        return parse_json(file.read_text(encoding="utf-8")) if file.is_file() else []

    def _note_denied(self, command: str, text: str) -> None:
        known = self.denied()
        new = [
            {"command": command, "action": each.action, "policy": each.policy_kind.value, "remedy": _remedy(each)}
            for each in find_denied_calls(text)
        ]
        if new := [each for each in new if each not in known]:
            whole_file.write(self.folder / "denied.json", json.dumps([*known, *new]))

    def await_last(self) -> None:
        """Wait until the command has ended that a crashed run left; another process with its number is left alone."""
        try:
            process = psutil.Process(int((self.folder / "child").read_text(encoding="ascii")))
            if "trainium_eks.cli" in process.cmdline() or process.name() == "pulumi":
                process.wait()
        except (OSError, ValueError, psutil.Error):
            return

    def must(self, *words: str, after: tuple[str, ...] = (), of_stack: bool = True) -> Answer:
        """Run a command as :meth:`run` does; :class:`StepError` unless it ends with 0."""
        found = self.run(*words, after=after, of_stack=of_stack)
        if found.code:
            raise StepError(f"`trn {' '.join(words)}` ended with {found.code}: {found.complaint}")
        return found

    def ask(self, *words: str) -> Any:
        """Return the document of a command with ``--json``, with any exit code."""
        return self.run(*words, "--json").document


def _remedy(call: DeniedCall) -> str:
    """Return the remedy without the message itself, which may name the account."""
    return call.remedy.replace(call.encoded, "MESSAGE") if call.encoded else call.remedy


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=STOP_SECONDS)
        except ProcessLookupError:
            process.wait()
        except subprocess.TimeoutExpired:
            continue
        return


def findings(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the failed findings of a document of ``trn check``, ``doctor``, ``fabric`` or ``orphans``."""
    return [each for each in report.get("findings", ()) if each.get("status") == "fail"]
