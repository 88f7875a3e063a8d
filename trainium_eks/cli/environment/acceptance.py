"""``trn acceptance``: an environment made, tried and destroyed, step by step, with a report for others."""

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from trainium_eks import __version__, whole_file
from trainium_eks.cli.environment import acceptance_steps as trial
from trainium_eks.cli.environment import deploy
from trainium_eks.cli.environment.acceptance_steps import Facts
from trainium_eks.cli.shared import recording
from trainium_eks.cli.shared.command import RUNS_HERE, App
from trainium_eks.cli.shared.console import Console, show_sections, table
from trainium_eks.cli.shared.durations import duration
from trainium_eks.cli.shared.options import Directory, NoColor, Stack
from trainium_eks.client.failure import FAILED, INTERRUPTED, CommandError, UsageError, as_typed
from trainium_eks.client.project import find_project
from trainium_eks.client.stack_check import check_stack
from trainium_eks.local.paths import Paths
from trainium_eks.model.validation.problems import plural
from trainium_eks.operate.acceptance import report
from trainium_eks.operate.acceptance.commands import Commands
from trainium_eks.operate.acceptance.run import Limits, Run, RunError, State, Step, StepResult
from trainium_eks.operate.cleanup.state import StackState, StateError
from trainium_eks.plan import cost
from trainium_eks.plan.graph import Graph

app = App()

FOLDER = ".acceptance"
"""Directory of the runs in a project: ``.acceptance/<stack>/<time of its beginning>``."""


@app.command(example="trn acceptance --stack dev --max-usd 120")
def acceptance(
    context: typer.Context,
    stack: Stack = "",
    max_usd: Annotated[
        float,
        typer.Option(
            "--max-usd", min=0.01, metavar="USD", help="Stop before the run costs more than this (list prices)."
        ),
    ] = 60,
    max_hours: Annotated[
        float, typer.Option("--max-hours", min=0.1, metavar="HOURS", help="Longest time until everything is deleted.")
    ] = 4,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the environment; run again without --keep to destroy it.")
    ] = False,
    on_local_cloud: Annotated[
        bool, typer.Option("--local", help="Use the local cloud, where nothing costs anything.")
    ] = False,
    agreed: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation of the cost.")] = False,
    no_color: NoColor = False,
    directory: Directory = None,
) -> None:
    """Make an environment, try its promises, destroy it, and write a report without ids of the account.

    After a kill the same command goes on. A run destroys after a failure and Ctrl-C, too, and its own resources alone.

    Exit code: 0 when every step passed that can be tried here; 1 otherwise; 2 for wrong usage.
    """
    if context.obj == RUNS_HERE and not on_local_cloud:
        raise typer.BadParameter(
            f"the local cloud of {stack} runs here: --local, or name another", param_hint="--stack"
        )
    project = find_project(directory)
    check_stack(project, stack)
    try:
        folder, state = _open(project, stack, is_local=on_local_cloud)
        graph = recording.record(project, stack)
        known = trial.facts(graph, local=on_local_cloud)
        limits = _limits(graph, known, max_usd, max_hours)
        if state is None:
            _refuse_others(graph, project, is_local=on_local_cloud)
        commands = Commands(project, stack, folder)
        steps = trial.steps(commands, known)
        _show_plan(steps, limits, state, folder)
        _check_limits([each for each in steps if state is None or state.result(each.name) is None], limits)
        if state is None and not on_local_cloud and not agreed:
            _agree(stack, limits)
        commands.await_last()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        began = state or State(stack, on_local_cloud, time.time())
        run = Run(folder / "run.json", began, steps, limits, _teller(no_color=no_color))
    except RunError as error:
        raise UsageError(str(error)) from None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        run.go(keep=keep)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    finally:
        passed = _write(run, steps, folder, {**_facts(graph, known), "denied": commands.denied()})
    typer.echo(as_typed(_end(run, folder, project, keep=keep)))
    raise typer.Exit(INTERRUPTED if interrupted else 0 if passed else FAILED)


def _open(project: Path, stack: str, *, is_local: bool) -> tuple[Path, State | None]:
    """Return the folder of the last run and its state where that has not ended; else a new run's folder."""
    files = sorted((project / FOLDER / stack).glob("*/run.json"))
    if files:
        state = State.load(files[-1])
        if state.ended is None:
            if state.local is not is_local:
                option = "with --local" if state.local else "without --local"
                raise UsageError(f"a run of {stack} has not ended: resume it, {option}, before another begins")
            return files[-1].parent, state
    return project / FOLDER / stack / datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ"), None


def _refuse_others(graph: Graph, project: Path, *, is_local: bool) -> None:
    """Refuse a stack with resources that another owner made: the end of the run would destroy them."""
    protected = [each.name for each in graph.resources if each.options.protect and each.custom]
    if protected:
        title = f"{graph.stack} protects {plural(len(protected), 'resource')}, and a run destroys at its end"
        raise UsageError(f"{title}: take a stack without `production` (Pulumi.acceptance.yaml)")
    if is_local:
        there = Paths.of(project, graph.stack).root.exists()
        how = f"trn local down --stack {graph.stack}"
    else:
        if missing := deploy.complaints():
            raise UsageError("\n".join(missing))
        try:
            there = not StackState.ask(graph.stack, project).is_empty
        except StateError as error:
            how = f"pulumi stack init {graph.stack}, in the backend of its state (docs/deploying.md)"
            raise UsageError(f"{error}\n  Make the stack first: {how}") from None
        how = f"trn deploy destroy --stack {graph.stack}"
    if there:
        title = f"{graph.stack} is there already, and a run destroys at its end what it has made itself alone"
        raise UsageError(f"{title}.\n  Take another stack, or remove this one first: {how}")


