"""The earlier program that a plan is compared with: a saved plan, or a commit recorded with its own components."""

import io
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.cli.environment.plan import report
from trainium_eks.cli.shared import recording
from trainium_eks.client.failure import WRONG_USAGE, Failure
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.project import SUFFIXES, ProjectError, load_project


@dataclass(frozen=True)
class Baseline:
    """Source of an earlier program; :meth:`graph` loads or records it."""

    name: str
    """Displayed name: a path, or the given revision with the commit's short hash."""
    project: Path
    stack: str
    plan_file: Path | None = None
    commit: str = ""
    given: Assumptions | None = None
    """Answers for the look-ups of the earlier program."""

    def graph(self) -> Graph:
        """Return the earlier program; an empty one when the commit has no such stack yet.

        Raises:
            Failure: when the file is no plan, or the commit has a program that fails.
        """
        graph = report.load(self.plan_file) if self.plan_file else self._of_commit()
        if graph.stack != self.stack:
            raise Failure(WRONG_USAGE, f"{self.name} is a plan of stack {graph.stack}, not of {self.stack}")
        return graph

    def _of_commit(self) -> Graph:
        """Extract the commit and record its program there: the program imports the packages beside it."""
        inside = _git(self.project, "rev-parse", "--show-prefix")
        top = _git(self.project, "rev-parse", "--show-toplevel")
        with tempfile.TemporaryDirectory(prefix="trn-plan-") as directory:
            archive = subprocess.run(["git", "-C", top, "archive", self.commit], capture_output=True, check=False)
            if archive.returncode:
                raise Failure(WRONG_USAGE, f"git archive {self.commit} failed: {archive.stderr.decode().strip()}")
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
                tar.extractall(directory, filter="data")
            there = Path(directory).resolve() / inside
            if _is_new(there, self.stack):
                return Graph(load_project(self.project).name, self.stack, (), {})
            return self._record(there)

    def _record(self, project: Path) -> Graph:
        try:
            return recording.record(project, self.stack, self.given)
        except Failure as failure:
            # The directory is gone when somebody reads this: readers know the commit.
            title = failure.title.replace(str(project), self.name)
            raise Failure(failure.code, f"as of {self.name}: {title}", failure.problems, failure.detail) from None


def find(text: str, project: Path, stack: str, given: Assumptions | None) -> Baseline:
    """Return the baseline for ``--against``: a file where there is one, else a commit of the project's repository.

    Raises:
        Failure: when it is neither.
    """
    path = Path(text)
    if path.is_file():
        return Baseline(text, project, stack, plan_file=path)
    if path.is_dir():
        raise Failure(WRONG_USAGE, f"--against {text} is a directory; give a saved plan or a git commit")
    neither = f"--against {text}: neither a file nor a commit"
    if text.startswith("-"):
        raise Failure(WRONG_USAGE, neither)
    try:
        commit = _git(project, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    except Failure as failure:
        raise Failure(WRONG_USAGE, f"{neither} of this repository", detail=failure.detail) from None
    short = commit[:8]
    return Baseline(text if text.startswith(short) else f"{text} ({short})", project, stack, commit=commit, given=given)


def _is_new(before: Path, stack: str) -> bool:
    """Return whether the commit has neither the stack nor, perhaps, the project: then everything is created."""
    if not any((before / f"Pulumi{suffix}").is_file() for suffix in SUFFIXES):
        return True
    try:
        return stack not in load_project(before).stacks
    except ProjectError:
        return False  # recording reports the error


def _git(project: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(project), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Failure(WRONG_USAGE, "git is not on PATH", detail="git is not on PATH") from None
    if done.returncode:
        raise Failure(WRONG_USAGE, f"git {' '.join(arguments)} failed", detail=done.stderr.strip())
    return done.stdout.strip()
