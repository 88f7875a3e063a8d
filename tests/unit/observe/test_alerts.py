"""Each alert fires in one case and stays silent in others close to it, computed by a real promtool; it has a page, and
what the pages tell people to type can be typed."""

import json
import re
from pathlib import Path

import promtool
import pytest
import yaml
from command_lines import parse, words
from fleet_series import between, constant, node, of_row
from promtool import PRICES
from served_series import unknown

from trainium_eks.model.alerts import AlertSettings, validate
from trainium_eks.observe import rules
from trainium_eks.observe.alerts import runbook

CASES = yaml.safe_load((Path(__file__).parent / "alert_cases.yaml").read_text())
SEVERITIES = rules.severities()
TEXTS = {
    rule["alert"]: rule["annotations"] for group in rules.alerts(AlertSettings(), "STACK") for rule in group["rules"]
}


def summary_of(alert, labels):
    """The text of a firing alert, with its labels filled in; a silent one has no text."""
    if not labels:
        return ""
    text = re.sub(r"{{ if not .*?{{ end }}", "", TEXTS[alert]["summary"])
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda place: labels[place[1]], text)


@pytest.mark.parametrize("alert", CASES)
def test_alert_fires_only_in_its_cases(alert, tool, tmp_path):
    trials = []
    for what, case in CASES[alert].items():
        expected = [(at, None, "") for at in case.get("silent_at", ())]
        labels = case.get("labels")
        text = case.get("summary") or summary_of(alert, labels)
        expected.append((case["at"], labels and {**labels, "severity": SEVERITIES[alert]}, text))
        trials.append((what, of_row(case), expected))
    promtool.check(tool, tmp_path, promtool.rules_with(alert), trials)


def test_every_alert_has_a_firing_and_a_silent_case():
    assert CASES.keys() == SEVERITIES.keys()
    for alert, cases in CASES.items():
        assert any("labels" in case for case in cases.values()), alert
        assert any("labels" not in case or "silent_at" in case for case in cases.values()), alert


def test_promtool_accepts_the_rules(tool, tmp_path):
    settings = AlertSettings(runbook_url="https://example.org/alerts.md")
    groups = [*rules.recording(PRICES), *rules.alerts(settings, "prod")]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": groups}))
    promtool.call(tool, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", cwd=tmp_path)


def test_rules_query_only_served_or_recorded_series(server):
    groups = [*rules.recording(PRICES), *rules.alerts(AlertSettings(), "prod")]
    queries = [rule["expr"] for group in groups for rule in group["rules"]]
    assert [wrong for query in queries for wrong in unknown(server, query)] == []


def test_alert_has_a_next_command_and_a_runbook_url():
    def annotations(settings):
        found = [rule for group in rules.alerts(settings, "prod") for rule in group["rules"]]
        return next(rule["annotations"] for rule in found if rule["alert"] == "GangStuck")

    said = annotations(AlertSettings(runbook_url="https://example.org/alerts.md"))
    assert said["next"] == "trn status {{ $labels.job_name }} --namespace {{ $labels.namespace }} --stack prod"
    assert said["doctor"] == "trn doctor GangStuck"
    assert said["runbook_url"] == "https://example.org/alerts.md#gangstuck"
    assert "runbook_url" not in annotations(AlertSettings())


def test_every_threshold_is_used_and_an_unfilled_placeholder_is_refused(monkeypatch, tmp_path):
    places = {*re.findall(r"<(\w+)>", (rules.FOLDER / "alerts.yaml").read_text())}
    stems = {place.rpartition("_")[0] for place in places}
    assert {name for name in AlertSettings.model_fields if name.rpartition("_")[0] not in stems} == {"runbook_url"}
    (tmp_path / "alerts.yaml").write_text("groups: [{name: a, rules: [{alert: A, expr: a > <idle_minuts>}]}]")
    monkeypatch.setattr(rules, "FOLDER", tmp_path)
    monkeypatch.setattr(rules, "_read", rules._read.__wrapped__)
    with pytest.raises(ValueError, match=r"nobody fills <idle_minuts> in 'a > <idle_minuts>'.* idle_minutes,"):
        rules.alerts(AlertSettings(), "prod")


def test_alert_texts_have_costs_and_thresholds_of_the_settings(tool, tmp_path):
    def check(name, settings, text, *trials):
        promtool.check(tool, tmp_path, promtool.rules_with(name, settings, text), trials)

    away, broken = between(10, 900, 0, before=1), {"node": "n1", "severity": "critical"}
    said = "EKS' node repair should have replaced it after 30."
    priced = ("56m", broken, f"{said} It costs 21.50 USD an hour meanwhile.")
    known = ("a known price", node("n1", ready=away), [priced])
    unknown_price = ("none", node("n1", kind="trn9.48xlarge", ready=away), [("56m", broken, said)])
    check("NodeNotRepaired", None, "description", known, unknown_price)
    text = "For 30 minutes no pod has asked for a device of them. They cost 43.00 USD an hour."
    fires = ("31m", {"node_group": "ng1", "severity": "warning"}, text)
    check("AcceleratorsIdle", None, "description", ("two", {**node("n1"), **node("n2")}, [fires]))
    fires = ("1m", {"node": "g1", "gpu": "3", "severity": "critical"}, "GPU 3 of g1 reported XID 31")
    xids = AlertSettings(hardware_xids=(31, 32))
    check("GpuXidError", xids, "summary", ("31", {'DCGM_FI_DEV_XID_ERRORS{node="g1",gpu="3"}': constant(31)}, [fires]))
    assert validate(AlertSettings()) == []


PAGES = runbook.sections()
SECTIONS = ["**Look:**", "**Mend.**", "**Cost of waiting.**"]
COMMENT = re.compile(r"\s+# .*$")


def typed(text):
    """The lines of a page's console blocks, without comments."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [COMMENT.sub("", line) for block in blocks for line in block.splitlines()]


NEXT = [re.sub(r"{{.*?}}", "x", texts["next"]) for texts in TEXTS.values()]
ON_PAGES = [each for text in PAGES.values() for each in re.findall(r"`(trn \w[^`]* [^`]*)`", text)]
COMMANDS = sorted({each.removeprefix("trn ") for each in (*ON_PAGES, *NEXT) if each.startswith("trn ")})
"""Beside those in console blocks, which are read as docs/alerts.md."""


@pytest.mark.parametrize("name", sorted(PAGES))
def test_runbook_page_has_every_section_and_two_commands(name):
    means, *rest = PAGES[name].strip().split("\n\n")
    assert len(means) > 40
    assert [found for part in rest for found in re.findall(r"^\*\*[^*]+\*\*", part, re.MULTILINE)] == SECTIONS
    assert len(typed(PAGES[name])) >= 2
    assert all(len(line) <= 120 for line in PAGES[name].splitlines())
    first = TEXTS[name]["next"].split()[:2]
    assert any(line.split()[:2] == first for line in typed(PAGES[name])), TEXTS[name]["next"]


@pytest.mark.parametrize("command", COMMANDS)
def test_runbook_command_of_trn_parses(command):
    assert parse(words(command.replace("NODES", "1")))


def test_every_alert_has_a_page_with_a_one_sentence_summary():
    assert PAGES.keys() == rules.severities().keys()
    assert runbook.about("ExporterDown") == "An exporter does not answer Prometheus."
    assert all(runbook.about(name).endswith(".") and "\n" not in runbook.about(name) for name in PAGES)
