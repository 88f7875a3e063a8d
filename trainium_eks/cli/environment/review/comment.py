"""``trn comment``: two plans, or a preview, as one comment on a pull request."""

import json
import os
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainium_eks import __version__
from trainium_eks.cli.environment.plan import baseline, report
from trainium_eks.cli.shared import output, recording
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure, complain
from trainium_eks.client.project import check_stack, find_project
from trainium_eks.model.validation.parsing import parse_json
from trainium_eks.model.validation.problems import Problem
from trainium_eks.operate.review import comment, posting, preflight, preview, review, scrubbing
from trainium_eks.operate.review.platforms import PLATFORMS
from trainium_eks.operate.review.preview import Preview
from trainium_eks.operate.review.review import Outcome, Refusal, Review
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.project import load_project

MOST_BYTES = 256 * 1024 * 1024
"""Size limit of an input file: the largest plan seen is a hundredth of it."""


@dataclass(frozen=True)
class CommentOptions:
    """The options of one call."""

    stack: str
    against: str | None = None
    before: Path | None = None
    after: Path | None = None
    preview: Path | None = None
    preflight: Path | None = None
    platform: str = "github"
    output: Path | None = None
    save: Path | None = None
    """Folder for both plans, as ``before.json`` and ``after.json``."""
    fail_on: str = "blocked"
    """``blocked``, ``review`` (which includes it) or ``never``."""
    accept_losses: bool = False
    commit: str = ""
    link: str = ""
    scrub: tuple[str, ...] = ()
    show_account_ids: bool = False
    post: bool = False
    request: int | None = None
    directory: Path | None = None
    stub: Path | None = None


@dataclass(frozen=True)
class Programs:
    """The two programs; a refusal in place of a program that failed."""

    before: Graph | Refusal
    after: Graph | Refusal
    since: str
    preview: Preview | None = None


def run(asked: CommentOptions) -> int:
    """Write the comment and post it; return the exit code."""
    try:
        found = _programs(asked)
        if asked.save is not None:
            _save(found, asked.save)
        judged = _review(found, asked)
        text = _text(judged, found, asked)
        _write(text, asked)
    except Failure as failure:
        return complain(failure)
    if asked.post:
        try:
            done = posting.post(posting.place(asked.platform, asked.request, os.environ), text)
        except posting.PostingError as error:
            return complain(Failure(FAILED, f"the comment was not posted: {error}"))
        sys.stderr.write(f"comment {done}\n")
    return _code(judged.outcome, asked.fail_on)


def _code(outcome: Outcome, fail_on: str) -> int:
    failing = {"blocked": (Outcome.BLOCKED,), "review": (Outcome.BLOCKED, Outcome.REVIEW), "never": ()}[fail_on]
    return FAILED if outcome in failing else 0


# --- input --------------------------------------------------------------------------------------------------------


def _programs(asked: CommentOptions) -> Programs:
    given = [asked.against is not None, asked.before is not None, asked.preview is not None]
    if sum(given) != 1 or (asked.before is not None and asked.after is None):
        wanted = "--against REF, --before FILE with --after FILE, or --preview FILE"
        raise Failure(WRONG_USAGE, f"what is to be compared? Give one of {wanted}")
    if asked.preview is not None:
        return _of_preview(asked, asked.preview)
    if asked.before is not None and asked.after is not None:
        return Programs(_plan(asked.before, asked.stack), _plan(asked.after, asked.stack), "the base branch")
    return _recorded(asked, str(asked.against))


def _of_preview(asked: CommentOptions, path: Path) -> Programs:
    try:
        parsed = preview.parse(_document(path), asked.stack)
    except ValueError as error:
        raise Failure(WRONG_USAGE, f"{path} is no preview: {error}") from None
    plan = _plan(asked.after, asked.stack) if asked.after is not None else parsed.after
    return Programs(parsed.before, plan, "the account", parsed)


def _recorded(asked: CommentOptions, against: str) -> Programs:
    """Return both programs, recorded in two processes at the same time."""
    project = find_project(asked.directory)
    check_stack(project, asked.stack)
    given = recording.load_assumptions(asked.stub)
    earlier = baseline.find(against, project, asked.stack, given)
    with ThreadPoolExecutor(2) as pool:
        before = pool.submit(earlier.graph)
        after = pool.submit(recording.record, project, asked.stack, given)
        return Programs(_or_refusal(before.result), _or_refusal(after.result), earlier.name)


def _or_refusal(result: Any) -> Graph | Refusal:
    try:
        graph: Graph = result()
    except Failure as failure:
        if failure.code != FAILED:
            raise
        return refusal(failure)
    return graph


