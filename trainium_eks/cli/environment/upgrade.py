"""``trn upgrade``: record the config as it is and as it would be, compare, show; with ``--write``, change the file."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainium_eks import whole_file
from trainium_eks.cli.shared import recording
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import show_sections
from trainium_eks.cli.shared.options import Directory, NoColor, Stack
from trainium_eks.cli.shared.output import write_json
from trainium_eks.cli.shared.stack_file import StackFile
from trainium_eks.cli.shared.stack_file_edit import NotEditableError, put
from trainium_eks.client.failure import FAILED, WRONG_USAGE, CommandError, as_typed
from trainium_eks.client.project import check_stack, find_project
from trainium_eks.model.config.stack_config import StackConfig, load, validate
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.model.validation.parsing import parse_yaml
from trainium_eks.model.validation.problems import config_path, config_set, refused, steps_of
from trainium_eks.operate.review.words import short_type
from trainium_eks.operate.upgrade import settings as upgrades
from trainium_eks.operate.upgrade.report import Upgrade, support_lines
from trainium_eks.operate.upgrade.settings import Setting, UpgradeTargets, next_version
from trainium_eks.operate.upgrade.steps import UpgradeStep, disturbance, steps, total_seconds
from trainium_eks.plan import cost
from trainium_eks.plan.differences import diff
from trainium_eks.plan.differences.changes import Changes
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.project import InvalidConfigError, Project, ProjectError, StackSettings, load_project
from trainium_eks.plan.resource_types.rows import eks

app = App(asks_cloud=False)


@app.command(example="trn upgrade --stack prod --to 1.36 --keep-nodes")
def upgrade(
    to: Annotated[str, typer.Option("--to", metavar="VERSION", help="Kubernetes minor version: 1.36.")] = "",
    keep_nodes: Annotated[
        bool, typer.Option("--keep-nodes", help="With --to: accelerator nodes stay as they are; jobs run on.")
    ] = False,
    ami: Annotated[
        str, typer.Option("--ami", metavar="RELEASE", help="AMI release of every accelerator group: 1.35.8-20260930.")
    ] = "",
    addon: Annotated[
        list[str] | None, typer.Option("--addon", metavar="NAME=BUILD", help="EKS add-on; may be repeated.")
    ] = None,
    sdk: Annotated[
        list[str] | None,
        typer.Option("--sdk", metavar="TARGET=IMAGE", help="Image that training images are built on: trn1=<image>."),
    ] = None,
    stack: Stack = "",
    write: Annotated[bool, typer.Option("--write", help="Change the stack's file; without it nothing is written.")] = (
        False
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
    no_color: NoColor = False,
    directory: Directory = None,
) -> None:
    """Show an upgrade's changes, their order and duration, and the work that they disturb. Uses no network.

    Compares the config with its upgraded copy.
    Without a version, shows until when EKS supports the present version and the next.

    Exit code: 0; 1 when AWS would refuse a change or the new config is invalid; 2 for wrong usage.
    """
    if keep_nodes and not to:
        raise typer.BadParameter("goes with --to", param_hint="--keep-nodes")
    asked = UpgradeTargets(to, ami, _pairs(addon, "--addon"), _pairs(sdk, "--sdk"), keep_nodes)
    project_directory = find_project(directory)
    check_stack(project_directory, stack)
    project = load_project(project_directory)
    made = examine(project, stack, asked)
    if write and made.settings:
        made = replace(made, written=_write(project, made))
    if as_json:
        write_json(made.to_json())
    else:
        show_sections(sections(made), no_color=no_color)
    raise typer.Exit(FAILED if made.refused else 0)


def _pairs(texts: list[str] | None, option: str) -> Mapping[str, str]:
    split = [text.partition("=") for text in texts or ()]
    if any(not (name and value) for name, _, value in split):
        raise typer.BadParameter("expected <name>=<value>", param_hint=option)
    return {name: value for name, _, value in split}


def examine(project: Project, stack: str, asked: UpgradeTargets) -> Upgrade:
    """Compare the stack's config with its upgraded copy."""
    config = _config(project, stack)
    file = StackFile.find(project, stack)
    setting = file.setting if file is not None else config_set
    found = upgrades.problems(config, asked)
    if stopping := refused(found, {}):
        raise CommandError(FAILED, f"Pulumi.{stack}.yaml: not upgraded", stopping, setting=setting)
    wanted = upgrades.settings(config, asked)
    before, after = _recorded(project, stack, wanted) if wanted else (None, None)
    changes = diff.compare(before, after) if before and after else Changes(())
    return Upgrade(
        stack=stack,
        config=config,
        asked=asked,
        settings=wanted,
        lines=tuple(setting(each.path, each.value) for each in wanted),
        changes=changes,
        steps=steps(before, after, changes) if before and after else (),
        warnings=_new_warnings(config, _read(project, _adjust(project, wanted)(project.stack(stack)))),
        advice=tuple(found),
        hourly_usd=cost.estimate(after).hourly_usd - cost.estimate(before).hourly_usd if before and after else 0.0,
    )


