"""Each alert fires in one case and stays silent in others close to it, computed by a real promtool."""

import json
import re
from pathlib import Path

import promtool
import pytest
from alert_cases import CASES, Case
from fleet_series import between, constant, node
from promtool import PRICES, Expected, Trial
from served_series import unknown

from trainium_eks.model.alerts import AlertSettings, validate
from trainium_eks.observe import rules

SEVERITIES = rules.severities()


def trial_of(case: Case) -> Trial:
    fires = [({**labels, "severity": SEVERITIES[case.alert]}, case.summary) for labels in case.labels]
    return Trial(case.what, case.series, alerts=[Expected(case.alert, case.at, fires)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.what}")
def test_an_alert(case: Case, tool: Path, tmp_path: Path) -> None:
    promtool.check(tool, tmp_path, promtool.groups(case.alert), trial_of(case))


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert {case.alert for case in CASES if case.labels} == SEVERITIES.keys()
    assert {case.alert for case in CASES if not case.labels} == SEVERITIES.keys()


def test_prometheus_takes_the_rules_and_their_templates(tool: Path, tmp_path: Path) -> None:
    settings = AlertSettings(runbook_url="https://example.org/alerts.md")
    groups = [*rules.recording(PRICES), *rules.alerts(settings, "prod")]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": groups}))
    done = promtool.call(tool, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_read_only_what_somebody_serves_or_records() -> None:
    groups = [*rules.recording(PRICES), *rules.alerts(AlertSettings(), "prod")]
    queries = [rule["expr"] for group in groups for rule in group["rules"]]
    assert [wrong for query in queries for wrong in unknown(query, rules.meanings())] == []


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


@pytest.mark.parametrize(
    ("kind", "cost"),
    [("trn1.32xlarge", " It costs 21.50 USD an hour meanwhile."), ("trn9.48xlarge", "")],
    ids=["a known price", "no known price"],
)
def test_a_broken_node_says_what_it_costs(kind: str, cost: str, tool: Path, tmp_path: Path) -> None:
    series = node("n1", kind=kind, ready=between(10, 900, 0, before=1))
    firing = ({"node": "n1", "severity": "critical"}, f"EKS' node repair should have replaced it after 30.{cost}")
    trial = Trial("cost", series, alerts=[Expected("NodeNotRepaired", "56m", [firing])])
    promtool.check(tool, tmp_path, promtool.groups("NodeNotRepaired", text="description"), trial)


def test_idle_nodes_say_what_they_cost(tool: Path, tmp_path: Path) -> None:
    text = "For 30 minutes no pod has asked for a device of them. They cost 43.00 USD an hour."
    firing = ({"node_group": "ng1", "severity": "warning"}, text)
    trial = Trial("cost", {**node("n1"), **node("n2")}, alerts=[Expected("AcceleratorsIdle", "31m", [firing])])
    promtool.check(tool, tmp_path, promtool.groups("AcceleratorsIdle", text="description"), trial)


def test_thresholds_are_those_of_the_settings(tool: Path, tmp_path: Path) -> None:
    trial = Trial(
        "an XID of one's own",
        {'DCGM_FI_DEV_XID_ERRORS{node="g1",gpu="3"}': constant(31)},
        alerts=[
            Expected(
                "GpuXidError",
                "1m",
                [({"node": "g1", "gpu": "3", "severity": "critical"}, "GPU 3 of g1 reported XID 31")],
            )
        ],
    )
    promtool.check(tool, tmp_path, promtool.groups("GpuXidError", AlertSettings(hardware_xids=(31,))), trial)


def test_the_defaults_are_in_order() -> None:
    assert validate(AlertSettings()) == []
