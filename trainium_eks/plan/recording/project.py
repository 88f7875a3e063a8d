"""Reader of ``Pulumi.yaml`` and ``Pulumi.<stack>.yaml``, with the Pulumi CLI's rules and without the CLI.

The rules come from Pulumi's ``workspace`` package (``project.go``, ``config.go``, ``value.go``): keys without
namespace are the project's, defaults fill keys that the stack leaves out, objects become JSON text, a declared type is
enforced, and a declared key without default must be set.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from trainium_eks.model.validation.problems import Problem, config_set, describe, nearest
from trainium_eks.plan.resource import SECRET


class ProjectError(Exception):
    """A project or stack that cannot be read. The message names the file and the remedy."""


class InvalidConfigError(Exception):
    """A stack's config, or a component's arguments made from it, that is refused. ``settings`` are the
    program's, when the declared types refused them; ``component`` is the component with invalid arguments
    (``Network net``), empty when the stack's file is invalid; ``note`` names look-ups with made-up answers."""

    def __init__(
        self,
        problems: tuple[Problem, ...],
        settings: "StackSettings | None" = None,
        component: str = "",
        note: str = "",
    ) -> None:
        self.problems = problems
        self.settings = settings
        self.component = component
        self.note = note
        super().__init__(describe(problems))


@dataclass(frozen=True)
class ConfigKey:
    """One entry of the ``config:`` block of ``Pulumi.yaml``."""

    type: str = ""
    """``string``, ``integer``, ``boolean``, ``array``, ``object``; empty when not declared."""
    items: Mapping[str, Any] | None = None
    default: Any = None
    value: Any = None
    secret: bool = False
    description: str = ""


@dataclass(frozen=True)
class StackSettings:
    """The config that one stack's program gets."""

    name: str
    config: Mapping[str, str]
    """Full key (``trainium-eks:region``) to text; objects as JSON; encrypted values as ``[secret]``."""
    secret_keys: frozenset[str] = frozenset()
    """Full keys of values that are secret or hold a secret."""
    warnings: tuple[str, ...] = ()
    """Warnings about values that could not be seen, for people."""


