"""``trn plan``: record a program, apply the rules, compare, show."""

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.options import Directory, NoColor, Stack, Stub
from trainium_eks.client.failure import FAILED, CommandError, UsageError, complain
from trainium_eks.client.project import find_project
from trainium_eks.client.stack_check import check_stack

if TYPE_CHECKING:
    from trainium_eks.cli.shared.plan_report import Plan

app = App(asks_cloud=False)


@app.command(example="trn plan --stack prod --against main")
def plan(
    stack: Stack = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON and nothing else.")] = False,
    save: Annotated[Path | None, typer.Option("--save", help="Also write the plan's JSON to this file.")] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Show what changes since a saved plan (a file) or a git commit.")
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on", metavar="KINDS", help="With --against: exit with 1 on these changes: 'replace,delete'."
        ),
    ] = "",
    accept_losses: Annotated[
        bool,
        typer.Option(
            "--accept-losses", help="With --against: do not block on lost data or jobs; a person has approved it."
        ),
    ] = False,
    stub: Stub = None,
    no_color: NoColor = False,
    directory: Directory = None,
) -> None:
    """Show the whole plan of an environment: resources, cost, time to ready, rules. Uses no network.

    Works for any Pulumi program in Python; --stub or placeholders, which the plan lists, answer its look-ups.

    With --against it ends with the verdict that `trn comment` has: SAFE, REVIEW or BLOCKED.

    Exit code: 0; 1 for a failed rule, a wrong edge, an invalid config, the verdict BLOCKED or a change of --fail-on; 2
    for wrong usage.
    """
    kinds = _kinds(fail_on)
    if kinds and against is None:
        raise UsageError("--fail-on needs --against: without it there are no changes")
    found = _make(find_project(directory), stack, against, stub, as_json=as_json, accept_losses=accept_losses)
    if save is not None:
        from trainium_eks.cli.shared import plan_report

        plan_report.save(found, save)
    try:
        _show(found, as_json=as_json, no_color=no_color)
    except CommandError as failure:
        raise typer.Exit(complain(failure)) from None
    unwanted = _unwanted(found, kinds)
    if unwanted:
        sys.stderr.write(f"--fail-on: {unwanted}\n")
    raise typer.Exit(FAILED if found.failed or unwanted else 0)


def _kinds(text: str) -> Sequence[str]:
    if not text.strip():
        return ()
    from trainium_eks.plan.differences.changes import KINDS

    asked = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in asked if part not in KINDS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(KINDS)}", param_hint="--fail-on")
    return [kind for kind in KINDS if kind in asked]


def _make(
    project: Path, stack: str, against: str | None, stub: Path | None, *, as_json: bool, accept_losses: bool
) -> "Plan":
    from trainium_eks.cli.shared import recording

    check_stack(project, stack)
    given = recording.load_assumptions(stub)
    if against is None:
        with recording.spinner(f"Recording {stack}"), _imported("plan_report" if as_json else "plan_page"):
            graph = recording.record(project, stack, given)
        from trainium_eks.cli.shared import plan_report

        return plan_report.make(graph)
    from trainium_eks.cli.shared import plan_report, programs

    since, earlier = programs.find(against, project, stack, given)
    # Each program runs in its process, so two threads that wait for them are enough.
    with recording.spinner(f"Recording {stack}, now and as of {since}"), ThreadPoolExecutor(2) as pool:
        before = pool.submit(earlier)
        now = pool.submit(recording.record, project, stack, given)
        made = plan_report.make(now.result())
        return plan_report.compare_with(made, since, before.result(), losses_accepted=accept_losses)


@contextmanager
def _imported(module: str) -> Iterator[None]:
    """Import a module while the program runs in its own process: a fifth of the whole time."""
    name = f"trainium_eks.cli.shared.{module}"
    importing = threading.Thread(target=importlib.import_module, args=(name,), daemon=True)
    importing.start()
    yield
    importing.join()


def _show(found: "Plan", *, as_json: bool, no_color: bool) -> None:
    if as_json:
        from trainium_eks.cli.shared import plan_report

        output.write(plan_report.text(found))
        return
    from trainium_eks.cli.shared import plan_page

    plan_page.show(found, no_color=no_color)


def _unwanted(found: "Plan", kinds: Sequence[str]) -> str:
    """Return the number of changes of each given kind, or an empty string."""
    compared = found.review.comparison if found.review else None
    counts = [(kind, sum(each.kind == kind for each in compared.changes.items)) for kind in kinds] if compared else []
    return ", ".join(f"{count} {kind}" for kind, count in counts if count)
