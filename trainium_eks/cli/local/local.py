"""``trn local``: the stack on this machine."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainium_eks.cli.shared import recording
from trainium_eks.client import kubeconfig_variable
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure, complain
from trainium_eks.client.project import check_stack, find_project
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.paths import Paths
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.plan.recording.process import ProgramFailed, ProgramTimedOut, ProjectError
from trainium_eks.plan.recording.project import InvalidConfig

if TYPE_CHECKING:
    from trainium_eks.operate.finding import Report

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

WELL_WITHIN_SECONDS = 30.0
"""Seconds for which an ``up`` repeats failing checks at its end."""


@dataclass(frozen=True)
class Target:
    """The stack of a command."""

    stack: str
    directory: Path | None = None
    no_color: bool = False

    def project(self) -> Path:
        """Return the project's directory, after checking that it has the stack.

        Raises:
            Failure: no project, no such stack.
        """
        project = find_project(self.directory)
        check_stack(project, self.stack)
        return project

    def paths(self) -> Paths:
        """Return the stack's files. A stack that was removed from the project may still have some.

        Raises:
            Failure: no project, or neither files nor a stack of that name.
        """
        project = find_project(self.directory)
        paths = Paths.of(project, self.stack)
        if not paths.root.exists():
            check_stack(project, self.stack)
        return paths


def up(target: Target, nodes: int | None) -> int:
    """Run ``trn local up``; return the exit code."""

    def act() -> int:
        from trainium_eks.cli.local import render_local
        from trainium_eks.local import deployment

        asked = deployment.UpRequest(target.project(), target.stack, nodes)
        with render_local.reporter(no_color=target.no_color) as reporter:
            result = deployment.up(asked, reporter)
            found = _checks(target, result.outputs, reporter.phase)
        render_local.show(result, target.stack, found, no_color=target.no_color)
        if found is None or not found.failed:
            return 0
        from trainium_eks.cli.shared import examine

        said = examine.closing(_cluster(target), checks=False)
        sys.stdout.write(f"{said}\n" if said else "")
        return FAILED

    return _told(target, act)


def _checks(target: Target, outputs: Mapping[str, Any], phase: Callable[[str], None]) -> "Report | None":
    """Return the doctor's checks; None for a program without a training stack's outputs.

    Failing checks are repeated for some seconds, because controllers answer an ``up`` with a delay.
    """
    from trainium_eks.cli.shared import examine

    try:
        StackOutputs.parse(outputs)
    except ConfigModelError:
        return None
    phase("Checking the cluster")
    return examine.until_well(lambda: examine.diagnosis(_cluster(target), faults=False), WELL_WITHIN_SECONDS, phase)


def _cluster(target: Target) -> ClusterOptions:
    return ClusterOptions(target.stack, directory=target.directory)


def down(target: Target) -> int:
    """Run ``trn local down``; return the exit code."""

    def act() -> int:
        from trainium_eks.local import deployment

        paths = target.paths()
        there = paths.root.exists()
        ended = deployment.down(paths, target.stack)
        if not there and not ended:
            sys.stdout.write(f"Nothing of {target.stack} is on this machine.\n")
            return 0
        what = f"Stopped {', '.join(ended)}. " if ended else "No process was running. "
        sys.stdout.write(f"{what}Removed {paths.root}. Cached programs and charts stay.\n")
        return 0

    return _told(target, act)

    return _told(target, act)


def kubectl(target: Target, arguments: Sequence[str]) -> int:
    """Replace this process by kubectl; return only when that is impossible."""

    def act() -> int:
        from trainium_eks.local import deployment, toolchain

        file = _kubeconfig(target)
        environment = {**os.environ}
        files = kubeconfig_variable.named()
        # The variable is left unchanged: kubectl reads several files itself.
        if not files or kubeconfig_variable.other_server(
            kubeconfig_variable.merged(files), file.read_text(encoding="utf-8")
        ):
            environment[kubeconfig_variable.VARIABLE] = str(file)
        minor = deployment.Report.load(target.paths()).minor
        program = str(toolchain.provide(minor, progress=_say)["kubectl"].path)
        sys.stdout.flush()
        os.execve(program, ["kubectl", *arguments], environment)

    return _told(target, act)


def logs(target: Target, process: str | None, *, lines: int, follow: bool) -> int:
    """Run ``trn local logs``; return the exit code."""

    def act() -> int:
        directory = target.paths().logs
        names = sorted(file.stem for file in directory.glob("*.log")) if directory.is_dir() else []
        if not names:
            raise Failure(WRONG_USAGE, f"{target.stack} has no logs here: it was not started (`trn local up`)")
        if process is None:
            sys.stdout.write("".join(f"{name}\n" for name in names))
            return 0
        if process not in names:
            raise Failure(WRONG_USAGE, f"no log of {process!r}; there are {', '.join(names)}")
        _tail(directory / f"{process}.log", lines, follow=follow)
        return 0

    return _told(target, act)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _kubeconfig(target: Target) -> Path:
    file = target.paths().kubeconfig
    if not file.is_file():
        title = f"{target.stack} is not on this machine; start it with `trn local up -s {target.stack}`"
        raise Failure(WRONG_USAGE, title)
    return file


def _tail(file: Path, lines: int, *, follow: bool) -> None:
    with file.open(encoding="utf-8", errors="replace") as log:
        sys.stdout.write("".join(log.readlines()[-lines:]))
        while follow:
            sys.stdout.write(log.read())
            sys.stdout.flush()
            time.sleep(0.2)


def _told(target: Target, act: Callable[[], int]) -> int:
    """Run a command and report its errors in their own words, without a traceback; return the exit code."""
    try:
        return act()
    except Failure as failure:
        return complain(failure)
    except InvalidConfig as error:
        return complain(recording.refusal(error, find_project(target.directory), target.stack, "nothing was started"))
    except ProjectError as error:
        return complain(Failure(WRONG_USAGE, str(error)))
    except ProgramFailed as error:
        return complain(Failure(FAILED, f"the program failed: {error.message}", detail=error.traceback))
    except ProgramTimedOut as error:
        return complain(Failure(FAILED, str(error)))
    except ClusterError as error:
        return complain(_failed(error))
    except BrokenPipeError:
        # The reader (`| head`) has gone; Python would complain again when it flushes at exit.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. What is done stays; the same command goes on from there.\n")
        return INTERRUPTED


def _failed(error: ClusterError) -> Failure:
    from trainium_eks.local.deployment import UpFailed

    if not isinstance(error, UpFailed):
        return Failure(FAILED, str(error))
    parts = []
    for urn, message in error.failures:
        indented = message.replace("\n", "\n    ")
        parts.append(f"  {urn}\n    {indented}")
    detail = "\n".join([*parts, error.detail.strip()]).rstrip()
    return Failure(FAILED, str(error), detail=detail)