@dataclass(frozen=True)
class Project:
    """A Pulumi project written in Python."""

    name: str
    directory: Path
    program: Path
    config: Mapping[str, ConfigKey] = field(default_factory=dict)
    """Full key to its declaration in ``Pulumi.yaml``."""
    stack_directory: Path = Path()
    environment: Path | None = None
    """The virtual environment in which Pulumi runs the program (``runtime.options``); None without one."""
    toolchain: str = ""
    """``pip``, ``poetry`` or ``uv``; empty for Pulumi's default, pip."""

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the stacks that have a file."""
        files = (path for suffix in SUFFIXES for path in self.stack_directory.glob(f"Pulumi.*{suffix}"))
        return tuple(sorted({path.name.removeprefix("Pulumi.").rpartition(".")[0] for path in files}))

    def stack_file(self, name: str) -> Path | None:
        """Return the file of a stack; None without one."""
        named = re.fullmatch(r"[A-Za-z0-9._-]+", name)
        return _existing(self.stack_directory, f"Pulumi.{name}") if named else None

    def stack(self, name: str) -> StackSettings:
        """Return the config of one stack, defaults included. Raise ProjectError when the stack's file cannot be
        read, and InvalidConfigError when a value is missing or not of its declared type."""
        path = self.stack_file(name)
        if path is None:
            there = f"there are {', '.join(self.stacks)}" if self.stacks else "there is none yet"
            close = nearest(name, self.stacks)
            hint = f"; did you mean {close!r}?" if close else ""
            raise ProjectError(f"no stack {name!r} in {self.stack_directory}: {there}{hint}")
        content = _read(path)
        section = content.get("config")
        if section is not None and not isinstance(section, _Mapping):
            raise ProjectError(f"{path.name}: 'config' must be a mapping of keys to values")
        warnings = () if _plain(content.get("environment")) is None else (_UNSEEN_ENVIRONMENT.format(file=path.name),)
        return _merged(self, name, path.name, {} if section is None else section, warnings)


def load_project(directory: Path) -> Project:
    """Return the project in ``directory``. Raises ProjectError if it is missing, or is not a readable Python
    project."""
    directory = directory.resolve()
    path = _existing(directory, "Pulumi")
    if path is None:
        raise ProjectError(f"no Pulumi.yaml in {directory}: give the directory of a Pulumi project")
    content = _plain(_read(path))
    name = content.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name):
        raise ProjectError(f"{path.name}: 'name' must be 1 to 100 letters, digits, '-', '_' or '.', got {name!r}")
    runtime = content.get("runtime")
    language = runtime.get("name") if isinstance(runtime, Mapping) else runtime
    if language != "python":
        raise ProjectError(f"{path.name}: runtime {language!r} cannot be recorded, only 'python'")
    options = runtime.get("options") if isinstance(runtime, Mapping) else None
    named = {name: str(value) for name, value in (options if isinstance(options, Mapping) else {}).items() if value}
    toolchain = named.get("toolchain", "")
    # uv has its environment there without a word (pulumi, sdk/python/toolchain).
    environment = named.get("virtualenv", ".venv" if toolchain == "uv" else "")
    program = (directory / str(content.get("main") or ".")).resolve()
    program = program / "__main__.py" if program.is_dir() else program
    if not program.is_file():
        raise ProjectError(f"{path.name}: the program {program} does not exist")
    return Project(
        name=name,
        directory=directory,
        program=program,
        config=_declared(path.name, name, content.get("config") or {}),
        stack_directory=directory / str(content.get("stackConfigDir") or "."),
        environment=directory / environment if environment else None,
        toolchain=toolchain,
    )


# --- Pulumi.yaml --------------------------------------------------------------------------------------------------

_TYPES = ("string", "integer", "boolean", "array", "object")
_FIELDS = ("type", "items", "default", "value", "secret", "description")


def _declared(file: str, project: str, section: Any) -> dict[str, ConfigKey]:
    if not isinstance(section, Mapping):
        raise ProjectError(f"{file}: 'config' must be a mapping of keys to their types")
    declared = {}
    for name, entry in section.items():
        key = _full_key(file, project, name)
        own = key.startswith(f"{project}:")
        if not isinstance(entry, Mapping):
            declared[key] = ConfigKey(default=entry) if own else ConfigKey(value=entry)
            continue
        declared[key] = _declared_key(f"{file}: config.{name}", entry, own)
    return declared


def _declared_key(where: str, entry: Mapping[str, Any], own: bool) -> ConfigKey:
    unknown = [name for name in entry if name not in _FIELDS]
    if unknown:
        raise ProjectError(f"{where} has no {unknown[0]!r}; it takes {', '.join(_FIELDS)}")
    if not own and ("type" in entry or "default" in entry):
        raise ProjectError(f"{where} belongs to another namespace and takes only 'value', not 'type' or 'default'")
    if own and entry.get("type") is not None and entry["type"] not in _TYPES:
        raise ProjectError(f"{where}.type must be one of {', '.join(_TYPES)}, got {entry['type']!r}")
    key = ConfigKey(
        type=entry.get("type") or "",
        items=entry.get("items"),
        default=entry.get("default"),
        value=entry.get("value"),
        secret=bool(entry.get("secret", False)),
        description=str(entry.get("description") or ""),
    )
    if key.type and key.default is not None and not _fits(key.type, key.items, key.default):
        raise ProjectError(f"{where}.default must be of type {_type_name(key.type, key.items)}, got {key.default!r}")
    return key


def _full_key(file: str, project: str, name: str) -> str:
    parts = name.split(":")
    if len(parts) == 3 and parts[1] == "config":
        parts = [parts[0], parts[2]]
    if len(parts) > 2 or not all(parts):
        raise ProjectError(
            f"{file}: {name!r} is not a config key; write <namespace>:<name>, or <name> for this project"
        )
    return ":".join(parts) if len(parts) == 2 else f"{project}:{name}"


# --- Pulumi.<stack>.yaml ------------------------------------------------------------------------------------------

_UNSEEN_ENVIRONMENT = (
    "{file}: 'environment' takes values from Pulumi ESC, which is not called here: keys that only it sets get "
    "their defaults"
)


def _merged(
    project: Project, name: str, file: str, section: "_Mapping | dict[str, Any]", warnings: tuple[str, ...]
) -> StackSettings:
    problems: list[Problem] = []
    texts: dict[str, str] = {}
    values: dict[str, Any] = {}
    secret: set[str] = set()
    for spelled, node in section.items():
        key = _full_key(file, project.name, spelled)
        value = _plain(node)
        shown = key.removeprefix(f"{project.name}:")
        if key in texts:
            raise ProjectError(f"{file}: {shown} is set twice, with and without its namespace")
        if value is None:
            # The CLI stores an empty text for null; for a declared type, null is refused.
            texts[key] = values[key] = ""
            if key in project.config and project.config[key].type:
                reason = f"it is null, but Pulumi expects type {project.config[key].type}"
                problems.append(Problem(shown, reason, f"give a value, or leave it out of {file} for its default"))
            continue
        clear, has_secret = _without_secrets(value)
        if has_secret:
            secret.add(key)
        # A scalar keeps its text: 012345678901 stays an account id, and 1.20 a version.
        texts[key] = node.text if isinstance(node, _Scalar) else clear if clear == SECRET else _json(clear)
        values[key] = texts[key] if isinstance(node, _Scalar) or clear == SECRET else clear
    for key, declared in sorted(project.config.items()):
        shown = key.removeprefix(f"{project.name}:")
        if key in texts:
            if not any(problem.path == shown for problem in problems):
                problems.extend(_type_problems(shown, declared, values[key], key in secret))
            continue
        fallback = declared.value if declared.value is not None else declared.default
        if fallback is not None:
            texts[key] = _text(fallback)
        elif key.startswith(f"{project.name}:"):
            unseen = "; set it here too if an ESC environment sets it: plans do not read those" if warnings else ""
            problems.append(
                Problem(shown, f"it is required, and not set in {file}{unseen}", config_set(shown, "<value>"))
            )
    settings = StackSettings(name, dict(sorted(texts.items())), frozenset(secret), warnings)
    if problems:
        raise InvalidConfigError(tuple(problems), settings)
    return settings


def _type_problems(path: str, declared: ConfigKey, value: Any, secret: bool) -> list[Problem]:
    if declared.secret and not secret:
        return [Problem(path, "it is declared secret, but set in plain text", f"pulumi config set --secret {path}")]
    if not declared.type or _fits(declared.type, declared.items, value):
        return []
    expected = _type_name(declared.type, declared.items)
    meaning = f" ({declared.description.rstrip('.')})" if declared.description else ""
    return [Problem(path, f"it must be {expected}, not {json.dumps(value)}{meaning}", f"write {expected}")]


def _fits(type_: str, items: Mapping[str, Any] | None, value: Any) -> bool:
    """Return whether a value has its declared type, as ``ValidateConfigValue`` of the CLI: scalars may come as text.
    Encrypted values fit."""
    if value == SECRET:
        return True
    if type_ == "string":
        return isinstance(value, str)
    if type_ == "integer":
        whole = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
        return whole or (isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value) is not None)
    if type_ == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    if type_ == "object":
        return isinstance(value, Mapping)
    if not isinstance(value, list):
        return False
    return items is None or all(_fits(str(items.get("type")), items.get("items"), item) for item in value)


def _type_name(type_: str, items: Mapping[str, Any] | None) -> str:
    return f"array<{_type_name(str(items.get('type')), items.get('items'))}>" if items else type_


def _without_secrets(value: Any) -> tuple[Any, bool]:
    """Return the value with each ``{secure: …}`` replaced, and whether it had any."""
    if isinstance(value, Mapping):
        if set(value) == {"secure"} and isinstance(value["secure"], str):
            return SECRET, True
        parts = {name: _without_secrets(item) for name, item in value.items()}
        return {name: item for name, (item, _) in parts.items()}, any(found for _, found in parts.values())
    if isinstance(value, list):
        members = [_without_secrets(item) for item in value]
        return [item for item, _ in members], any(found for _, found in members)
    return value, False


def _text(value: Any) -> str:
    """Return a default as the CLI stores it: scalars as Go prints them, the rest as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format(value, ".17g") if not value.is_integer() else str(int(value))
    return str(value) if isinstance(value, str | int) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# --- YAML ---------------------------------------------------------------------------------------------------------
