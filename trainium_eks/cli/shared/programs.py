"""The programs that a plan or a comment compares: recorded now, saved, of a commit with its own components, or of a
preview."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_eks.cli.shared import recording
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.model.validation.parsing import parse_json
from trainium_eks.model.validation.problems import Problem
from trainium_eks.operate.review import preview
from trainium_eks.operate.review.preview import Preview
from trainium_eks.operate.review.review import Refusal
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.project import SUFFIXES, ProjectError, load_project

MOST_BYTES = 256 * 1024 * 1024
"""Size limit of an input file: the largest plan seen is a hundredth of it."""


@dataclass(frozen=True)
class Programs:
    """Two programs; a refusal in place of a program that failed."""

    before: Graph | Refusal
    after: Graph | Refusal
    since: str
    preview: Preview | None = None

    def keep(self, folder: Path) -> None:
        """Write both as ``before.json`` and ``after.json``, in the form of ``trn plan --json``."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, program in (("before", self.before), ("after", self.after)):
            if isinstance(program, Graph):
                document = program.to_json()
            else:
                problems = program.problems or (Problem("", program.title),)
                listed = [problem.to_json() for problem in problems]
                document = {"title": program.title, "problems": listed, "detail": program.detail}
            (folder / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def recorded(project: Path, stack: str, against: str, given: Assumptions | None) -> Programs:
    """Return the program as it is and an earlier one, recorded in two processes at the same time."""
    earlier, graph = find(against, project, stack, given)
    with ThreadPoolExecutor(2) as pool:
        before = pool.submit(graph)
        after = pool.submit(recording.record, project, stack, given)
        return Programs(_or_refusal(before.result), _or_refusal(after.result), earlier)


def _or_refusal(result: Callable[[], Graph]) -> Graph | Refusal:
    try:
        return result()
    except CommandError as failure:
        if isinstance(failure, UsageError):
            raise
        return refusal(failure.to_json(), failure.title)


# --- files --------------------------------------------------------------------------------------------------------


def of_preview(path: Path, plan: Path | None, stack: str) -> Programs:
    """Return the programs of a preview; the second is a saved plan where one is given."""
    try:
        parsed = preview.parse(document(path), stack)
    except ValueError as error:
        raise UsageError(f"{path} is not a preview: {error}") from None
    return Programs(parsed.before, saved(plan, stack) if plan else parsed.after, "the account", parsed)


def saved(path: Path, stack: str) -> Graph | Refusal:
    """Return a saved plan, or the refusal that ``trn plan --json`` printed instead."""
    data = document(path)
    if isinstance(data, Mapping) and "resources" not in data and "problems" in data:
        return refusal(data, str(data.get("title") or f"Pulumi.{stack}.yaml: nothing was planned"))
    return _plan(data, path, stack)


def _plan(data: object, path: Path, stack: str) -> Graph:
    if not isinstance(data, Mapping) or "resources" not in data:
        raise UsageError(f"{path} is not a saved plan: it has no resources")
    try:
        graph = Graph.from_json(data)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not a whole plan: {error!r}") from None
    if graph.stack != stack:
        raise UsageError(f"{path} is a plan of stack {graph.stack}, not of {stack}")
    return graph


def refusal(data: Mapping[str, Any], title: str) -> Refusal:
    """Return a command's failure in the form for a comment."""
    try:
        problems = tuple(Problem.from_json(each) for each in data["problems"])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"it is not what `trn plan --json` prints: {error!r}") from None
    if len(problems) == 1 and not problems[0].path:
        # A program that failed: its message is its one problem.
        title, problems = problems[0].reason, ()
    return Refusal(title, problems, str(data.get("detail") or ""))


def document(path: Path) -> object:
    """Return the JSON document in a file."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than {MOST_BYTES // 1024 // 1024} MiB")
        text = path.read_text(encoding="utf-8", errors="replace")
        # `pulumi preview --json` prints the plugins' messages before the document.
        return parse_json(text[max(text.find("{"), 0) :])
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None


# --- the earlier program of --against -----------------------------------------------------------------------------


def find(text: str, project: Path, stack: str, given: Assumptions | None) -> tuple[str, Callable[[], Graph]]:
    """Return the name of the earlier program and what loads or records it: a file where there is one, else a commit of
    the project's repository."""
    path = Path(text)
    if path.is_file():
        return text, lambda: _plan(document(path), path, stack)
    if path.is_dir():
        raise UsageError(f"--against {text} is a directory; give a saved plan or a git commit")
    neither = f"--against {text}: neither a file nor a commit"
    if text.startswith("-"):
        raise UsageError(neither)
    try:
        commit = _git(project, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    except CommandError as failure:
        raise UsageError(f"{neither} of this repository", detail=failure.detail) from None
    name = text if text.startswith(commit[:8]) else f"{text} ({commit[:8]})"
    return name, lambda: _of_commit(name, commit, project, stack, given)


def _of_commit(name: str, commit: str, project: Path, stack: str, given: Assumptions | None) -> Graph:
    """Extract the commit and record its program there: the program imports the packages beside it. The program is empty
    when the commit has no such stack yet."""
    inside = _git(project, "rev-parse", "--show-prefix")
    top = _git(project, "rev-parse", "--show-toplevel")
    with tempfile.TemporaryDirectory(prefix="trn-plan-") as directory:
        # A separate index, so that the user's working tree and index stay as they are.
        tree = Path(directory).resolve() / "tree"
        index = {"GIT_INDEX_FILE": f"{directory}/index"}
        _git(project, "-c", "core.sparseCheckout=false", "read-tree", commit, **index)
        _git(Path(top), "checkout-index", "--all", f"--prefix={tree}/", **index)
        there = tree / inside
        if _is_new(there, stack):
            return Graph(load_project(project).name, stack, (), {})
        try:
            return recording.record(there, stack, given)
        except CommandError as failure:
            # The directory no longer exists when this is read: readers know the commit.
            title = failure.title.replace(str(there), name)
            raise type(failure)(f"as of {name}: {title}", failure.problems, failure.detail) from None


def _is_new(before: Path, stack: str) -> bool:
    """Return whether the commit has neither the stack nor, perhaps, the project: then everything is created."""
    if not any((before / f"Pulumi{suffix}").is_file() for suffix in SUFFIXES):
        return True
    try:
        return stack not in load_project(before).stacks
    except ProjectError:
        return False  # recording reports the error


def _git(project: Path, *arguments: str, **variables: str) -> str:
    command = ["git", "-C", str(project), *arguments]
    try:
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UsageError("git is not on PATH", detail="git is not on PATH") from None
    if done.returncode:
        raise UsageError(f"git {' '.join(arguments)} failed", detail=done.stderr.strip())
    return done.stdout.strip()
