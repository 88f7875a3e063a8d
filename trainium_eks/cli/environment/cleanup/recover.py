"""``trn recover``: advice on the operations that an interrupted update left open."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainium_eks.cli.environment import check
from trainium_eks.cli.shared import output, stack_state
from trainium_eks.client.failure import FAILED, Failure
from trainium_eks.client.project import find_project
from trainium_eks.plan.graph import SCHEMA_VERSION

if TYPE_CHECKING:
    from trainium_eks.operate.cleanup.recovery import Advice


@dataclass(frozen=True)
class RecoverOptions:
    """The options of one call."""

    stack: str
    state: Path | None = None
    region: str | None = None
    as_json: bool = False
    no_color: bool = False
    directory: Path | None = None


def run(asked: RecoverOptions) -> int:
    """Show the advice; return the exit code."""
    from trainium_eks.operate.cleanup import recovery

    advice = look(asked)
    steps = recovery.commands(asked.stack, advice)
    if asked.as_json:
        output.write_json(to_json(advice, steps))
    else:
        show(advice, steps, asked.stack, no_color=asked.no_color)
    return FAILED if any(each.action == "look" for each in advice) else 0


def look(asked: RecoverOptions) -> "list[Advice]":
    """Read the state, and search AWS for the resources that were being created.

    Raises:
        Failure: no state or no region is known.
    """
    from trainium_eks.aws.account import Account
    from trainium_eks.operate.cleanup import recovery

    try:
        project = find_project(asked.directory)
    except Failure:
        if asked.state is None or asked.directory is not None:
            raise
        project = None
    state = stack_state.load(asked.stack, asked.state, project, "")
    if not state.pending:
        return []
    account = Account(stack_state.region(state, asked.region, project, asked.stack))
    return recovery.advise(check.signed_in(account), state)


def to_json(advice: "Sequence[Advice]", steps: Sequence[str]) -> dict[str, Any]:
    """Return the versioned JSON form."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "operations": [each.to_json() for each in advice],
        "commands": list(steps),
    }


def show(advice: "Sequence[Advice]", steps: Sequence[str], stack: str, *, no_color: bool) -> None:
    """Print the advice to stdout."""
    from trainium_eks.cli.environment.cleanup.render_orphans import shell_lines
    from trainium_eks.cli.shared.console import show_sections

    if not advice:
        show_sections([Text("✓ No operation is open: run `pulumi up` as usual.", "bold green")], no_color=no_color)
        return
    first = Text(
        f"Be sure that no update of {stack} runs any more. If Pulumi says that the stack is locked: "
        f"pulumi cancel --stack {stack}"
    )
    show_sections(
        [first, *(_section(each) for each in advice), _last(advice), Text("Then:", "bold")], no_color=no_color
    )
    # Without Rich, which would break the URNs: these are longer than a line.
    output.write("".join(f"  {line}\n" for step in steps for line in shell_lines(step)))


def _section(advice: "Advice") -> RenderableType:
    resource = advice.operation.resource
    what = f" {advice.id}" if advice.id else ""
    return Group(
        Text.assemble((f"{advice.action}{what}", "bold"), f"  {resource.name} ({resource.type})"),
        Padding(Text(f"interrupted while {advice.operation.kind}; {advice.reason}", "dim"), (0, 0, 0, 2), expand=False),
    )


def _last(advice: "Sequence[Advice]") -> Text:
    """Return the line about the work left to the reader."""
    undecided = sum(each.action == "look" for each in advice)
    if not undecided:
        return Text("Nothing was changed. After the refresh, `pulumi up` goes on where it was stopped.", "bold green")
    return Text(
        f"{undecided} of {len(advice)} are left to you: import each that exists, before you refresh with "
        "--clear-pending-creates, which forgets all creations that are open.",
        "bold yellow",
    )