def _limits(graph: Graph, known: Facts, max_usd: float, max_hours: float) -> Limits:
    bill = cost.estimate(graph)
    if bill.unknown and not known.local:
        what = ", ".join(bill.unknown)
        raise UsageError(f"no price is known for {what}, so no limit of cost can be kept: give it in `instanceTypes`")
    # Deletion takes about as long as creation; an interrupted `up` first ends what it has begun.
    closing = 600.0 if known.local else 1.5 * known.up_seconds
    return Limits(max_usd, max_hours * 3600, 0.0 if known.local else bill.hourly_usd, closing)


def _check_limits(steps: Sequence[Step], limits: Limits) -> None:
    """Refuse limits below the planned times of the steps that are to come. Without any, the run only destroys."""
    wanted = sum(each.planned_seconds for each in steps if not each.closes and not each.unless)
    if wanted > max(limits.billed_seconds, 0):
        wanted += limits.closing_seconds
        usd = limits.usd(wanted)
        title = f"the steps take {duration(wanted)} and cost {usd:.2f} USD by the plan, which is above the limits"
        raise UsageError(f"{title}: --max-usd {usd * 1.5:.0f} --max-hours {wanted / 2400:.1f}")


def _show_plan(steps: Sequence[Step], limits: Limits, state: State | None, folder: Path) -> None:
    made = table("STEP", "SHOWS", "PLANNED", folded=("SHOWS",))
    for each in steps:
        found = state.result(each.name) if state else None
        planned = found.outcome.value if found else "not here" if each.unless else duration(each.planned_seconds)
        made.add_row(each.name, f"{each.claim} ({each.unless})" if each.unless else each.claim, planned)
    whole = sum(each.planned_seconds for each in steps if not each.unless)
    cost = (
        f"{limits.hourly_usd:.2f} USD an hour: about {limits.usd(whole):.2f} USD in {duration(whole)}, at most "
        f"{min(limits.max_usd, limits.usd(limits.max_seconds)):.2f} USD"
        if limits.hourly_usd
        else f"Nothing costs anything here. About {duration(whole)} by AWS' times; the local cloud is faster."
    )
    goes_on = f"Resumes the run of {folder.name}. " if state else ""
    show_sections([made, Text(f"{goes_on}{cost}")])


def _agree(stack: str, limits: Limits) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the cost cannot be confirmed without a terminal: --yes confirms it")
    if not typer.confirm(f"Make {stack}, try it and destroy it, for at most {limits.max_usd:g} USD?"):
        raise CommandError("Nothing was begun.")


def _teller(*, no_color: bool) -> Callable[[Step, StepResult | None], None]:
    console = Console(stderr=True, no_color=no_color or None, highlight=False, emoji=False)
    status = console.status("Beginning")
    styles = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "not reached": ("–", "yellow")}

    def tell(step: Step, result: StepResult | None) -> None:
        if result is None and console.is_terminal:
            status.update(f"{step.name}: {step.claim} ({duration(step.planned_seconds)} planned)")
            status.start()
        if result is not None:
            status.stop()
            mark, style = styles[result.outcome]
            took = f", {duration(result.seconds)} of {duration(step.planned_seconds)} planned" if result.seconds else ""
            console.print(Text.assemble((f"{mark} {step.name}", style), f" {result.outcome}{took}: {result.text}"))

    return tell


def _facts(graph: Graph, known: Facts) -> Mapping[str, Any]:
    return {
        "region": str(graph.outputs.get("region", "")),
        "nodes": f"{known.nodes} x {known.group['instanceType']}",
        "kubernetes": known.version,
        "version": __version__,
        "hourlyUsd": round(float(graph.outputs.get("hourlyUsd") or 0), 4),
    }


def _write(run: Run, steps: Sequence[Step], folder: Path, facts: Mapping[str, Any]) -> bool:
    """Write both reports; return whether the environment passed."""
    found = report.document(run, steps, facts)
    whole_file.write(folder / "acceptance.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n", 0o644)
    whole_file.write(folder / "acceptance.md", report.markdown(found), 0o644)
    return bool(found["passed"])


def _end(run: Run, folder: Path, project: Path, *, keep: bool) -> str:
    where = folder.relative_to(project)
    lines = [f"Report: {where}/acceptance.md and .json; the output of the commands' last calls is beside them."]
    again = f"trn acceptance --stack {run.state.stack}{' --local' if run.state.local else ''}"
    if run.state.billed_since is not None and run.state.billed_until is None:
        why = "is kept" if keep else "was not wholly destroyed"
        lines.append(f"{run.state.stack} {why}, at {run.limits.hourly_usd:.2f} USD an hour. To destroy it: {again}")
    elif run.state.ended is None:
        lines.append(f"Remove what was left (`trn orphans` shows it); then: {again}")
    return "\n".join(lines)