def _recorded(project: Project, stack: str, wanted: tuple[Setting, ...]) -> tuple[Graph, Graph]:
    """Return the graphs of the present and the upgraded config, recorded in two processes at the same time."""
    with ThreadPoolExecutor(2) as pool:
        now = pool.submit(recording.record, project.directory, stack)
        then = pool.submit(recording.record, project.directory, stack, adjust=_adjust(project, wanted))
        before = now.result()
        try:
            return before, then.result()
        except CommandError as failure:
            title = f"after this upgrade, {failure.title}"
            raise CommandError(
                failure.code, title, failure.problems, failure.detail, failure.spell, failure.setting
            ) from None


def _config(project: Project, stack: str) -> StackConfig:
    """Return the stack's present config; refuse a config of another shape than this library's program reads."""
    try:
        return _read(project, project.stack(stack))
    except (ConfigModelError, InvalidConfigError) as error:
        raise CommandError(
            FAILED, f"Pulumi.{stack}.yaml cannot be read; nothing was compared", error.problems
        ) from None
    except ProjectError as error:
        raise CommandError(WRONG_USAGE, str(error)) from None


def _read(project: Project, settings: StackSettings) -> StackConfig:
    own = {key.partition(":")[2]: text for key, text in settings.config.items() if key.startswith(f"{project.name}:")}
    return load(own)


def _adjust(project: Project, wanted: tuple[Setting, ...]) -> Callable[[StackSettings], StackSettings]:
    """Return a function that sets the values in the settings on their way to the program, as Pulumi stores them."""

    def adjust(settings: StackSettings) -> StackSettings:
        config = dict(settings.config)
        for each in wanted:
            first, *rest = steps_of(config_path(each.path))
            key = f"{project.name}:{first}"
            data: Any = json.loads(config.get(key) or "{}")
            inside = data
            for step in rest[:-1]:
                inside = inside.setdefault(step, {}) if isinstance(inside, dict) else inside[step]
            inside[rest[-1]] = each.value
            config[key] = json.dumps(data)
        return replace(settings, config=config)

    return adjust


def _new_warnings(before: StackConfig, after: StackConfig) -> tuple[str, ...]:
    known = {(problem.path, problem.reason) for problem in validate(before)}
    return tuple(
        f"{config_path(problem.path)}: {problem.reason}"
        for problem in validate(after)
        if (problem.path, problem.reason) not in known
    )


def _write(project: Project, made: Upgrade) -> str:
    """Change the stack's file; return its name."""
    if made.refused:
        reasons = [change.refused for change in made.changes.items if change.refused]
        raise CommandError(FAILED, "nothing was written, because AWS would refuse this", detail="\n".join(reasons))
    path = project.stack_file(made.stack)
    if path is None:  # recorded a moment ago
        raise CommandError(WRONG_USAGE, f"Pulumi.{made.stack}.yaml is gone")
    try:
        text = path.read_text(encoding="utf-8")
        for each in made.settings:
            first, *rest = steps_of(config_path(each.path))
            if first in (parse_yaml(text).get("config") or {}):
                raise NotEditableError(f"{first} stands there without its namespace")
            text = put(text, ("config", f"{project.name}:{first}", *rest), each.value)
        whole_file.write(path, text, path.stat().st_mode & 0o777)
    except (NotEditableError, ValueError) as error:
        lines = "\n".join(f"  {line}" for line in made.lines)
        raise CommandError(FAILED, f"{path.name} was not changed: {error}. Set by hand:", detail=lines) from None
    except OSError as error:
        raise CommandError(WRONG_USAGE, f"cannot write {path.name}: {error.strerror}") from None
    return path.name


