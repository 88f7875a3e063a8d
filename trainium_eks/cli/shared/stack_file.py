"""Positions of values in a stack's file, and the lines that set them: for fixes that need no CLI."""

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from trainium_eks.model.validation.problems import PathStep, Value, config_path, steps_of
from trainium_eks.plan.recording.project import Project


@dataclass(frozen=True)
class StackFile:
    """``Pulumi.<stack>.yaml`` with the positions of its values."""

    name: str
    """``Pulumi.dev.yaml``."""
    project: str
    """The namespace of its keys."""
    config: yaml.Node | None

    @classmethod
    def find(cls, project: Project, stack: str) -> "StackFile | None":
        """Return the file of a stack; None without a readable one."""
        path = project.stack_file(stack)
        try:
            root = yaml.compose(path.read_text(encoding="utf-8")) if path is not None else None
        except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError):
            return None
        return None if path is None else cls(path.name, project.name, _entry(root, "config"))

    def setting(self, path: str, value: Value) -> str:
        """Return the line that sets a value: ``Pulumi.dev.yaml line 12: maxSize: 4``."""
        first, *rest = steps_of(config_path(path))
        steps: list[PathStep] = [f"{self.project}:{first}", *rest]
        node, known = self.config, 0
        while known < len(steps) and (below := _entry(node, steps[known])) is not None:
            node, known = below, known + 1
        line = f" line {node.start_mark.line + 1}" if node is not None and known else ""
        if known == len(steps):
            return f"{self.name}{line}: {_text(steps[-1:], value)}"
        known_path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps[:known])
        under = f", under {known_path.removeprefix('.')}" if known else ""
        return f"{self.name}{line}{under}: add {_text(steps[known:], value)}"


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes text of digits: the CLI's YAML reads an account id with a leading zero as a number,
    PyYAML does not."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if text.isdigit() else None),
)


def _entry(node: yaml.Node | None, step: PathStep) -> yaml.Node | None:
    """Return the value of a mapping under a key, or of a list at an index; None without one."""
    if isinstance(node, yaml.MappingNode) and isinstance(step, str):
        return next((value for key, value in node.value if getattr(key, "value", None) == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        below: yaml.Node = node.value[step]
        return below
    return None


def _text(steps: Sequence[PathStep], value: Value) -> str:
    """Return one line of YAML: ``a: [1]`` for the steps ``[a, 0]`` and the value 1."""
    held: object = list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, dict) else value
    for step in reversed(steps[1:]):
        held = [held] if isinstance(step, int) else {step: held}
    written = yaml.dump(
        held, Dumper=_Dumper, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True
    )
    flow = written.removesuffix("\n").removesuffix("\n...")
    return f"- {flow}" if isinstance(steps[0], int) else f"{steps[0]}: {flow}"
