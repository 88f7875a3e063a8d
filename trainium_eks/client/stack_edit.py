"""Changes of a stack's file as text, so that its comments and its layout stay."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainium_eks import whole_file
from trainium_eks.client.failure import CommandError
from trainium_eks.plan.recording.project import Project

Change = tuple[int, int, str]
"""First and last place of the text that is replaced, and what replaces it."""


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
        """Return the change as lines of ``diff -u``."""
        before = self._read()
        lines = difflib.unified_diff(before.splitlines(), self.edited(before).splitlines(), lineterm="", n=2)
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]

    def write(self) -> None:
        """Change the file, as a whole or not at all."""
        whole_file.write(self.file, self.edited(self._read()), self.file.stat().st_mode & 0o777)

    def edited(self, text: str) -> str:
        """Return the text with the change. CommandError, with the lines to write: the text cannot be changed so that
        all else stays."""
        groups, wanted = self._parsed(text)
        listed: list[Any] = next(wanted["config"][key] for key in self.keys if key in wanted["config"])
        index = next((at for at, each in enumerate(listed) if each.get("name") == self.group), None)
        if index is None:
            entry = {"name": self.group, **self.values}
            listed.append(entry)
            changes = [_appended(text, groups, entry)]
        else:
            listed[index] = {**listed[index], **self.values}
            changes = [*_changes(text, groups.value[index], self.values)]
        # From the end; of two at one place the inner one, which is the first, is put before the other.
        for _, (start, end, replacement) in sorted(enumerate(changes), key=lambda each: (each[1][0], each[0]))[::-1]:
            text = text[:start] + replacement + text[end:]
        try:
            is_right = yaml.safe_load(text) == wanted
        except yaml.YAMLError:
            is_right = False
        if not is_right:
            raise self._refusal("it cannot be changed as text")
        return text

    def _read(self) -> str:
        try:
            return self.file.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise self._refusal(str(error)) from None

    def _parsed(self, text: str) -> tuple[Any, Any]:
        """Return the list of groups as nodes, and the whole file as data."""
        if self.file.suffix == ".json" or "\r" in text:
            raise self._refusal("it is JSON, or has the line ends of Windows")
        try:
            root, data = yaml.compose(text), yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise self._refusal(" ".join(str(error).split())) from None
        config = _pair(root, "config")[1]
        found = next(filter(None, (_pair(config, key)[1] for key in self.keys)), None)
        if not isinstance(found, yaml.SequenceNode):
            raise self._refusal(
                "it has no list `nodeGroups`, so that the stack has its default groups: write them there"
            )
        return found, data

    def _refusal(self, reason: str) -> CommandError:
        lines = yaml.safe_dump([{"name": self.group, **self.values}], sort_keys=False)
        return CommandError(f"{self.file.name}: {reason}", detail=f"The group in `nodeGroups`:\n{lines}")


def _pair(node: Any, key: str) -> Any:
    """Return a mapping's key and its value as nodes; two times None without such a key."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((pair for pair in pairs if pair[0].value == key), (None, None))


def _changes(text: str, node: yaml.MappingNode, values: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the changes of a mapping: values that are replaced, and keys after its last one."""
    added = {}
    for key, value in values.items():
        name, there = _pair(node, key)
        if there is None:
            added[key] = value
        elif isinstance(value, Mapping) and isinstance(there, yaml.MappingNode):
            yield from _changes(text, there, value)
        else:
            end = _end((name, there))
            start = min(there.start_mark.index, end)
            yield start, end, f"{'' if start < end else ' '}{_flow(value)}"
    if not added:
        return
    if node.flow_style:
        last = _end(node.value[-1]) if node.value else node.start_mark.index + 1
        lines = ", ".join(f"{key}: {_flow(value)}" for key, value in added.items())
        yield last, last, f", {lines}" if node.value else lines
    else:
        last = _line_end(text, _end(node))
        indent = " " * node.start_mark.column
        yield last, last, "".join(f"\n{indent}{key}: {_flow(value)}" for key, value in added.items())


def _appended(text: str, node: yaml.SequenceNode, entry: Mapping[str, Any]) -> Change:
    """Return the change by which a list gets one more entry."""
    if node.flow_style:
        last = _end(node.value[-1]) if node.value else node.start_mark.index + 1
        return last, last, f"{', ' if node.value else ''}{_flow(entry)}"
    last, indent = _line_end(text, _end(node)), " " * node.start_mark.column
    lines = f"\n{indent}  ".join(f"{key}: {_flow(value)}" for key, value in entry.items())
    return last, last, f"\n{indent}- {lines}"


def _end(node: Any) -> int:
    """Return the place after the last letter of a node, or of a key with its value: PyYAML's mark of a block is after
    the comments that follow, and that of no value may be in the next line."""
    if isinstance(node, tuple):
        key, value = node
        is_empty = value.start_mark.index == value.end_mark.index
        return _end(key) + 1 if is_empty else _end(value)
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        return _end(node.value[-1])
    end: int = node.end_mark.index
    return end


def _line_end(text: str, place: int) -> int:
    found = text.find("\n", place)
    return len(text) if found < 0 else found


def _flow(value: Any) -> str:
    shown = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return shown.removesuffix("\n").removesuffix("\n...")
