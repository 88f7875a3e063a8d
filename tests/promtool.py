"""Rules under test, computed by `promtool test rules` from series that are written down."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe import rules

PRICES = {"trn1.32xlarge": 21.5, "p5.48xlarge": 55.04}

Series = Mapping[str, str]
"""Series to its values, one each half minute from 0 on: ``1x40`` is 1 forty-one times, ``0+2x40`` grows by 2."""

Samples = Mapping[str, Mapping[str, float]]
"""What must come out (labels to value) of an expression, after a time and a blank when it is not the first minute."""

Expected = tuple[str, Mapping[str, str] | None, str]
"""When an alert must fire, its labels and its one text; without labels it must be silent."""

Trial = tuple[str, Series, Samples | Sequence[Expected]]
"""A name, series of exporters, and what the rules must make of them."""


def rules_with(alert, settings=None, text="summary"):
    """The recording rules, and one alert with one of its texts, as its summary: promtool compares all that it has."""
    found = [rule for group in rules.alerts(settings or AlertSettings(), "prod") for rule in group["rules"]]
    rule = next(rule for rule in found if rule["alert"] == alert)
    one = {**rule, "annotations": {"summary": rule["annotations"][text]}}
    return [*rules.recording(PRICES), {"name": "alerts", "interval": "30s", "rules": [one]}]


def check(tool, folder, groups, trials):
    """Fails with promtool's words, and the trial's name, where the rules compute anything else; an alert is the last
    of the rules."""
    alert = groups[-1]["rules"][-1].get("alert", "")
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [_test(alert, *trial) for trial in trials],
    }
    (folder / "rules.yaml").write_text(json.dumps({"groups": groups}))
    (folder / "tests.yaml").write_text(json.dumps(tests))
    call(tool, "test", "rules", "tests.yaml", cwd=folder)


def _test(alert, name, series, expected):
    values = [{"series": each, "values": series[each]} for each in series]
    test = {"name": name, "interval": "30s", "input_series": values}
    if isinstance(expected, Mapping):
        return {**test, "promql_expr_test": [_sample(*each) for each in expected.items()]}
    return {**test, "alert_rule_test": [{"alertname": alert, **_expected(*each)} for each in expected]}


def call(tool, *arguments, cwd):
    done = subprocess.run([tool, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def _sample(asked, expected):
    timed = re.fullmatch(r"(\d+m) (.*)", asked)
    at, expression = timed.groups() if timed else ("1m", asked)
    # The result of a function has no name.
    name = "" if "(" in expression else expression.partition("{")[0]
    samples = [{"labels": f"{name}{labels}", "value": value} for labels, value in expected.items()]
    return {"eval_time": at, "expr": expression, "exp_samples": samples}


def _expected(at, labels, summary):
    firing = {"exp_labels": labels, "exp_annotations": {"summary": summary}}
    return {"eval_time": at, "exp_alerts": [] if labels is None else [firing]}
