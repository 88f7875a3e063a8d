"""``trn comment``: two plans, or a preview, as one comment on a pull request."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from trainium_eks import __version__
from trainium_eks.cli.shared import output, programs, recording
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.options import Directory, Stack, Stub
from trainium_eks.cli.shared.programs import Programs, document
from trainium_eks.client.failure import FAILED, UsageError
from trainium_eks.client.project import find_project
from trainium_eks.client.stack_check import check_stack
from trainium_eks.operate.review import review, scrubbing
from trainium_eks.operate.review.comment import PLATFORMS, render
from trainium_eks.operate.review.review import Refusal, Review
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.project import load_project

app = App(asks_cloud=False)


@app.command(example="trn comment --stack prod --against origin/main --output comment.md")
def comment(
    stack: Stack = "",
    against: Annotated[str | None, typer.Option("--against", help="Compare with a git commit or a saved plan.")] = None,
    before: Annotated[Path | None, typer.Option("--before", help="Saved plan of the base branch.")] = None,
    after: Annotated[Path | None, typer.Option("--after", help="Saved plan of the request.")] = None,
    preview: Annotated[
        Path | None, typer.Option("--preview", help="Output of `pulumi preview --json --show-sames`.")
    ] = None,
    preflight: Annotated[Path | None, typer.Option("--preflight", help="Output of `trn check --json`.")] = None,
    platform: Annotated[
        Literal["github", "gitlab", "bitbucket"], typer.Option("--platform", help="Markdown dialect.")
    ] = "github",
    output: Annotated[Path | None, typer.Option("--output", help="Write the comment to this file.")] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Also keep both plans in this folder.")] = None,
    fail_on: Annotated[
        Literal["blocked", "review", "never"],
        typer.Option("--fail-on", help="Exit with 1 for this verdict or a worse one."),
    ] = "blocked",
    accept_losses: Annotated[
        bool, typer.Option("--accept-losses", help="Do not block on lost data or jobs; a person has approved it.")
    ] = False,
    commit: Annotated[str, typer.Option("--commit", help="Commit to show in the comment.")] = "",
    link: Annotated[str, typer.Option("--link", help="URL of the CI run, for text that does not fit.")] = "",
    scrub: Annotated[
        list[str] | None,
        typer.Option("--scrub", metavar="REGEX", help="Remove text that matches REGEX; may be repeated."),
    ] = None,
    show_account_ids: Annotated[
        bool, typer.Option("--show-account-ids", help="Show complete account ids, not only the last four digits.")
    ] = False,
    stub: Stub = None,
    directory: Directory = None,
) -> None:
    """Write a pull request's effects on an environment as one comment: verdict, risks, cost, policy, changes.

    Exit code: 0; 1 for a verdict of --fail-on; 2 for wrong usage.
    """
    programs = _programs(stack, against, before, after, preview, directory, stub)
    if save is not None:
        programs.keep(save)
    judged = replace(_review(programs, stack, directory, preflight), losses_accepted=accept_losses, commit=commit)
    _write(_text(judged, programs, platform, scrub or (), link, show_accounts=show_account_ids), output)
    failing = {"blocked": ("BLOCKED",), "review": ("BLOCKED", "REVIEW"), "never": ()}[fail_on]
    raise typer.Exit(FAILED if judged.outcome in failing else 0)


def _programs(
    stack: str,
    against: str | None,
    before: Path | None,
    after: Path | None,
    preview: Path | None,
    directory: Path | None,
    stub: Path | None,
) -> Programs:
    if [against, before, preview].count(None) != 2 or (before and not after):
        wanted = "--against REF, --before FILE with --after FILE, or --preview FILE"
        raise UsageError(f"nothing to compare: give one of {wanted}")
    if preview is not None:
        return programs.of_preview(preview, after, stack)
    if before is not None and after is not None:
        return programs.Programs(programs.saved(before, stack), programs.saved(after, stack), "the base branch")
    project = find_project(directory)
    check_stack(project, stack)
    with recording.spinner(f"Recording {stack}, now and as of {against}"):
        return programs.recorded(project, stack, str(against), recording.load_assumptions(stub))


def _review(programs: Programs, stack: str, directory: Path | None, preflight: Path | None) -> Review:
    before, after, preview = programs.before, programs.after, programs.preview
    named = next((each for each in (after, before) if isinstance(each, Graph)), None)
    project = named.project if named else load_project(find_project(directory)).name
    judged = Review(project, stack, "offline", programs.since, versions={"trn": __version__})
    if preflight is not None:
        try:
            judged = replace(judged, checks=review.findings(document(preflight)))
        except ValueError as error:
            raise UsageError(f"{preflight} is not what `trn check --json` prints: {error}") from None
    if preview is not None:
        plan = after if isinstance(after, Graph) and after is not preview.after else None
        failed = Refusal("the preview failed", detail="\n".join(preview.errors)) if preview.errors else None
        return replace(judged, lane="preview", comparison=review.of_preview(preview, plan), refusal=failed)
    if isinstance(after, Refusal):
        return replace(judged, refusal=after)
    if isinstance(before, Refusal):
        # A request that mends a broken base must be able to pass: it is compared with nothing.
        judged = replace(judged, base_failed=before.title)
        before = Graph(after.project, after.stack, (), {})
    return replace(judged, comparison=review.of_plans(before, after))


def _text(
    judged: Review, programs: Programs, platform: str, scrub: Sequence[str], link: str, *, show_accounts: bool
) -> str:
    graphs = [each for each in (programs.before, programs.after) if isinstance(each, Graph)]
    try:
        scrubber = scrubbing.scrubber(graphs, scrub, show_accounts=show_accounts)
        return render(judged, PLATFORMS[platform], scrubber, link)
    except re.error as error:
        raise UsageError(f"--scrub {error.pattern!r} is not a regular expression: {error}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def _write(text: str, path: Path | None) -> None:
    if path is None:
        output.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