def _plan(path: Path, stack: str) -> Graph | Refusal:
    """Return a saved plan, or the refusal that ``trn plan --json`` printed in its place."""
    document = _document(path)
    if isinstance(document, Mapping) and "resources" not in document and "problems" in document:
        return _refusal(document, str(document.get("title") or f"Pulumi.{stack}.yaml: nothing was planned"))
    graph = report.parse(document, str(path))
    if graph.stack != stack:
        raise Failure(WRONG_USAGE, f"{path} is a plan of stack {graph.stack}, not of {stack}")
    return graph


def refusal(failure: Failure) -> Refusal:
    """Return a command's failure in the form for a comment."""
    return _refusal(failure.to_json(), failure.title)


def _refusal(document: Mapping[str, Any], title: str) -> Refusal:
    try:
        problems = tuple(Problem.from_json(each) for each in document["problems"])
    except (KeyError, TypeError, ValueError) as error:
        raise Failure(WRONG_USAGE, f"it is not what `trn plan --json` prints: {error!r}") from None
    if len(problems) == 1 and not problems[0].path:
        # A program that failed: its message is its one problem.
        title, problems = problems[0].reason, ()
    return Refusal(title, problems, str(document.get("detail") or ""))


def _document(path: Path) -> object:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise Failure(WRONG_USAGE, f"{path} is larger than {MOST_BYTES // 1024 // 1024} MiB")
        text = path.read_text(encoding="utf-8", errors="replace")
        # `pulumi preview --json` prints the plugins' messages before the document.
        return parse_json(text[max(text.find("{"), 0) :])
    except OSError as error:
        raise Failure(WRONG_USAGE, f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Failure(WRONG_USAGE, f"{path} is not JSON: {error}") from None


# --- review -------------------------------------------------------------------------------------------------------


def _review(found: Programs, asked: CommentOptions) -> Review:
    named = next((each for each in (found.after, found.before) if isinstance(each, Graph)), None)
    project = named.project if named else load_project(find_project(asked.directory)).name
    judged = Review(
        project=project,
        stack=asked.stack,
        lane="offline",
        since=found.since,
        checks=_checks(asked.preflight),
        losses_accepted=asked.accept_losses,
        commit=asked.commit,
        versions={"trn": __version__},
    )
    if found.preview is not None:
        plan = found.after if isinstance(found.after, Graph) and found.after is not found.preview.after else None
        failed = Refusal("the preview failed", detail="\n".join(found.preview.errors)) if found.preview.errors else None
        compared = review.of_preview(found.preview, plan)
        return replace(judged, lane="preview", comparison=compared, refusal=failed)
    if isinstance(found.after, Refusal):
        return replace(judged, refusal=found.after)
    before = found.before
    if isinstance(before, Refusal):
        # A request that mends a broken base must be able to pass: it is compared with nothing.
        judged = replace(judged, base_failed=before.title)
        before = Graph(found.after.project, found.after.stack, (), {})
    return replace(judged, comparison=review.of_plans(before, found.after))


def _checks(path: Path | None) -> tuple[preflight.Check, ...] | None:
    if path is None:
        return None
    try:
        return preflight.parse(_document(path))
    except ValueError as error:
        raise Failure(WRONG_USAGE, f"{path} is not what `trn check --json` prints: {error}") from None


# --- output -------------------------------------------------------------------------------------------------------


def _text(judged: Review, found: Programs, asked: CommentOptions) -> str:
    graphs = [each for each in (found.before, found.after) if isinstance(each, Graph)]
    try:
        scrubber = scrubbing.scrubber(graphs, asked.scrub, show_accounts=asked.show_account_ids)
        return comment.render(judged, PLATFORMS[asked.platform], scrubber, asked.link)
    except re.error as error:
        raise Failure(WRONG_USAGE, f"--scrub {error.pattern!r} is no regular expression: {error}") from None
    except ValueError as error:
        raise Failure(WRONG_USAGE, str(error)) from None


def _save(found: Programs, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in (("before", found.before), ("after", found.after)):
        if isinstance(program, Graph):
            document = program.to_json()
        else:
            problems = program.problems or (Problem("", program.title),)
            listed = [problem.to_json() for problem in problems]
            document = {"title": program.title, "problems": listed, "detail": program.detail}
        (folder / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def _write(text: str, asked: CommentOptions) -> None:
    if asked.output is None:
        output.write(text)
        return
    try:
        asked.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(WRONG_USAGE, f"cannot write {asked.output}: {error.strerror}") from None
