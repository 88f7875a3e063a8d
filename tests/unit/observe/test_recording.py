"""What the recording rules compute, by a real promtool, from series as exporters give them."""

from pathlib import Path

import promtool
import pytest
import yaml
from fleet_series import node, of_row
from promtool import PRICES

from trainium_eks.observe import rules

ROWS = yaml.safe_load((Path(__file__).parent / "recordings.yaml").read_text())
N1 = node("n1")
TRIALS = {what: (of_row(row), row["computes"]) for what, row in ROWS.items()} | {
    "two copies of kube-state-metrics make no second node": (
        {**N1, **{key.replace("{", '{instance="b",', 1): values for key, values in N1.items()}},
        {
            "trn:devices:total": {'{node_group="ng1", instance_type="trn1.32xlarge"}': 16},
            "trn:usd_per_hour": {'{node_group="ng1"}': 21.5},
        },
    )
}


@pytest.mark.parametrize("trial", TRIALS)
def test_recording_rules_compute(trial, tool, tmp_path):
    promtool.check(tool, tmp_path, rules.recording(PRICES), [(trial, *TRIALS[trial])])


def test_every_recorded_name_is_explained():
    recorded = [rule["record"] for group in rules.recording(PRICES) for rule in group["rules"]]
    assert {*recorded} == rules.meanings().keys()
    assert {name: recorded.count(name) for name in recorded if recorded.count(name) > 1} == {
        "trn:instance_usd_per_hour": len(PRICES)
    }
