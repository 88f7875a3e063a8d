"""Prometheus' rules, in its own format: ``recording.yaml`` and ``alerts.yaml`` with places in ``<…>``, filled here."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.model.validation.parsing import read_table

Group = dict[str, Any]
"""Rules that are computed one after the other: each sees the results of earlier ones at the same moment."""

FOLDER = Path(__file__).parent
_PLACE = re.compile(r"<(\w+)>")
_MEANING = re.compile(r"^  # (.+)\n  - record: (.+)$", re.MULTILINE)
_SECONDS = {"minutes": 60, "hours": 3600, "days": 86_400}


def recording(hourly_usd: Mapping[str, float]) -> list[Group]:
    """Return the recording rules, as ``groups`` of a rule file.

    A type that is missing from ``hourly_usd`` (instance type to USD an hour) costs nothing here, without a notice on
    any panel.
    """
    prices = [{"instance_type": name, "hourly_usd": f"{price:g}"} for name, price in sorted(hourly_usd.items())]
    found = []
    for group in _read("recording"):
        rules = [(rule, prices if "<hourly_usd>" in rule["expr"] else [{}]) for rule in group["rules"]]
        found.append({**group, "rules": [_filled(rule, places) for rule, each in rules for places in each]})
    return found


def alerts(settings: AlertSettings, stack: str) -> list[Group]:
    """Return the alerts of a stack, as ``groups`` of a rule file. They need the series of :func:`recording`."""
    found: list[Group] = _filled(_read("alerts"), {**_thresholds(settings), "stack": stack})
    for rule in (rule for group in found for rule in group["rules"]):
        rule["annotations"]["doctor"] = f"trn doctor {rule['alert']}"
        if settings.runbook_url:
            rule["annotations"]["runbook_url"] = f"{settings.runbook_url}#{rule['alert'].lower()}"
    return found


def severities() -> dict[str, str]:
    """Return each alert's name with its severity, ``critical`` or ``warning``, in the order of the file."""
    return {rule["alert"]: rule["labels"]["severity"] for group in _read("alerts") for rule in group["rules"]}


def meanings() -> dict[str, str]:
    """Return each recorded series with its meaning, which is the comment over its rule."""
    return {name: meaning for meaning, name in _MEANING.findall((FOLDER / "recording.yaml").read_text("utf-8"))}


@functools.cache
def _read(name: str) -> list[Group]:
    """Return the groups of a file, expressions without the margins of their lines."""
    groups: list[Group] = read_table(FOLDER / f"{name}.yaml")["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        rule["expr"] = "\n".join(line.strip() for line in rule["expr"].splitlines())
    return groups


def _thresholds(settings: AlertSettings) -> dict[str, str]:
    """Return the text of each threshold's places: as it is, and in seconds or as a ratio."""
    found = {}
    for name, value in settings:
        stem, _, unit = name.rpartition("_")
        found[name] = str(value)
        if unit in _SECONDS:
            found[f"{stem}_seconds"] = str(value * _SECONDS[unit])
        elif unit == "percent":
            found[f"{stem}_ratio"] = f"{value / 100:g}"
    return found | {"hardware_xids": " or DCGM_FI_DEV_XID_ERRORS == ".join(map(str, settings.hardware_xids))}


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    """Return rules with their placeholders filled. Raises ValueError for a placeholder without a value."""
    if isinstance(value, dict):
        return {key: _filled(each, places) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, places) for each in value]
    if unknown := {*_PLACE.findall(value)} - places.keys():
        known = ", ".join(sorted(places)) or "none"
        raise ValueError(f"{FOLDER}: nobody fills <{min(unknown)}> in {value!r}; places that are filled: {known}")
    return _PLACE.sub(lambda place: places[place[1]], value)
