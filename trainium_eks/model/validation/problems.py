"""Problems: faults of a configuration, each described once, in full, with its fix.

This library reports every fault of its input as a :class:`Problem`. A ``validate`` function returns problems and never
raises, so that a caller can gather the problems of a whole stack and show them together.
"""

import difflib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from enum import StrEnum
from operator import eq
from typing import Any

Value = str | int | float | bool | tuple[str, ...] | Mapping[str, int] | Mapping[str, str] | None
"""A value that can be set in a stack's config."""


class Severity(StrEnum):
    """How a problem is treated."""

    REFUSE = "refuse"
    """Nothing is built while it stands."""
    ACKNOWLEDGE = "acknowledge"
    """Refused unless the configuration waives the rule named in :attr:`Problem.rule`, with a reason."""
    WARN = "warn"
    """Shown, and built anyway."""


@dataclass(frozen=True)
class Problem:
    """One fault of an input.

    In ``reason``, ``fix`` and ``allowed``, a field's name is in backticks (```zone_id```): :func:`describe` writes it
    in the reader's spelling.
    """

    path: str
    """Path of the input: ``node_groups[0].max_size`` (Python spelling; :func:`config_path` gives the config's)."""
    reason: str
    """The fault, a clause with subject and verb: ``it must be 1 to 90 days``, ``EKS takes no entry for it``."""
    fix: str = ""
    """The remedy, in words; besides, or instead of, :attr:`good`. With neither, one of :attr:`allowed` mends it."""
    _: KW_ONLY
    severity: Severity = Severity.REFUSE
    rule: str = ""
    """The rule (``R29``) to waive in order to acknowledge it, if it can be (:attr:`Severity.ACKNOWLEDGE`)."""
    value: Value = None
    """The value found, where it is short and plain."""
    allowed: tuple[str, ...] = ()
    """Values allowed there."""
    good: Value = None
    """The nearest good value for ``path``. ``<text>`` is a placeholder for a value that only the reader knows."""

    def __post_init__(self) -> None:
        if self.rule:
            object.__setattr__(self, "severity", Severity.ACKNOWLEDGE)

    @property
    def is_settable(self) -> bool:
        """Whether :attr:`good` is a value as it stands."""
        return self.good is not None and "<" not in str(self.good)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, to pass a problem from a program to the command line; see :meth:`from_json`."""
        return {**asdict(self), "severity": self.severity.value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Problem":
        """Return the problem that :meth:`to_json` encoded, also after a round trip through JSON text."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return Problem(**{**fields, "severity": Severity(data["severity"])})

    def under(self, prefix: str) -> "Problem":
        """Return the same problem with a path that starts at the parent's field ``prefix``."""
        joined = (
            f"{prefix}{self.path}" if self.path.startswith("[") else f"{prefix}.{self.path}" if self.path else prefix
        )
        return replace(self, path=joined)