def sections(made: Upgrade) -> Iterator[RenderableType]:
    """Yield the upgrade for people: the ends of support, the steps in order, and the lines to change."""
    yield Group(Text(f"Upgrade of {made.stack}", "bold"), *(_indented(line) for line in support_lines(made)))
    if not made.settings:
        yield Text(as_typed(_what_next(made)))
        return
    yield Group(Text("In this order", "bold underline"), *_steps(made))
    if warnings := [*made.warnings, *(f"{problem.reason}: {problem.fix}" for problem in made.advice)]:
        yield Group(Text("Not certain", "bold underline"), *(_indented(text, "yellow") for text in warnings))
    if made.written:
        last = Text(f"{made.written} is changed. Next: make up STACK={made.stack}, then trn doctor.", "green")
    elif made.refused:
        last = Text("AWS would refuse this.", "bold red")
    else:
        last = Text("Nothing is written: --write changes the file.", "dim")
    yield Group(Text("In the config", "bold underline"), *(_indented(line) for line in made.lines), last)


def _what_next(made: Upgrade) -> str:
    if made.asked:
        return "Nothing changes."
    following = next_version(made.config.cluster.kubernetes_version)
    if not following:
        return "No later Kubernetes version is known to this release."
    return f"trn upgrade --stack {made.stack} --to {following} shows what the next version changes."


def _steps(made: Upgrade) -> Iterator[RenderableType]:
    quick, most = total_seconds(made.steps)
    shown = [step for step in made.steps if step.phase != "other" or step.change.refused or step.change.stateful]
    for number, step in enumerate(shown, 1):
        yield _indented(_step(number, step))
        if step.change.refused:
            yield _indented(f"refused: {step.change.refused}", "bold red", 5)
        yield from (_indented(text, "yellow" if step.nodes else "", 5) for text in disturbance(step))
    if rest := len(made.steps) - len(shown):
        yield _indented(f"and {rest} more: `trn plan --against` shows each", "dim")
    if not made.steps:
        rest_of = ": the next image that is built is another one" if made.asked.images else ""
        yield _indented(f"nothing in the environment{rest_of}")
        return
    slow = f", {_minutes(most)} if every node drains as long as EKS lets it" if most > quick else ""
    yield _indented(f"about {_minutes(quick)}{slow}")
    if round(made.hourly_usd, 2):
        yield _indented(f"{made.hourly_usd:+,.2f} USD an hour")


def _step(number: int, step: UpgradeStep) -> Text:
    """Return the line of a step, with the versions that change; a value computed from another change is new."""
    resource = step.change.resource
    name = resource.inputs.get("addonName") if resource.type == eks.ADDON.token else resource.name
    values = ", ".join(
        f"{path.path}: new" if path.cause else f"{path.before} → {path.after}"
        for path in sorted(step.change.paths, key=lambda path: path.path != "version")
        if isinstance(path.after, str | int | None)
    )
    line = Text(f"{number}. {short_type(resource.type)} {name}", "bold")
    line.append(f"  {values}", "default not bold")
    if step.change.kind != "update":
        line.append(f"  {step.change.kind}d", "red not bold")
    line.append(f"  at {_minutes(step.start)}, {_minutes(step.seconds)}", "dim not bold")
    return line


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _indented(what: Text | str, style: str = "", columns: int = 2) -> RenderableType:
    return Padding(Text(what, style) if isinstance(what, str) else what, (0, 0, 0, columns), expand=False)
