"""An acceptance run: steps in order, each with a planned and a measured time, that stop below limits and go on after a
crash.

The run's file has every result as soon as it is known. A step that was under way in a crash runs anew.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainium_eks import whole_file
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json

SCHEMA_VERSION = 1
"""Version of the run's file and of ``acceptance.json``; changes when a key is removed or changes meaning."""

LEAST_STEP_SECONDS = 900.0
STEP_FACTOR = 3
"""A step ends after this many times its planned seconds, but not before :data:`LEAST_STEP_SECONDS`."""


class Outcome(StrEnum):
    """The outcome of a step."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_REACHED = "not reached"


class StepError(Exception):
    """A step's claim does not hold. The text is the reason; ``findings`` are those of commands, as plain data."""

    def __init__(self, text: str, findings: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(text)
        self.findings = tuple(findings)


class RunError(Exception):
    """A run that cannot begin or go on; the text names the reason and the mend."""


@dataclass(frozen=True)
class Step:
    """A step of a run."""

    name: str
    """One word: ``training``."""
    claim: str
    """The sentence that is shown when the step passes."""
    planned_seconds: float
    act: Callable[[float], str]
    """Work of the step, until the given time (seconds since 1970); returns the observations, or raises StepError."""
    needs: tuple[str, ...] = ()
    """Names of steps that must have passed."""
    unless: str = ""
    """Why it cannot be tried here; empty where it can."""
    closes: bool = False
    """Whether it cleans up: it runs after failures and beyond the limits, and again until it has passed."""
    bills: bool = False
    """Whether AWS charges from its beginning on."""

    @property
    def limit_seconds(self) -> float:
        """Return the longest time that the step may take."""
        return max(STEP_FACTOR * self.planned_seconds, LEAST_STEP_SECONDS)


@dataclass(frozen=True)
class StepResult:
    """The result of a step."""

    name: str
    outcome: Outcome
    seconds: float
    text: str
    """What was seen, or why the step failed or was not reached."""
    findings: Sequence[Mapping[str, Any]] = ()
    """The doctor's findings of a failed step, as plain data."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a run."""

    max_usd: float
    max_seconds: float
    hourly_usd: float
    """Cost of the whole environment, USD an hour; 0 on the local cloud."""
    closing_seconds: float
    """Time kept back for the closing steps."""

    @property
    def billed_seconds(self) -> float:
        """Return the seconds after the first billed step in which the other steps must end."""
        paid = self.max_usd / self.hourly_usd * 3600 if self.hourly_usd else float("inf")
        return min(paid, self.max_seconds) - self.closing_seconds

    def usd(self, seconds: float) -> float:
        """Return the cost of this many billed seconds."""
        return self.hourly_usd * seconds / 3600


@dataclass(frozen=True)
class State:
    """Everything that a run's file holds."""

    stack: str
    local: bool
    began: float
    """Seconds since 1970, as all times here."""
    billed_since: float | None = None
    billed_until: float | None = None
    """When a closing step had passed: the resources that cost money are deleted."""
    current: str = ""
    """Name of the step under way; empty between two."""
    ended: float | None = None
    results: tuple[StepResult, ...] = field(default=())

    def result(self, name: str) -> StepResult | None:
        """Return a step's result; None for none yet."""
        return next((each for each in self.results if each.name == name), None)

    @staticmethod
    def load(file: Path) -> "State":
        """Read a run's file; RunError for another file."""
        try:
            data = parse_json(file.read_text(encoding="utf-8"))
            if data.pop("schemaVersion") != SCHEMA_VERSION:
                raise ValueError
            results = (StepResult(**{**each, "outcome": Outcome(each["outcome"])}) for each in data.pop("results"))
            return State(**data, results=tuple(results))
        except (OSError, *MISSHAPEN):
            raise RunError(
                f"{file} is not an acceptance run of this release: finish the run with the release that began it, or "
                "destroy the stack and remove the file"
            ) from None


class Run:
    """A run with its file."""

    def __init__(
        self,
        file: Path,
        state: State,
        steps: Sequence[Step],
        limits: Limits,
        tell: Callable[[Step, StepResult | None], None] = lambda *_: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Make a run of these steps. ``tell`` gets each step as it begins (with None) and as it has ended."""
        self.state = state
        self.limits = limits
        self._file = file
        self._steps = tuple(steps)
        self._tell = tell
        self._now = now

    def go(self, *, keep: bool = False) -> None:
        """Run the steps that have no result yet, and then the closing steps; with ``keep`` leave those out and the run
        open. After Ctrl-C the closing steps run all the same, and the KeyboardInterrupt is raised at the end."""
        interrupted = False
        try:
            for step in self._steps:
                if not step.closes and self.state.result(step.name) is None:
                    self._reach(step)
        except KeyboardInterrupt:
            interrupted = True
            if not keep:
                self._give_up()
        closing = [] if keep else [step for step in self._steps if step.closes and not self._has_passed(step.name)]
        for step in closing:
            self._reach(step)
        nothing_made = self.state.billed_since is None
        if not keep and (nothing_made or all(self._has_passed(step.name) for step in closing)):
            self._save(ended=self._now())
        if interrupted:
            raise KeyboardInterrupt

    @property
    def usd(self) -> float:
        """Return the cost so far, or of the whole run once everything is deleted."""
        since, until = self.state.billed_since, self.state.billed_until
        return 0.0 if since is None else self.limits.usd((until or self._now()) - since)

    def _has_passed(self, name: str) -> bool:
        found = self.state.result(name)
        return found is not None and found.outcome is Outcome.PASSED

    def _give_up(self) -> None:
        """Note that the steps without a result were not reached."""
        for step in self._steps:
            if not step.closes and self.state.result(step.name) is None:
                what = "it" if self.state.current == step.name else "the run before it"
                self._record(step, StepResult(step.name, Outcome.NOT_REACHED, 0, f"Ctrl-C ended {what}"))

    def _reach(self, step: Step) -> None:
        """Perform a step, or note why it is not reached."""
        if why := self._unreachable(step):
            self._record(step, StepResult(step.name, Outcome.NOT_REACHED, 0, why))
            return
        began = self._now()
        if step.bills and self.state.billed_since is None:
            self._save(billed_since=began)
        self._save(current=step.name)
        self._tell(step, None)
        outcome, findings = Outcome.PASSED, tuple[Mapping[str, Any], ...]()
        try:
            text = step.act(self._deadline(step, began))
        except StepError as error:
            outcome, text, findings = Outcome.FAILED, str(error), error.findings
        except Exception as error:  # noqa: BLE001 (whatever it is, the environment costs money until it is destroyed)
            outcome, text = Outcome.FAILED, f"{type(error).__name__}: {error}"
        self._record(step, StepResult(step.name, outcome, self._now() - began, text, findings))

    def _unreachable(self, step: Step) -> str:
        if step.unless:
            return step.unless
        if step.closes:
            return "" if self.state.billed_since is not None else "nothing was made"
        if lacking := [name for name in step.needs if not self._has_passed(name)]:
            return f"`{lacking[0]}` has not passed"
        since = self.state.billed_since
        if since is not None and self._now() >= since + self.limits.billed_seconds:
            return f"the limit was reached: {self.limits.max_usd:g} USD or {self.limits.max_seconds / 3600:g} hours"
        return ""

    def _deadline(self, step: Step, began: float) -> float:
        since = self.state.billed_since
        own = began + step.limit_seconds
        return own if step.closes or since is None else min(own, since + self.limits.billed_seconds)

    def _record(self, step: Step, result: StepResult) -> None:
        others = tuple(each for each in self.state.results if each.name != step.name)
        if step.closes and result.outcome is Outcome.PASSED and self.state.billed_until is None:
            self._save(billed_until=self._now())
        self._save(results=(*others, result), current="")
        self._tell(step, result)

    def _save(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
        document = {"schemaVersion": SCHEMA_VERSION, **asdict(self.state)}
        whole_file.write(self._file, json.dumps(document, indent=1))
