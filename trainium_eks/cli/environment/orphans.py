"""``trn orphans``: the operations that an interrupted update left open, and the resources that a stack left behind."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from trainium_eks.aws.account import Account, NoCredentialsError, NotCheckedError, RequestError
from trainium_eks.cli.shared import output, report, stack_state
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import show_sections
from trainium_eks.cli.shared.options import Directory, NoColor, Stack
from trainium_eks.client.failure import FAILED, CommandError, UsageError, as_typed
from trainium_eks.client.project import find_project
from trainium_eks.model.catalogue import prices
from trainium_eks.model.finding import Report, Status
from trainium_eks.operate.cleanup import orphans as search
from trainium_eks.operate.cleanup.left_over import Marks
from trainium_eks.operate.cleanup.recovery import OPERATIONS

app = App()

COMMAND_WIDTH = 72
"""Columns after which a command continues in the next line."""


@app.command(example="trn orphans --stack dev", begins="asking AWS what the stack left in the account")
def orphans(
    stack: Stack = "",
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Output of `pulumi stack export`, - for standard input; default: ask pulumi."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Look for resources of this EKS cluster; needs no state.")
    ] = None,
    region: Annotated[str | None, typer.Option("--region", help="AWS region; default: the stack's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
    no_color: NoColor = False,
    directory: Directory = None,
) -> None:
    """Advise on each operation that an interrupted update left open, and list the resources that a stack left in the
    account, with costs and removing commands. Only reads.

    Exit code: 0 when nothing is left and everything was looked at; 1 otherwise; 2 for wrong usage.
    """
    found = look(stack, state, cluster, region, directory)
    if as_json:
        output.write_json(found.to_json())
    else:
        for shown, commands in sections(found):
            show_sections([shown], no_color=no_color)
            # Without Rich, which would break URNs and ARNs: these are longer than a line.
            lines = [f"  {line}\n" for command in commands for line in shell_lines(command)]
            output.write("".join([*lines, "\n"] if lines else []))
    raise typer.Exit(FAILED if found.of(Status.FAIL, Status.NOT_CHECKED) else 0)


def look(stack: str, state: Path | None, cluster: str | None, region: str | None, directory: Path | None) -> Report:
    """Search the account."""
    try:
        project = find_project(directory)
    except CommandError:
        if directory is not None or (state is None and cluster is None):
            raise
        project = None
    held = None
    if cluster is None or state is not None:
        otherwise = ",\n  or look for what belongs to one cluster: trn orphans --cluster NAME --region REGION"
        held = stack_state.load(stack, state, project, otherwise)
    account = Account(stack_state.region(held, region, project, stack))
    try:
        account.caller()
    except NoCredentialsError as error:
        raise UsageError(str(error)) from None
    except (NotCheckedError, RequestError):
        pass  # each finding repeats the error
    return search.look(account, Marks(cluster=cluster) if cluster is not None else Marks(stack=stack), held)


def sections(found: Report) -> Iterator[tuple[RenderableType, Sequence[str]]]:
    """Yield the parts of the report for people, each with the commands that follow it."""
    facts = found.facts
    stack, region, live = facts["subject"], facts["region"], facts["liveClusters"]
    header = [Text(f"{stack} · {region}", "bold")]
    if not facts["comparedWithState"]:
        header.append(Text("There is no state to compare with: what is still in use is listed, too.", "yellow"))
    if facts["stateIsEmpty"]:
        empty = (
            f"The state of {stack} is empty: it was never brought up from this backend, or is destroyed. If another "
            "backend has it (pulumi whoami -v), all that follows is in use."
        )
        header.append(Text(empty, "bold red" if live else "yellow"))
    if live:
        served = (
            f"{live[0]} is in service, so no command is shown. Log in to the backend that has its state; or, if that "
            f"is lost for good: trn orphans --cluster {live[0]} --region {region}"
        )
        header.append(Text(as_typed(served), "bold red"))
    if facts["recovery"]:
        stopped = (
            "An update was interrupted, or still runs. Be sure that none runs any more. If Pulumi says that "
            f"{stack} is locked: pulumi cancel --stack {stack}"
        )
        header.append(Text(stopped, "yellow"))
    yield Group(*header), ()
    for section, each in groupby(found.findings, key=lambda finding: finding.section):
        same = list(each)
        own = [command for finding in same for command in finding.data.get("commands", ())]
        shown = Group(*report.sections(same, {OPERATIONS: "open operations"}))
        yield shown, facts["recovery"] if section == OPERATIONS else own
    yield _summary(found), ()


def _summary(found: Report) -> Text:
    operations = [each for each in found.findings if each.section == OPERATIONS]
    left = sum(each.status is Status.FAIL for each in found.findings if each.section != OPERATIONS)
    if left:
        unknown = ", ".join(found.facts["unknownPrices"])
        cost = f"about ${found.facts['hourlyUsd']:,.2f} an hour ({prices.REGION}'s list prices)"
        cost += f", and {unknown} at unknown prices" if unknown else ""
        told = "all of it may still be in use" if found.facts["liveClusters"] else "read all before you remove any"
        text = f"✗ {left} thing{'s are' if left > 1 else ' is'} left: {cost}. Nothing was removed; {told}."
        return Text(text, "bold red")
    if undecided := sum(each.status is Status.FAIL for each in operations):
        text = (
            f"{undecided} of {len(operations)} are left to you: import each that exists, before you refresh with "
            "--clear-pending-creates, which forgets all creations that are open."
        )
        return Text(text, "bold yellow")
    if found.of(Status.NOT_CHECKED):
        return Text("? Nothing was found where it could be looked for.", "bold yellow")
    return Text("✓ Nothing is left.", "bold green")


def shell_lines(command: str) -> list[str]:
    """Return a command in lines that fit and can be copied: each but the last ends with a backslash."""
    lines = [""]
    for part in re.split(r" (?=--)", command):
        if lines[-1] and len(lines[-1]) + len(part) > COMMAND_WIDTH:
            lines[-1] += " \\"
            lines.append(f"  {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return lines
