"""An upgrade for people: the ends of support, the steps in order, and the lines to change."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainium_eks.cli.environment.change.upgrade_report import Upgrade, support_lines
from trainium_eks.client.failure import as_typed
from trainium_eks.operate.review.words import short_type
from trainium_eks.operate.upgrade.settings import next_version
from trainium_eks.operate.upgrade.steps import Step, disturbance, total_seconds
from trainium_eks.plan.resource_types.rows import eks


def sections(made: Upgrade) -> Iterator[RenderableType]:
    """Yield the parts, in order."""
    yield Group(Text(f"Upgrade of {made.stack}", "bold"), *(_indented(line) for line in support_lines(made)))
    if not made.settings:
        yield Text(as_typed(_what_next(made)))
        return
    yield Group(*_steps(made))
    warnings = [*made.warnings, *(f"{problem.reason}: {problem.fix}" for problem in made.advice)]
    if warnings:
        yield Group(Text("Not certain", "bold underline"), *(_indented(text, "yellow") for text in warnings))
    yield Group(*_lines(made))


def _what_next(made: Upgrade) -> str:
    if made.asked:
        return "Nothing changes."
    following = next_version(made.config.cluster.kubernetes_version)
    if not following:
        return "No later Kubernetes version is known to this release."
    return f"trn upgrade --stack {made.stack} --to {following} shows what the next version changes."


def _steps(made: Upgrade) -> Iterator[RenderableType]:
    quick, most = total_seconds(made.steps)
    yield Text("In this order", "bold underline")
    shown = [step for step in made.steps if step.phase != "other" or step.change.refused or step.change.stateful]
    for number, step in enumerate(shown, 1):
        yield _step(number, step)
    rest = len(made.steps) - len(shown)
    if rest:
        yield _indented(f"and {rest} more: `trn plan --against` shows each", "dim")
    if not made.steps:
        rest_of = ": the next image that is built is another one" if made.asked.images else ""
        yield _indented(f"nothing in the environment{rest_of}")
        return
    slow = f", {_minutes(most)} if every node drains as long as EKS lets it" if most > quick else ""
    yield _indented(f"about {_minutes(quick)}{slow}")
    if round(made.hourly_usd, 2):
        yield _indented(f"{made.hourly_usd:+,.2f} USD an hour")


def _step(number: int, step: Step) -> RenderableType:
    resource = step.change.resource
    name = resource.inputs.get("addonName") if resource.type == eks.ADDON.token else resource.name
    line = Text(f"{number}. {short_type(resource.type)} {name}", "bold")
    line.append(f"  {_values(step)}", "default not bold")
    if step.change.kind != "update":
        line.append(f"  {step.change.kind}d", "red not bold")
    line.append(f"  at {_minutes(step.start)}, {_minutes(step.seconds)}", "dim not bold")
    parts: list[RenderableType] = [_indented(line)]
    if step.change.refused:
        parts.append(_indented(f"refused: {step.change.refused}", "bold red", 5))
    parts += [_indented(text, "yellow" if step.nodes else "", 5) for text in disturbance(step)]
    return Group(*parts)


def _values(step: Step) -> str:
    """Return the versions that change; a value computed from another change is shown as new."""
    return ", ".join(
        f"{path.path}: new" if path.cause else f"{path.before} → {path.after}"
        for path in sorted(step.change.paths, key=lambda path: path.path != "version")
        if isinstance(path.after, str | int | None)
    )


def _lines(made: Upgrade) -> Iterator[RenderableType]:
    yield Text("In the config", "bold underline")
    for line in made.lines:
        yield _indented(line)
    if made.written:
        yield Text(f"{made.written} is changed. Next: make up STACK={made.stack}, then trn doctor.", "green")
    elif made.refused:
        yield Text("AWS would refuse this.", "bold red")
    else:
        yield Text("Nothing is written: --write changes the file.", "dim")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _indented(what: Text | str, style: str = "", columns: int = 2) -> RenderableType:
    return Padding(Text(what, style) if isinstance(what, str) else what, (0, 0, 0, columns), expand=False)