def under(prefix: str, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems of a section with paths that start at the parent's field ``prefix``."""
    return [problem.under(prefix) for problem in problems]


def join(path: str, name: str | int) -> str:
    """Return a path with a further step: ``join("node_groups", 0)`` is ``node_groups[0]``; ``join("a", "b")`` is
    ``a.b``; the root path is ``""``."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def join_key(path: str, key: str) -> str:
    """Return the path of an entry of a mapping: ``waivers.R06``, ``capability["aws.amazon.com/neuron"]`` in quotes."""
    return join(path, key) if re.fullmatch(r"[A-Za-z0-9-]+", key) else f"{path}[{json.dumps(key)}]"


PathStep = str | int
"""A key of a mapping, or an index of a list."""

_STEP = re.compile(r'\["(?P<quoted>(?:[^"\\]|\\.)*)"\]|\[(?P<index>\d+)\]|\.?(?P<key>[^.\[]+)')


def steps_of(path: str) -> list[PathStep]:
    """Return the steps of a path: ``nodeGroups[0].maxSize`` is ``nodeGroups``, 0, ``maxSize``."""
    return [
        int(found["index"]) if found["index"] else found["key"] or found["quoted"].replace('\\"', '"')
        for found in _STEP.finditer(path)
    ]


def with_value(data: object, path: str | Sequence[PathStep], value: object) -> Any:
    """Return plain data, its keys in either spelling, with a value put in place as ``pulumi config set`` puts it."""
    steps = steps_of(path) if isinstance(path, str) else path
    if isinstance(value, tuple):
        for index, entry in enumerate(value):
            data = with_value(data, (*steps, index), entry)
        return data
    if not steps:
        return value
    step, *rest = steps
    if isinstance(step, int):
        entries = list(data) if isinstance(data, Sequence) else []
        entries[step : step + 1] = [with_value(entries[step] if step < len(entries) else None, rest, value)]
        return entries
    held = data if isinstance(data, Mapping) else {}
    key = config_path(step) if config_path(step) in held else step
    return {**held, key: with_value(held.get(key), rest, value)}


def config_path(path: str) -> str:
    """Return the path in the spelling of the stack's config file: ``node_groups[0].max_size`` is
    ``nodeGroups[0].maxSize``."""
    quoted_or_not = re.split(r'("(?:[^"\\]|\\.)*")', path)
    camel = (re.sub(r"_(\d*[a-z])", lambda match: match.group(1).upper(), part) for part in quoted_or_not[::2])
    return "".join(part for pair in zip(camel, [*quoted_or_not[1::2], ""], strict=True) for part in pair)


def snake(name: str) -> str:
    """Return a config key's Python name: ``nodeGroups`` is ``node_groups``."""
    return re.sub(r"([A-Z])", r"_\1", name).lower()


def config_set(path: str, value: Value) -> str:
    """Return the command that sets a value of the stack's config: ``pulumi config set --path 'nodeGroups[0].maxSize'
    4``.

    A list or a mapping takes one command for each entry, as ``pulumi config set`` sets plain values only.
    """
    if isinstance(value, Mapping):
        return " && ".join(config_set(join_key(path, key), entry) for key, entry in value.items())
    if isinstance(value, tuple):
        return " && ".join(config_set(join(path, index), entry) for index, entry in enumerate(value))
    spelled = config_path(path)
    if re.search(r"[.\[]", spelled):
        return f"pulumi config set --path {shlex.quote(spelled)} {shlex.quote(shown(value))}"
    return f"pulumi config set {spelled} {shlex.quote(shown(value))}"


def plural(count: int, one: str) -> str:
    """Return ``1 resource``, ``2 resources``."""
    return f"{count} {one if count == 1 else f'{one}s'}"


def nearest(value: str, allowed: Iterable[str], *, same_numbers: bool = True, least: float = 0.65) -> str | None:
    """Return the allowed word that ``value`` misspells, or None: when none has the ``least`` likeness (0 to 1), or two
    have the same. With ``same_numbers`` it has each number of ``value``: ``train-1`` is not ``train-2`` misspelt."""
    wanted = value.lower()
    numbers = set(re.findall("[0-9]+", wanted)) if same_numbers else set()
    scores = {
        each: (difflib.SequenceMatcher(None, wanted, each.lower()).ratio(), sum(map(eq, wanted, each.lower())))
        for each in allowed
        if numbers <= set(re.findall("[0-9]+", each))
    }
    best = max(scores.values(), default=(0, 0))
    found = [each for each, score in scores.items() if score == best]
    return found[0] if best[0] >= least and len(found) == 1 else None


def nearest_number(value: int, allowed: Sequence[int]) -> int:
    """Return the allowed number nearest to ``value``, the larger of two that are equally near."""
    return min(allowed, key=lambda choice: (abs(choice - value), -choice))


def refused(problems: Iterable[Problem], waivers: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return the problems that stop a build: refused problems, and problems to acknowledge without a waiver."""
    return tuple(
        problem
        for problem in problems
        if problem.severity is Severity.REFUSE
        or (problem.severity is Severity.ACKNOWLEDGE and not waivers.get(problem.rule, "").strip())
    )


Setting = Callable[[str, Value], str]
"""Function that returns the instruction to set a value of the config, from its path in Python spelling and the
value."""


def describe(problems: Iterable[Problem], spell: Callable[[str], str] = str, setting: Setting = config_set) -> str:
    """Return the problems as a list for people: path, value and reason, allowed values, and the fix.

    ``spell`` gives the reader's spelling of a path. With :func:`config_path` the fixes change the stack's config by
    ``setting``, the instruction to set a value; without it they name the argument to change.
    """
    return "\n".join(line for problem in problems for line in _lines(problem, spell, setting))


def shown(value: Value) -> str:
    """Return a value in the form of a config file and a shell."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {entry}' for key, entry in value.items())}}}"
    return str(value)


_MOST_SHOWN = 20


def _lines(problem: Problem, spell: Callable[[str], str], setting: Setting) -> list[str]:
    where = spell(problem.path)
    if where and problem.value is not None:
        found = shown(problem.value)
        where = f"{where} = {found if found and found.isprintable() else ascii(found)}"
    mark = "- warning: " if problem.severity is Severity.WARN else "- "
    lines = [f"{mark}{where}: {spelled(problem.reason, spell)}" if where else f"{mark}{spelled(problem.reason, spell)}"]
    if problem.allowed:
        cut = problem.allowed[:_MOST_SHOWN]
        more = f", … ({len(problem.allowed)} in all)" if len(cut) < len(problem.allowed) else ""
        lines.append(f"    allowed: {spelled(', '.join(cut), spell)}{more}")
    for number, text in enumerate(_fixes(problem, spell, setting)):
        lines.append(f"    {'fix: ' if not number else '' if text.startswith('then ') else 'or: '}{text}")
    if problem.severity is Severity.ACKNOWLEDGE:
        waive = setting(f"waivers.{problem.rule}", {"reason": "<your reason>", "expires": "<YYYY-MM-DD>"})
        lines.append(f"    or accept it: {waive if spell is config_path else f'waive {problem.rule} with a reason'}")
    return lines


def _fixes(problem: Problem, spell: Callable[[str], str], setting: Setting) -> list[str]:
    fixes = []
    if problem.good is not None:
        if spell is config_path:
            fixes.append(setting(problem.path, problem.good))
        else:
            fixes.append(f"set {spell(problem.path)} to {shown(problem.good)}")
    if problem.fix:
        fixes.append(spelled(problem.fix.removeprefix("or "), spell))
    if problem.allowed and not fixes:
        fixes.append("take what is allowed")
    return fixes


def spelled(text: str, spell: Callable[[str], str]) -> str:
    """Return a problem's text with the fields in backticks in the reader's spelling."""
    return re.sub(r"`([^`]+)`", lambda match: spell(match.group(1)), text)
