"""Problems: what is wrong with a configuration, said once, in full, with the fix.

Every judgement of this library about its input is a :class:`Problem`. A judge (a ``problems(...)``
function) returns them and never raises, so that whoever asks can gather the problems of a whole
stack and show them together.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum


class Severity(str, Enum):
    """How a problem is treated."""

    REFUSE = "refuse"
    """Nothing is built while it stands."""
    ACKNOWLEDGE = "acknowledge"
    """Refused until the configuration waives the rule named in :attr:`Problem.rule`, with a reason."""
    WARN = "warn"
    """Shown, and built all the same."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input."""

    path: str
    """Where: ``node_groups[0].max_size`` (Python spelling; :func:`config_path` gives the config's)."""
    reason: str
    """What is wrong, with the value found and what is allowed."""
    fix: str = ""
    """What to do: the nearest good value, or a ``pulumi config set ...`` that can be pasted."""
    severity: Severity = Severity.REFUSE
    rule: str = ""
    """The rule (``R29``) whose waiver acknowledges it; only with :attr:`Severity.ACKNOWLEDGE`."""
    row: int = 0
    """Row of the bad-input table (``tests/bad_inputs.yaml``), or 0."""

    def under(self, prefix: str) -> "Problem":
        """The same problem, seen from a parent whose field ``prefix`` holds this input."""
        joined = f"{prefix}{self.path}" if self.path.startswith("[") else f"{prefix}.{self.path}" if self.path else prefix
        return replace(self, path=joined)


def join(path: str, name: str | int) -> str:
    """``join("node_groups", 0)`` is ``node_groups[0]``; ``join("a", "b")`` is ``a.b``; the root path is ``""``."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def config_path(path: str) -> str:
    """The path as the stack's config file spells it: ``node_groups[0].max_size`` is ``nodeGroups[0].maxSize``."""
    return re.sub(r"_([a-z0-9])", lambda match: match.group(1).upper(), path)


def config_set(path: str, value: object) -> str:
    """The command that sets one value of the stack's config: ``pulumi config set --path 'nodeGroups[0].maxSize' 4``."""
    spelled = config_path(path)
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    if re.search(r"[.\[]", spelled):
        return f"pulumi config set --path 'trainium-eks:{spelled}' {shown}"
    return f"pulumi config set {spelled} {shown}"


def nearest(value: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that ``value`` was probably meant to be, or None when nothing is close."""
    choices = list(allowed)
    by_folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(value.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def refused(problems: Iterable[Problem], waivers: Mapping[str, str]) -> tuple[Problem, ...]:
    """The problems that stop a build: the refused ones, and those to acknowledge that no waiver names."""
    return tuple(
        problem
        for problem in problems
        if problem.severity is Severity.REFUSE
        or (problem.severity is Severity.ACKNOWLEDGE and problem.rule not in waivers)
    )


def describe(problems: Iterable[Problem], spell: Callable[[str], str] = str) -> str:
    """The problems as a list for people: one line each, its fix on the next."""
    lines = []
    for problem in problems:
        lines.append(f"- {spell(problem.path)}: {problem.reason}" if problem.path else f"- {problem.reason}")
        fix = problem.fix
        if problem.severity is Severity.ACKNOWLEDGE:
            waive = f"or accept it: pulumi config set --path 'waivers.{problem.rule}' '<your reason>'"
            fix = f"{fix}; {waive}" if fix else waive
        if fix:
            lines.append(f"    fix: {fix}")
    return "\n".join(lines)
