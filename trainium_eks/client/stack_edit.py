"""Changes of a stack's file, so that its comments and its layout stay."""

import difflib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from trainium_eks import whole_file
from trainium_eks.client.failure import CommandError
from trainium_eks.plan.recording.project import Project


@dataclass(frozen=True)
class GroupEdit:
    """A change of one node group in ``Pulumi.<stack>.yaml``, or a new group at the end of the list."""

    file: Path
    keys: tuple[str, ...]
    """How the list's key may be spelled."""
    group: str
    values: Mapping[str, Any]
    """Keys of the group, as the file has them."""

    @classmethod
    def of(cls, project: Project, stack: str, group: str, values: Mapping[str, Any]) -> "GroupEdit":
        """Return the change of a stack's file. CommandError: the stack has no file."""
        file = project.stack_file(stack)
        if file is None:
            raise CommandError(f"{project.stack_directory} has no Pulumi.{stack}.yaml")
        spelled = ("nodeGroups", f"{project.name}:nodeGroups", f"{project.name}:config:nodeGroups")
        return cls(file.resolve(), spelled, group, values)

    def difference(self) -> list[str]:
        """Return the change as lines of ``diff -u``. CommandError, with the lines to write: the file cannot be read, or
        not be changed so that all else stays."""
        before, after = self._texts()
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]

    def write(self) -> None:
        """Change the file, as a whole or not at all; errors as of :meth:`difference`."""
        whole_file.write(self.file, self._texts()[1], self.file.stat().st_mode & 0o777)

    def _texts(self) -> tuple[str, str]:
        """Return the file's text before and after the change."""
        try:
            before = self.file.read_bytes().decode()
            after = self._changed(before)
            is_right = yaml.safe_load(after) == self._with_group(yaml.safe_load(before))
        except (OSError, ValueError, RecursionError, YAMLError, yaml.YAMLError) as error:
            raise self._refusal(" ".join(str(error).split())) from None
        if not is_right or self.file.suffix == ".json" or "\r" in before:
            raise self._refusal("anchors, JSON, flow over several lines and line ends of Windows are not changed")
        return before, after

    def _changed(self, text: str) -> str:
        """Return the text with the lines that differ between its data as ruamel.yaml writes them before and after the
        change: its layout of the other lines is not taken. Empty where it has other lines than the text."""
        format_ = YAML()
        format_.preserve_quotes, format_.width, format_.default_flow_style = True, 1_000_000, None
        data, kept, lines = format_.load(text), list[str](), text.splitlines()
        config, groups = self._groups(data)
        offset = 0 if groups.lc.col == config.lc.col else 2
        format_.indent(mapping=config.lc.col, sequence=2 + offset, offset=offset)

        def written() -> list[str]:
            format_.dump(data, stream := io.StringIO())
            return stream.getvalue().splitlines()

        before, _, after = written(), self._with_group(data), written()
        for kind, first, last, start, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            at = len(kept)
            while kind == "insert" and kept[at - 1].lstrip()[:1] in ("", "#"):
                at -= 1  # ruamel.yaml writes the comments after a value before its next one
            kept[at:at] = lines[first:last] if kind == "equal" else after[start:end]
        return "\n".join(kept) + text[len(text.rstrip("\n")) :] if len(lines) == len(before) else ""

    def _groups(self, data: Any) -> tuple[Any, Any]:
        """Return the config in a file's data, and its node groups."""
        config = (data or {}).get("config") or {}
        groups = next((config[key] for key in self.keys if isinstance(config.get(key), list)), None)
        if groups is None:
            raise self._refusal("it has no list `nodeGroups`, and so its default groups: write them there")
        return config, groups

    def _with_group(self, data: Any) -> Any:
        """Return a file's data after the change, which is made in it."""
        _, groups = self._groups(data)
        group = next((each for each in groups if each.get("name") == self.group), None)
        if group is None:
            groups.append(group := {"name": self.group})
        for key, value in self.values.items():
            if isinstance(value, dict) and isinstance(group.get(key), dict):
                group[key].update(value)
            else:
                group[key] = value
        return data

    def _refusal(self, reason: str) -> CommandError:
        lines = yaml.safe_dump([{"name": self.group, **self.values}], sort_keys=False)
        return CommandError(f"{self.file.name}: {reason}", detail=f"The group in `nodeGroups`:\n{lines}")
