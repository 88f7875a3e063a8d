"""``trn upgrade``: record the config as it is and as it would be, compare, show; with ``--write``, change the file."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainium_eks.cli.environment.change.upgrade_report import Upgrade
from trainium_eks.cli.shared import recording
from trainium_eks.cli.shared.output import tell, write_json
from trainium_eks.cli.shared.stack_file import StackFile
from trainium_eks.cli.shared.stack_file_edit import NotEditable, put, write_whole
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure, complain
from trainium_eks.client.project import check_stack, find_project
from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.model.validation.parsing import parse_yaml
from trainium_eks.model.validation.problems import config_path, config_set, refused, steps_of
from trainium_eks.operate.upgrade import settings as upgrades
from trainium_eks.operate.upgrade.settings import Setting, UpgradeTargets
from trainium_eks.operate.upgrade.steps import steps
from trainium_eks.plan import cost
from trainium_eks.plan.differences import diff
from trainium_eks.plan.differences.changes import Changes
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.project import InvalidConfig, Project, ProjectError, StackSettings, load_project


@dataclass(frozen=True)
class UpgradeOptions:
    """The options of one call."""

    stack: str
    asked: UpgradeTargets
    directory: Path | None = None
    write: bool = False
    as_json: bool = False
    no_color: bool = False


def run(options: UpgradeOptions) -> int:
    """Run ``trn upgrade``; return the exit code."""
    try:
        made = _make(options)
        if options.write and made.settings:
            made = replace(made, written=_write(options, made))
    except Failure as failure:
        return tell(failure, as_json=options.as_json)
    try:
        if options.as_json:
            write_json(made.to_json())
        else:
            from trainium_eks.cli.environment.change import render_upgrade
            from trainium_eks.cli.shared.console import show_sections

            show_sections(render_upgrade.sections(made), no_color=options.no_color)
    except Failure as failure:
        return complain(failure)
    return FAILED if made.refused else 0


def _make(options: UpgradeOptions) -> Upgrade:
    directory = find_project(options.directory)
    check_stack(directory, options.stack)
    project = load_project(directory)
    config = _config(project, options.stack)
    file = StackFile.find(project, options.stack)
    setting = file.setting if file is not None else config_set
    found = upgrades.problems(config, options.asked)
    stopping = refused(found, {})
    if stopping:
        title = f"Pulumi.{options.stack}.yaml: not upgraded"
        raise Failure(FAILED, title, stopping, setting=setting)
    wanted = upgrades.settings(config, options.asked)
    before, after = _recorded(directory, options.stack, _adjust(project, wanted)) if wanted else (None, None)
    changes = diff.compare(before, after) if before and after else Changes(())
    return Upgrade(
        stack=options.stack,
        config=config,
        asked=options.asked,
        settings=wanted,
        lines=tuple(setting(each.path, each.value) for each in wanted),
        changes=changes,
        steps=steps(before, after, changes) if before and after else (),
        warnings=_new_warnings(config, _changed(project, options.stack, wanted)),
        advice=tuple(problem for problem in found if problem not in stopping),
        hourly_usd=cost.estimate(after).hourly_usd - cost.estimate(before).hourly_usd if before and after else 0.0,
    )


def _recorded(directory: Path, stack: str, adjust: Callable[[StackSettings], StackSettings]) -> tuple[Graph, Graph]:
    """Return the graphs of the present and the upgraded config, recorded in two processes at the same time."""
    with ThreadPoolExecutor(2) as pool:
        now = pool.submit(recording.record, directory, stack)
        then = pool.submit(recording.record, directory, stack, adjust=adjust)
        before = now.result()
        try:
            return before, then.result()
        except Failure as failure:
            title = f"after this upgrade, {failure.title}"
            raise Failure(
                failure.code, title, failure.problems, failure.detail, failure.spell, failure.setting
            ) from None


def _config(project: Project, stack: str) -> StackConfig:
    """Return the stack's present config.

    Raises:
        Failure: the config is not of the shape that this library's program reads.
    """
    try:
        return _read(project, project.stack(stack))
    except (ConfigModelError, InvalidConfig) as error:
        raise Failure(FAILED, f"Pulumi.{stack}.yaml cannot be read; nothing was compared", error.problems) from None
    except ProjectError as error:
        raise Failure(WRONG_USAGE, str(error)) from None


def _read(project: Project, settings: StackSettings) -> StackConfig:
    own = {key.partition(":")[2]: text for key, text in settings.config.items() if key.startswith(f"{project.name}:")}
    return model.load(own)


def _changed(project: Project, stack: str, wanted: tuple[Setting, ...]) -> StackConfig:
    return _read(project, _adjust(project, wanted)(project.stack(stack)))


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
    known = {(problem.path, problem.reason) for problem in model.validate(before)}
    return tuple(
        f"{config_path(problem.path)}: {problem.reason}"
        for problem in model.validate(after)
        if (problem.path, problem.reason) not in known
    )


def _write(options: UpgradeOptions, made: Upgrade) -> str:
    """Change the stack's file; return its name.

    Raises:
        Failure: AWS would refuse a change, or the file has a form that is not edited here.
    """
    if made.refused:
        reasons = [change.refused for change in made.changes.items if change.refused]
        raise Failure(FAILED, "nothing was written, because AWS would refuse this", detail="\n".join(reasons))
    project = load_project(find_project(options.directory))
    path = project.stack_file(options.stack)
    if path is None:  # recorded a moment ago
        raise Failure(WRONG_USAGE, f"Pulumi.{options.stack}.yaml is gone")
    try:
        text = path.read_text(encoding="utf-8")
        for each in made.settings:
            first, *rest = steps_of(config_path(each.path))
            if first in (parse_yaml(text).get("config") or {}):
                raise NotEditable(f"{first} stands there without its namespace")
            text = put(text, ("config", f"{project.name}:{first}", *rest), each.value)
        write_whole(path, text)
    except (NotEditable, ValueError) as error:
        lines = "\n".join(f"  {line}" for line in made.lines)
        raise Failure(FAILED, f"{path.name} was not changed: {error}. Set by hand:", detail=lines) from None
    except OSError as error:
        raise Failure(WRONG_USAGE, f"cannot write {path.name}: {error.strerror}") from None
    return path.name
