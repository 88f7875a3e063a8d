"""Waivers: rules that an environment breaks on purpose, each with its reason and its last day."""

import datetime
import re
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic

from trainium_eks.model.validation.config_model import ConfigModel, LooseStr
from trainium_eks.model.validation.problems import Problem, join, join_key

_GONE = (10, 20, 27, 40, 59)
"""Numbers of rules that earlier releases had."""

RULES = tuple(f"R{number:02}" for number in range(1, 100) if number not in _GONE)
"""The rules that a waiver can name."""

FORM = "a waiver has a reason and its last day: {reason: <your reason>, expires: <YYYY-MM-DD>}"
"""Required form of a waiver."""

PLACEHOLDER: Mapping[str, str] = {"reason": "<your reason>", "expires": "<YYYY-MM-DD>"}
"""Placeholders in a proposed command for values that only the reader knows."""


_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def _day(value: object) -> object:
    # A day without quotes is a timestamp to YAML: PyYAML makes a date of it, the CLI's YAML midnight in UTC.
    if isinstance(value, datetime.date):
        return value.isoformat()[:10]
    return value.removesuffix("T00:00:00Z") if isinstance(value, str) else value


class WaiverConfig(ConfigModel):
    """The reason for breaking a rule on purpose, and its last day."""

    reason: LooseStr
    """Why, for readers of the plan."""
    expires: Annotated[str, pydantic.BeforeValidator(_day)]
    """The last day on which it holds, ``YYYY-MM-DD`` in UTC, no more than a year ahead. From the next day on the plan
    fails, until the rule passes or another day is set."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _has_two_parts(cls, data: Any) -> Any:
        if not isinstance(data, Mapping | cls):
            raise ValueError(FORM)
        return data


def reasons(waivers: object) -> dict[str, str]:
    """Return rule id to reason, which is enough to acknowledge an input: of a config's waivers (models or mappings), or
    of a component's arguments, which map to the reason alone; empty for any type but a mapping.

    The last day is not checked: an update that mends a running environment must not be stopped by a date. `trn plan`
    and the policy pack check it.
    """
    if not isinstance(waivers, Mapping):
        return {}
    return {str(rule): _reason(waiver) for rule, waiver in waivers.items()}


def _reason(waiver: object) -> str:
    found = waiver.get("reason") if isinstance(waiver, Mapping) else getattr(waiver, "reason", waiver)
    return "" if found is None else str(found)


def validate(waivers: Mapping[str, WaiverConfig]) -> list[Problem]:
    """Return the problems of the waivers themselves. Paths start at the config's root."""
    return [problem for rule, waiver in waivers.items() for problem in _problems(rule, waiver)]


def _problems(rule: str, waiver: WaiverConfig) -> list[Problem]:
    path = join_key("waivers", rule)
    if rule not in RULES:
        meant = f"R{rule.upper().strip(' R'):0>2}"
        hint = f"did you mean {meant}?" if meant in RULES else "remove it"
        return [Problem(path, "there is no such rule", hint, allowed=(f"{RULES[0]} to {RULES[-1]}",))]
    found = []
    if waiver.reason.strip() in ("", PLACEHOLDER["reason"]):
        reason, good = "a waiver needs its reason", PLACEHOLDER["reason"]
        found.append(Problem(join(path, "reason"), reason, value=waiver.reason, good=good))
    if last_day(waiver.expires) is None:
        good = PLACEHOLDER["expires"]
        found.append(
            Problem(join(path, "expires"), "it is not a day", value=waiver.expires, allowed=(good,), good=good)
        )
    return found


def last_day(expires: object) -> datetime.date | None:
    """Return the day, or None when it is no day of the form ``YYYY-MM-DD``."""
    found = _day(expires)
    try:
        # Python also reads 20270331 and 2027-W13-3, which other tools do not.
        return datetime.date.fromisoformat(found) if isinstance(found, str) and _DAY.fullmatch(found) else None
    except ValueError:
        return None
