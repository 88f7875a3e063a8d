"""Edits of values in a stack's file that keep its comments and its order."""

import json
from collections.abc import Sequence
from typing import Any

import yaml

from trainium_eks.model.validation.parsing import MISSHAPEN, parse_yaml

Plain = str | int | float | bool

PathStep = str | int
"""A key of a mapping, or an index of a list."""


class NotEditableError(ValueError):
    """The file is written in a way that a value cannot be put into without changing more."""


def put(text: str, path: Sequence[PathStep], value: Plain) -> str:
    """Return the file's text with the value at a path of keys and list indices set; missing keys are added.

    Raises :class:`NotEditableError` where a key on the way holds no mapping, or the edit would change more than
    the value.
    """
    try:
        root = yaml.compose(text)
    except (yaml.YAMLError, *MISSHAPEN) as error:
        raise NotEditableError(f"it is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(root, yaml.MappingNode):
        raise NotEditableError("it holds no mapping")
    node: yaml.CollectionNode = root
    depth = 0
    while depth < len(path) and (below := _below(node, path[depth])) is not None:
        depth += 1
        if depth == len(path):
            return _meant(text, _replaced(text, below, value), path, value)
        if not isinstance(below, yaml.CollectionNode) or not below.value:
            raise NotEditableError(f"{_joined(path[:depth])} holds no mapping with entries")
        node = below
    return _meant(text, _added(text, node, path[depth:], value), path, value)


def _below(node: yaml.CollectionNode, step: PathStep) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == step), None)
    found: yaml.Node | None = node.value[step] if isinstance(step, int) and step < len(node.value) else None
    return found


def _joined(path: Sequence[PathStep]) -> str:
    return ".".join(map(str, path))


def _replaced(text: str, node: yaml.Node, value: Plain) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">"):
        raise NotEditableError("the value there is not a plain one")
    return f"{text[: node.start_mark.index]}{json.dumps(value)}{text[node.end_mark.index :]}"


def _added(text: str, node: yaml.CollectionNode, keys: Sequence[PathStep], value: Plain) -> str:
    """Return the text with a new entry at the mapping's end; keys below its first key are written in one line."""
    if not isinstance(node, yaml.MappingNode) or any(isinstance(key, int) for key in keys):
        raise NotEditableError("the list that it belongs to is not in this file: write it out first")
    inner = json.dumps(value)
    for key in reversed(keys[1:]):
        inner = f"{{ {key}: {inner} }}"
    entry = f"{keys[0]}: {inner}"
    if node.flow_style:
        at = node.end_mark.index - 1
        before = text[:at].rstrip()
        return f"{before}{', ' if node.value else ' '}{entry} {text[at:]}"
    last = _last_leaf(node)
    end = text.find("\n", last.end_mark.index)
    indent = " " * node.value[0][0].start_mark.column
    if end < 0:
        return f"{text}\n{indent}{entry}\n"
    return f"{text[: end + 1]}{indent}{entry}\n{text[end + 1 :]}"


def _last_leaf(node: yaml.Node) -> yaml.Node:
    """Return the last node of a block: a block's own end lies behind the comments and empty lines that follow it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(node, yaml.MappingNode) else last
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        raise NotEditableError("its last value is a block of text")
    return node


def _meant(before: str, after: str, path: Sequence[PathStep], value: Plain) -> str:
    """Return the edited text after comparing its data with the same change of the old data."""
    wanted, found = _apart(parse_yaml(before)), parse_yaml(after)
    at = wanted
    for key in path[:-1]:
        at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
    at[path[-1]] = value
    if found != wanted:
        raise NotEditableError(f"{_joined(path)} cannot be set without changing more")
    return after


def _apart(data: Any) -> Any:
    """Return a copy in which two places that shared one object (a YAML alias) have one each."""
    if isinstance(data, dict):
        return {key: _apart(value) for key, value in data.items()}
    return [_apart(each) for each in data] if isinstance(data, list) else data
