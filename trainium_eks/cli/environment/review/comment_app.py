"""The command ``trn comment``: its options."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trainium_eks.cli.shared.command import ENVIRONMENT, App
from trainium_eks.cli.shared.options import Directory, Stack

app = App(panel=ENVIRONMENT)


class PlatformName(StrEnum):
    """Platform on which the comment is posted."""

    github = "github"
    gitlab = "gitlab"
    bitbucket = "bitbucket"


class FailOn(StrEnum):
    """Verdicts that fail the command."""

    blocked = "blocked"
    review = "review"
    never = "never"


@app.command(example="trn comment --stack prod --against origin/main --output comment.md")
def comment(
    stack: Stack = "",
    against: Annotated[
        str | None, typer.Option("--against", help="Plan the project now and as of a git commit, or a saved plan.")
    ] = None,
    before: Annotated[Path | None, typer.Option("--before", help="Saved plan of the base branch.")] = None,
    after: Annotated[Path | None, typer.Option("--after", help="Saved plan of the request.")] = None,
    preview: Annotated[
        Path | None, typer.Option("--preview", help="Output of `pulumi preview --json --show-sames`.")
    ] = None,
    preflight: Annotated[Path | None, typer.Option("--preflight", help="Output of `trn check --json`.")] = None,
    platform: Annotated[PlatformName, typer.Option("--platform", help="Whose Markdown.")] = PlatformName.github,
    output: Annotated[Path | None, typer.Option("--output", help="Write the comment to this file.")] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Also keep both plans in this folder.")] = None,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit with 1 from this verdict on.")] = FailOn.blocked,
    accept_losses: Annotated[
        bool, typer.Option("--accept-losses", help="Somebody has accepted that data or running work is lost.")
    ] = False,
    commit: Annotated[str, typer.Option("--commit", help="Commit that is shown.")] = "",
    link: Annotated[str, typer.Option("--link", help="Address of the run, for what does not fit.")] = "",
    scrub: Annotated[
        list[str] | None, typer.Option("--scrub", metavar="REGEX", help="Blank this too; may be repeated.")
    ] = None,
    show_account_ids: Annotated[
        bool, typer.Option("--show-account-ids", help="Show account ids whole, not their last four digits.")
    ] = False,
    post: Annotated[
        bool, typer.Option("--post", help="Post it, in place of an earlier one; the token is in the environment.")
    ] = False,
    request: Annotated[int | None, typer.Option("--request", help="Number of the pull request.")] = None,
    stub: Annotated[
        Path | None, typer.Option("--stub", help="YAML file with answers for the program's look-ups.")
    ] = None,
    directory: Directory = None,
) -> None:
    """Write a pull request's effects on an environment as one comment: verdict, risks, cost, policy, changes.

    Exit code: 0; 1 for a verdict of --fail-on, or when the comment could not be posted; 2 for wrong usage.
    """
    from trainium_eks.cli.environment.review import comment as command

    asked = command.CommentOptions(
        stack,
        against=against,
        before=before,
        after=after,
        preview=preview,
        preflight=preflight,
        platform=platform.value,
        output=output,
        save=save,
        fail_on=fail_on.value,
        accept_losses=accept_losses,
        commit=commit,
        link=link,
        scrub=tuple(scrub or ()),
        show_account_ids=show_account_ids,
        post=post,
        request=request,
        directory=directory,
        stub=stub,
    )
    raise typer.Exit(command.run(asked))
