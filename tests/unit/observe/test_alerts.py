"""Each alert fires in one case and stays silent in others close to it, computed by a real promtool."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import promtool
import pytest
from alert_cases import CASES
from fleet_series import between, constant, node
from prometheus_server import Server
from promtool import PRICES, Expected, Trial
from served_series import unknown

from trainium_eks.model.alerts import AlertSettings, validate
from trainium_eks.observe import rules

SEVERITIES = rules.severities()
SUMMARIES = {
    rule["alert"]: rule["annotations"]["summary"]
    for group in rules.alerts(AlertSettings(), "prod")
    for rule in group["rules"]
}


def summary_of(alert: str, labels: Mapping[str, str]) -> str:
    """The text of an alert that fires, with its labels in their places; a silent one has none."""
    if not labels:
        return ""
    text = re.sub(r"{{ if not .*?{{ end }}", "", SUMMARIES[alert])
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda place: labels[place[1]], text)


@pytest.mark.parametrize("alert", CASES)
def test_an_alert(alert: str, tool: Path, tmp_path: Path) -> None:
    trials: list[Trial] = []
    for what, case in CASES[alert].items():
        expected: list[Expected] = [(at, None, "") for at in case.silent_at]
        labels = None if case.labels is None else {**case.labels, "severity": SEVERITIES[alert]}
        expected.append((case.at, labels, case.summary or summary_of(alert, case.labels or {})))
        trials.append((what, case.series, expected))
    promtool.check(tool, tmp_path, promtool.rules_with(alert), trials)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert CASES.keys() == SEVERITIES.keys()
    for alert, cases in CASES.items():
        assert any(case.labels for case in cases.values()), alert
        assert any(case.labels is None or case.silent_at for case in cases.values()), alert


def test_prometheus_takes_the_rules_and_their_templates(tool: Path, tmp_path: Path) -> None:
    settings = AlertSettings(runbook_url="https://example.org/alerts.md")
    groups = [*rules.recording(PRICES), *rules.alerts(settings, "prod")]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": groups}))
    promtool.call(tool, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", cwd=tmp_path)


def test_rules_read_only_what_somebody_serves_or_records(server: Server) -> None:
    groups = [*rules.recording(PRICES), *rules.alerts(AlertSettings(), "prod")]
    queries = [rule["expr"] for group in groups for rule in group["rules"]]
    assert [wrong for query in queries for wrong in unknown(server, query)] == []


def test_an_alert_says_what_to_type_and_where_to_read() -> None:
    def annotations(settings: AlertSettings) -> dict[str, str]:
        found = [rule for group in rules.alerts(settings, "prod") for rule in group["rules"]]
        return next(rule["annotations"] for rule in found if rule["alert"] == "GangStuck")

    said = annotations(AlertSettings(runbook_url="https://example.org/alerts.md"))
    assert said["next"] == "trn status {{ $labels.job_name }} --namespace {{ $labels.namespace }} --stack prod"
    assert said["doctor"] == "trn doctor GangStuck"
    assert said["runbook_url"] == "https://example.org/alerts.md#gangstuck"
    assert "runbook_url" not in annotations(AlertSettings())


def test_every_threshold_is_read_by_an_alert() -> None:
    places = {*re.findall(r"<(\w+)>", (rules.FOLDER / "alerts.yaml").read_text())}
    stems = {place.rpartition("_")[0] for place in places}
    assert {name for name in AlertSettings.model_fields if name.rpartition("_")[0] not in stems} == {"runbook_url"}


def test_a_place_that_nobody_fills_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text("groups: [{name: a, rules: [{alert: A, expr: a > <idle_minuts>}]}]")
    monkeypatch.setattr(rules, "FOLDER", tmp_path)
    monkeypatch.setattr(rules, "_read", rules._read.__wrapped__)
    with pytest.raises(ValueError, match=r"nobody fills <idle_minuts> in 'a > <idle_minuts>'.* idle_minutes,"):
        rules.alerts(AlertSettings(), "prod")


def test_texts_say_what_it_costs_and_thresholds_are_those_of_the_settings(tool: Path, tmp_path: Path) -> None:
    def check(name: str, settings: AlertSettings | None, text: str, *trials: Trial) -> None:
        promtool.check(tool, tmp_path, promtool.rules_with(name, settings, text), trials)

    away, broken = between(10, 900, 0, before=1), {"node": "n1", "severity": "critical"}
    said = "EKS' node repair should have replaced it after 30."
    priced = ("56m", broken, f"{said} It costs 21.50 USD an hour meanwhile.")
    check(
        "NodeNotRepaired",
        None,
        "description",
        ("a known price", node("n1", ready=away), [priced]),
        ("no known price", node("n1", kind="trn9.48xlarge", ready=away), [("56m", broken, said)]),
    )
    text = "For 30 minutes no pod has asked for a device of them. They cost 43.00 USD an hour."
    fires = ("31m", {"node_group": "ng1", "severity": "warning"}, text)
    check("AcceleratorsIdle", None, "description", ("two", {**node("n1"), **node("n2")}, [fires]))
    fires = ("1m", {"node": "g1", "gpu": "3", "severity": "critical"}, "GPU 3 of g1 reported XID 31")
    xids = AlertSettings(hardware_xids=(31, 32))
    check("GpuXidError", xids, "summary", ("31", {'DCGM_FI_DEV_XID_ERRORS{node="g1",gpu="3"}': constant(31)}, [fires]))
    assert validate(AlertSettings()) == []
