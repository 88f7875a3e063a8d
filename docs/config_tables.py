"""The ``config:`` block of Pulumi.yaml and the tables of ``docs/config.md``, made from the config models."""

import enum
import json
import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.validation import limits
from trainium_eks.model.validation.config_model import ConfigModel, OutputLike, docstrings
from trainium_eks.model.validation.problems import config_path


class ConfigKind(enum.Enum):
    """A field's type in a config file."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    ARRAY = "array"
    OBJECT = "object"


@dataclass(frozen=True)
class Row:
    """One field of the tables, nested ones with their whole path."""

    path: str
    """``nodeGroups[].capacity.zoneId``."""
    kind: str
    """Its type in words."""
    default: str
    """Its default as it would be written, or ``required``."""
    description: str
    """The field's docstring, as markdown."""


_STORED_AS_NUMBERS = frozenset({"allowed_account_ids"})
"""Lists of digits. ``pulumi config set --path`` stores an account id as a number, which the CLI refuses in an array of
strings; in an array of integers it takes both (workspace.ValidateConfigValue)."""


def pulumi_yaml() -> str:
    """Return the ``config:`` block of Pulumi.yaml.

    The CLI requires every declared key that has no default from the stack, so each optional key has a default. It
    refuses null for a declared object, so a key that may be null is described and left undeclared.
    """
    lines = ["config:"]
    about = docstrings(StackConfig)
    for name, field in StackConfig.model_fields.items():
        kind, text = kind_of(field.annotation), json.dumps(_plain(about[name]), ensure_ascii=False)
        if type(None) in get_args(field.annotation):
            what = f"{'an object' if kind is ConfigKind.OBJECT else kind.value} or null"
            lines += [f"  # {field.alias}: {what}, so not declared here. {_plain(about[name])}"]
            continue
        lines += [f"  {field.alias}:", f"    type: {kind.value}"]
        if kind is ConfigKind.ARRAY:
            item = ConfigKind.INTEGER if name in _STORED_AS_NUMBERS else kind_of(get_args(field.annotation)[0])
            lines += ["    items:", f"      type: {item.value}"]
        lines.append(f"    description: {text}")
        if not field.is_required():
            lines.append(f"    default: {json.dumps(_dumped(_default(field)), ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def markdown() -> str:
    """Return the table of the stack's inputs, nested fields below their section."""
    return _table(("Key", "Type", "Default", "Description"), rows(StackConfig), with_default=True)


def outputs_markdown() -> str:
    """Return the table of the stack's outputs."""
    return _table(("Output", "Type", "Description"), rows(StackOutputs), with_default=False)


def rows(model: type[ConfigModel], prefix: str = "") -> Iterator[Row]:
    """Yield every field of a model and of the models in it, depth first. Fields of a tagged union's arms name their
    arm."""
    about = docstrings(model)
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias}"
        default = "required" if field.is_required() else _written(_default(field))
        description = _plain(about.get(name), markdown=True) + limits.in_words(model, name)
        yield Row(path, _in_words(field.annotation), default, description)
        nested = tuple(models(field.annotation))
        below = f"{path}{_entry_of(field.annotation)}."
        if len(nested) == 1:
            yield from rows(nested[0], below)
        for arm in nested if len(nested) > 1 else ():
            yield from (_of_arm(row, arm) for row in rows(arm, below) if not row.path.endswith(".type"))


def _entry_of(annotation: Any) -> str:
    """Return the step from a list or mapping to an entry of it."""
    origin = get_origin(_without_none(annotation))
    return "[]" if kind_of(annotation) is ConfigKind.ARRAY else ".<name>" if origin is dict else ""


def kind_of(annotation: Any) -> ConfigKind:
    """Return the config type of a field's annotation; None and Outputs in a union do not count."""
    annotation = _without_none(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        return kind_of(get_args(annotation)[0])
    if origin is Literal:
        return ConfigKind.INTEGER if all(isinstance(word, int) for word in get_args(annotation)) else ConfigKind.STRING
    if origin is tuple or origin is list:
        return ConfigKind.ARRAY
    plain = {bool: ConfigKind.BOOLEAN, int: ConfigKind.INTEGER, str: ConfigKind.STRING, float: ConfigKind.NUMBER}
    return plain.get(annotation, ConfigKind.OBJECT)


def _table(head: Sequence[str], lines: Iterator[Row], *, with_default: bool) -> str:
    text = [f"| {' | '.join(head)} |", f"|{'|'.join('---' for _ in head)}|"]
    for row in lines:
        cells = [f"`{row.path}`", row.kind, *([row.default] if with_default else []), row.description]
        text.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(text) + "\n"


def _of_arm(row: Row, arm: type[ConfigModel]) -> Row:
    tag = arm.model_fields["type"].default
    return Row(row.path, row.kind, row.default, f"With `type: {tag}`. {row.description}")


def _in_words(annotation: Any) -> str:
    annotation = _without_none(annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _in_words(parts[0])
    if origin is Literal:
        return " | ".join(f"`{word}`" for word in parts)
    if origin is tuple:
        return f"list of {_many(_in_words(parts[0]))}"
    if origin is dict and kind_of(parts[1]) is not ConfigKind.OBJECT:
        return f"object of {_many(_in_words(parts[1]))}"
    arms = tuple(models(annotation))
    if len(arms) > 1:
        return "object with " + " | ".join(f"`type: {model.model_fields['type'].default}`" for model in arms)
    return kind_of(annotation).value


def _many(kind: str) -> str:
    return kind if kind.startswith("`") else f"{kind}s"


def _written(default: object) -> str:
    """Return a default as markdown: "as below" for a section with the defaults of its fields."""
    if default is None:
        return "none"
    if isinstance(default, ConfigModel):
        given = _dumped(default)
        return f"`{_flow(given)}`" if given else "as below"
    return f"`{_flow(_dumped(default))}`"


def _flow(value: Any) -> str:
    """Return a value in YAML's one-line form, without the quotes that JSON needs."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_flow(entry) for entry in value)}]"
    return json.dumps(value) if isinstance(value, bool) or value == "" else str(value)


def _dumped(value: Any) -> Any:
    """Return a default as plain data in the config's spelling, without values equal to the nested models' defaults.

    The type of a tagged union's arm is kept, because it chooses the arm.
    """
    if isinstance(value, ConfigModel):
        data = value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return {"type": value.type, **data} if "type" in type(value).model_fields else data  # type: ignore[attr-defined]
    if isinstance(value, tuple | list):
        return [_dumped(entry) for entry in value]
    return value


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    parts = get_args(annotation)
    kept = [part for part in parts if part is not type(None) and get_origin(part) is not OutputLike]
    return kept[0] if len(kept) == 1 else annotation if len(kept) == len(parts) else Union[tuple(kept)]  # noqa: UP007


def models(annotation: Any) -> Iterator[type[ConfigModel]]:
    """Yield the models in a field's annotation: a section, or the arms of a tagged union."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def _plain(text: str | None, *, markdown: bool = False) -> str:
    """Return a docstring on one line, field names in the config file's spelling; double backticks as markdown's, or
    removed."""
    one_line = " ".join((text or "").split())
    one_line = re.sub(r"``([a-z0-9_.]+)``", lambda name: f"``{config_path(name.group(1))}``", one_line)
    return one_line.replace("``", "`" if markdown else "")