# PyYAML reads YAML 1.1, where `yes` is true and 12:30 is 750; the CLI reads the core schema of 1.2, and keeps the
# text of a scalar. So only PyYAML's syntax tree is used.

SUFFIXES = (".yaml", ".yml", ".json")
"""Allowed suffixes of the files of a project and its stacks."""
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|0[0-7_]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class _Scalar:
    text: str
    value: Any


class _Mapping(dict[str, Any]):
    """A mapping with scalars still in the form of :class:`_Scalar`."""


def _existing(directory: Path, stem: str) -> Path | None:
    return next(
        (directory / f"{stem}{suffix}" for suffix in SUFFIXES if (directory / f"{stem}{suffix}").is_file()), None
    )


def _read(path: Path) -> _Mapping:
    try:
        node = yaml.compose(path.read_text(encoding="utf-8-sig"), yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProjectError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ProjectError(f"{path.name} is nested too deeply") from None
    if node is not None:
        _expanded_size(path.name, node, {})
    content = _Mapping() if node is None else _from_node(path.name, node)
    if not isinstance(content, _Mapping):
        raise ProjectError(f"{path.name} must be a mapping")
    return content


# An alias stands for the whole of its anchor: nine lines of ten aliases each are a thousand million values. The CLI's
# reader refuses that too ("excessive aliasing").
_MOST_VALUES = 100_000


def _expanded_size(file: str, node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values in a node with aliases written out, or raise when it is above the limit."""
    if id(node) in known:
        if not known[id(node)]:
            raise ProjectError(f"{file}:{node.start_mark.line + 1}: an alias is inside its own anchor")
        return known[id(node)]
    known[id(node)] = 0
    inner = node.value if isinstance(node, yaml.CollectionNode) else ()
    parts = [part for item in inner for part in (item if isinstance(item, tuple) else (item,))]
    size = 1 + sum(_expanded_size(file, part, known) for part in parts)
    if size > _MOST_VALUES:
        raise ProjectError(f"{file}: with its aliases written out it has more than {_MOST_VALUES:,} values")
    known[id(node)] = size
    return size


def _from_node(file: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_from_node(file, item) for item in node.value]
    if isinstance(node, yaml.ScalarNode):
        return _Scalar(node.value, node.value if node.style else _scalar(node.value))
    merged, own = _Mapping(), _Mapping()
    for key_node, value_node in node.value:
        value = _from_node(file, value_node)
        if key_node.value == "<<" and key_node.style is None:
            for part in value if isinstance(value, list) else [value]:
                merged.update({name: item for name, item in part.items() if name not in merged})
            continue
        if key_node.value in own:
            raise ProjectError(f"{file}:{key_node.start_mark.line + 1}: {key_node.value!r} is set twice")
        own[str(key_node.value)] = value
    return _Mapping({**merged, **own})


def _scalar(text: str) -> Any:
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        bare = text.replace("_", "")
        digits = bare.lstrip("+-")
        legacy_octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
        return int(bare, 8) if legacy_octal else int(bare, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def _plain(value: Any) -> Any:
    if isinstance(value, _Scalar):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
