"""The waivers of a recorded program, valid ones and stale ones."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainium_eks.model.catalogue.versions import today
from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config import waivers as waiver_model
from trainium_eks.model.validation.config_model import ConfigModelError, read
from trainium_eks.model.validation.problems import Severity, config_set
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import mapping

LONGEST = datetime.timedelta(days=366)
"""Longest time from today to a waiver's last day: every waiver is reviewed at least once a year."""


@dataclass(frozen=True)
class Waiver:
    """One entry of a config's ``waivers``, of any shape, because a foreign program's config is not validated."""

    rule: str
    reason: str
    last_day: datetime.date | None
    """None when the entry names no readable day."""

    @property
    def holds(self) -> bool:
        """Whether the waiver excuses its rule today."""
        return self.last_day is not None and today() <= self.last_day

    @property
    def fault(self) -> str:
        """Return the problem of the waiver's last day and the line that mends it; empty for a sound waiver."""
        again = config_set(f"waivers.{self.rule}.expires", waiver_model.PLACEHOLDER["expires"])
        if self.last_day is None:
            return f"{self.rule}: waived without a last day, so not at all; name one: {again}"
        if not self.holds:
            return f"{self.rule}: the waiver expired on {self.last_day}; mend what it excuses, or renew it: {again}"
        if self.last_day > today() + LONGEST:
            return f"{self.rule}: waived until {self.last_day}, more than a year; name an earlier day: {again}"
        return ""


def of(graph: Graph) -> Mapping[str, Waiver]:
    """Return rule id to the environment's own waiver."""
    given = mapping(graph.config.get("waivers"))
    reasons = waiver_model.reasons(given)
    return {str(rule): Waiver(str(rule), reason, _last_day(given[rule])) for rule, reason in reasons.items()}


def _last_day(waiver: object) -> datetime.date | None:
    return waiver_model.last_day(waiver.get("expires")) if isinstance(waiver, Mapping) else None


def stale(graph: Graph, status: Mapping[str, str], not_judged: Iterable[str]) -> tuple[str, ...]:
    """Return one line for each stale waiver of the environment: it excuses nothing, or its last day is no good.
    ``status`` has each rule's result, ``not_judged`` the rules that no plan can check."""
    own = sorted(of(graph).items())
    useless = {rule: why for rule, _ in own if (why := _useless(rule, status, not_judged))}
    if useless:
        # A check of the config may ask for a waiver although the rule passes: it sees the config, not the resources.
        useless = {rule: why for rule, why in useless.items() if rule not in _acknowledged(graph)}
    lines = ((f"{rule}: {useless[rule]}; remove the waiver" if rule in useless else each.fault) for rule, each in own)
    return tuple(line for line in lines if line)


def _useless(rule: str, status: Mapping[str, str], not_judged: Iterable[str]) -> str:
    if rule in not_judged:
        return "waived, but not judged from a plan"
    if rule not in status:
        return "waived, but nothing asks for it"
    return {"pass": "waived, but the rule passes", "n/a": "waived, but the rule does not apply"}.get(status[rule], "")


def _acknowledged(graph: Graph) -> frozenset[str]:
    """Return the rules that the config's own checks want acknowledged; none for another library's config."""
    try:
        config = read(model.StackConfig, graph.config)
    except ConfigModelError:
        return frozenset()
    return frozenset(each.rule for each in model.validate(config) if each.severity is Severity.ACKNOWLEDGE)
