"""Names of other tools for keys of the config: the table ``other_names.yaml``, read for messages alone."""

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainium_eks.model.validation.parsing import read_table

_ENDS = re.compile("(ids?|arns?|config(uration)?s?|specification|selectorterms|module|s)$")
_BEGINNINGS = re.compile("^(enable|create|use|install|with|disable)(?=.)")


def known_as(models: Sequence[str], fields: Collection[str], name: str) -> str:
    """Return the field, or the sentence, in the place of another tool's name in a model, named with its bases; empty
    without one."""
    own = {_squashed(field): field for field in fields}
    known = [_sections()[model] for model in models if model in _sections()]
    for whole in (_squashed(name), _BEGINNINGS.sub("", _squashed(name))):
        for word in [whole, *(whole.removeprefix(head) for heads, _ in known for head in heads)]:
            theirs = (rules.get(word) or rules.get(_ENDS.sub("", word), "") for _, rules in known)
            for ours in (own.get(word, ""), *theirs):
                if ours in fields or " " in ours:
                    return ours
    return ""


def value_known_as(models: Sequence[str], field: str, value: object) -> str:
    """Return the sentence for a value that other tools take for a field; empty without one."""
    word = str(value).lower()
    return next((found for model in models if (found := _values().get((model, field, word)))), "")


def _squashed(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


@functools.cache
def _sections() -> Mapping[str, tuple[list[str], dict[str, str]]]:
    """Return for each model its description, and other tools' names with our replacement."""
    found: dict[str, tuple[list[str], dict[str, str]]] = {}
    for section in _table():
        for model in section["models"]:
            heads, known = found.setdefault(model, ([], {}))
            heads.extend(map(_squashed, section.get("called", ())))
            for names, ours in section["names"]:
                known.update(dict.fromkeys(map(_squashed, names), ours))
    return found


@functools.cache
def _values() -> Mapping[tuple[str, str, str], str]:
    """Return our value for another tool's value, by model, field and value."""
    rows = ((model, row) for section in _table() for model in section["models"] for row in section.get("values", ()))
    return {(model, field, word): ours for model, (words, field, ours) in rows for word in words}


def _table() -> list[Any]:
    table: list[Any] = read_table(Path(__file__).with_suffix(".yaml"))
    return table
