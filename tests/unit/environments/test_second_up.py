"""A second ``up`` without a change changes nothing, whatever the order of the config."""

import json

import full_environments
import pytest
from engine.simulated_aws import diff_response
from golden import ROOT

from trainium_eks.plan.reading import leaves
from trainium_eks.plan.recording.assumptions import Assumptions, of_stack
from trainium_eks.plan.recording.process import record

PRODUCTION = ROOT / "examples" / "production"
EVERY_OBJECT = ("rules[0].filter.prefix", "rules[1].filter.prefix")
"""Empty texts of AWS types that its provider keeps: the prefix of every object of a bucket."""


def _part(name):
    answers = of_stack(PRODUCTION / name, "prod") or Assumptions()
    return record(PRODUCTION / name, "prod", assumptions=answers)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["dev", "gpu", *(pytest.param(each, marks=SLOW) for each in ("prod", "network", "cluster"))]
)
def test_a_second_up_changes_nothing(name, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    graph = full_environments.recorded(name) if name in full_environments.OF_EACH else _part(name)
    found = [each for each in graph.resources if each.custom]
    assert [each.urn for each in found if diff_response.answer(each, each.inputs).diffs] == []
    aws = [(path, value) for each in found if each.type.startswith("aws:") for path, value in leaves(each.inputs)]
    assert {path for path, value in aws if value in ("", [], None)} <= set(EVERY_OBJECT)


SEVERAL = {
    "allowedAccountIds": ["210987654321", "123456789012"],
    "imageCache": None,  # takes one account
    "tags": {"b": "1", "a": "2"},
    "cluster": {"endpoint": {"publicAccessCidrs": ["203.0.113.0/24", "198.51.100.0/24"]}},
    "budget": {"alert": {"monthlyUsd": 1000, "emails": ["b@example.com", "a@example.com"]}},
}
"""Several of what has one entry in dev."""
IN_ORDER = ("network", "existingNetwork")
"""Keys in which an order means something: the first zone, the first subnet."""


def _turned(value):
    if isinstance(value, dict):
        return {name: _turned(item) for name, item in reversed(value.items())}
    return [_turned(item) for item in reversed(value)] if isinstance(value, list) else value


@SLOW
@pytest.mark.parametrize("stack", ["dev", "gpu", "prod"])
def test_reordered_unordered_config_changes_no_resource(stack):
    several = SEVERAL if stack == "dev" else {}
    given = {f"trainium-eks:{key}": json.dumps(value) for key, value in several.items()}

    def turned(key, text):
        means_something = text[:1] not in "[{" or key.partition(":")[2] in IN_ORDER
        return text if means_something else json.dumps(_turned(json.loads(text)))

    one = full_environments.changed(stack, lambda config: {**config, **given})
    other = full_environments.changed(stack, lambda config: {k: turned(k, v) for k, v in {**config, **given}.items()})
    assert [(each.urn, each.inputs) for each in one.resources] == [(each.urn, each.inputs) for each in other.resources]
