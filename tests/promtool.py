"""Rules under test, computed by `promtool test rules` from series that are written down in Python."""

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe import rules
from trainium_eks.observe.rules import Group

PRICES = {"trn1.32xlarge": 21.5, "p5.48xlarge": 55.04}

Series = Mapping[str, str]
"""Series to its values, one each half minute from 0 on: ``1x40`` is 1 forty-one times, ``0+2x40`` grows by 2."""


@dataclass(frozen=True)
class Question:
    """An expression, when it is asked, and what must come out: label set to value."""

    expression: str
    at: str
    samples: Mapping[str, float]


@dataclass(frozen=True)
class Expected:
    """An alert that must fire (or, with no one in ``firing``, must not), each by its labels and its summary."""

    alert: str
    at: str
    firing: Sequence[tuple[Mapping[str, str], str]] = ()


@dataclass(frozen=True)
class Trial:
    """Series, and what is expected of them."""

    name: str
    series: Series
    questions: Sequence[Question] = ()
    alerts: Sequence[Expected] = field(default_factory=tuple)


def groups(alert: str, settings: AlertSettings | None = None, text: str = "summary") -> list[Group]:
    """The recording rules, and one alert with one of its texts, as its summary: promtool compares all that it has."""
    found = [rule for group in rules.alerts(settings or AlertSettings(), "prod") for rule in group["rules"]]
    rule = next(rule for rule in found if rule["alert"] == alert)
    one = {**rule, "annotations": {"summary": rule["annotations"][text]}}
    return [*rules.recording(PRICES), {"name": "alerts", "interval": "30s", "rules": [one]}]


def run(tool: Path, folder: Path, found: Sequence[Group], trials: Iterable[Trial]) -> subprocess.CompletedProcess[str]:
    """Computes the rules for each trial, and compares.

    Args:
        tool: promtool.
        folder: for the files.
        found: the rules.
        trials: what is tried.
    """
    (folder / "rules.yaml").write_text(json.dumps({"groups": found}))
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "group_eval_order": [group["name"] for group in found],
        "tests": [_test(trial) for trial in trials],
    }
    (folder / "tests.yaml").write_text(json.dumps(tests))
    return call(tool, "test", "rules", "tests.yaml", cwd=folder)


def check(tool: Path, folder: Path, found: Sequence[Group], trial: Trial) -> None:
    """Fails with promtool's words where one trial does not hold."""
    done = run(tool, folder, found, [trial])
    assert done.returncode == 0, done.stdout + done.stderr


def call(tool: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Calls promtool."""
    return subprocess.run([tool, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=600)


def _test(trial: Trial) -> dict[str, Any]:
    return {
        "name": trial.name,
        "interval": "30s",
        "input_series": [{"series": series, "values": values} for series, values in trial.series.items()],
        "promql_expr_test": [
            {
                "expr": each.expression,
                "eval_time": each.at,
                "exp_samples": [{"labels": labels, "value": value} for labels, value in each.samples.items()],
            }
            for each in trial.questions
        ],
        "alert_rule_test": [
            {
                "eval_time": each.at,
                "alertname": each.alert,
                "exp_alerts": [
                    {"exp_labels": dict(labels), "exp_annotations": {"summary": summary}}
                    for labels, summary in each.firing
                ],
            }
            for each in trial.alerts
        ],
    }
