"""Firing alerts in Prometheus' answer to ``/api/v1/alerts``, in order of urgency."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.model.validation.parsing import MISSHAPEN

_ORDER = ("critical", "warning")
_ALWAYS = frozenset({"Watchdog", "InfoInhibitor"})
"""Alerts of kube-prometheus-stack that fire to show that alerts arrive, or to hold others back."""


@dataclass(frozen=True)
class Firing:
    """One alert that fires, or will if nothing changes."""

    name: str
    state: str
    """``firing`` or ``pending``."""
    severity: str
    since: str
    """RFC 3339: time since when its expression has held."""
    labels: Mapping[str, str]
    """Labels without its name and its severity."""
    annotations: Mapping[str, str]
    """``summary``, ``description`` and this library's ``next``."""

    @property
    def summary(self) -> str:
        """Return the summary, one line."""
        return self.annotations.get("summary") or self.annotations.get("description") or self.name

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {
            "name": self.name,
            "state": self.state,
            "severity": self.severity,
            "since": self.since,
            "labels": dict(self.labels),
            "summary": self.summary,
            "description": self.annotations.get("description", ""),
            "next": self.annotations.get("next", ""),
        }


def read(answer: Mapping[str, Any]) -> list[Firing]:
    """Return all alerts of an answer: firing before pending, critical before others, the oldest first.

    An answer of another shape is a :class:`ValueError`.
    """
    try:
        found = [_one(each) for each in answer["data"]["alerts"]]
    except MISSHAPEN as error:
        raise ValueError(f"not an answer of Prometheus' /api/v1/alerts: {error!r}") from None
    return sorted((each for each in found if each.name not in _ALWAYS), key=_urgency)


def _one(alert: Mapping[str, Any]) -> Firing:
    labels = {name: value for name, value in alert["labels"].items() if name not in ("alertname", "severity")}
    return Firing(
        str(alert["labels"]["alertname"]),
        str(alert["state"]),
        str(alert["labels"].get("severity", "")),
        str(alert["activeAt"]),
        labels,
        alert.get("annotations") or {},
    )


def _urgency(alert: Firing) -> tuple[bool, int, str, str, list[tuple[str, str]]]:
    severity = _ORDER.index(alert.severity) if alert.severity in _ORDER else len(_ORDER)
    return alert.state != "firing", severity, alert.since, alert.name, sorted(alert.labels.items())
