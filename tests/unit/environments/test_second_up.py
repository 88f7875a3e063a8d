"""A second ``up`` without a change changes nothing, whatever the order of the config."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import full_environments
import pytest
from engine.simulated_aws import diff_response
from golden import ROOT
from recordings import recorded

from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.assumptions import Assumptions, of_stack
from trainium_eks.plan.recording.process import record

PRODUCTION = ROOT / "examples" / "production"
EMPTY_AND_KEPT = ("tags", "rules[0].filter.prefix", "rules[1].filter.prefix")
"""Empty inputs of AWS types that its provider takes for "none": tags, and the prefix of every object."""


def _empty(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _empty(item, f"{path}.{name}".removeprefix("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _empty(item, f"{path}[{index}]")
    if value in ({}, [], "", None):
        yield path


def _environment(name: str) -> Graph:
    if name in ("network", "cluster"):
        answers = of_stack(PRODUCTION / name, "prod") or Assumptions()
        return record(PRODUCTION / name, "prod", assumptions=answers)
    return full_environments.recorded(name.removesuffix(" full")) if name.endswith(" full") else recorded(name)


@pytest.mark.parametrize("name", ["dev", "gpu", "prod", "dev full", "gpu full", "prod full", "network", "cluster"])
def test_a_second_up_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = [each for each in _environment(name).resources if each.custom]
    assert [each.urn for each in found if diff_response.answer(each, each.inputs).diffs] == []
    empty = {(each.type, path) for each in found if each.type.startswith("aws:") for path in _empty(each.inputs)}
    assert {each for each in empty if each[1] not in EMPTY_AND_KEPT} == set()


def _people(letters: str) -> list[str]:
    return [f"arn:aws:iam::123456789012:role/{each}" for each in letters]


SEVERAL: Mapping[str, Any] = {
    "allowedAccountIds": ["210987654321", "123456789012"],
    "tags": {"b": "1", "a": "2"},
    "cluster": {
        "endpoint": {"publicAccessCidrs": ["203.0.113.0/24", "198.51.100.0/24"]},
        "adminPrincipals": _people("ba"),
    },
    "namespaces": [
        {"name": name, "queues": ["test"], "principals": _people(letters), "trainingUserId": user}
        for user, name, letters in ((1000, "training", "dc"), (1001, "another", "fe"))
    ],
    "budget": {"alert": {"monthlyUsd": 1000, "emails": ["b@example.com", "a@example.com"]}},
}
"""Several of what has one entry in dev."""
IN_ORDER = ("network", "existingNetwork")
"""Keys in which an order means something: the first zone, the first subnet."""


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _turned(item) for name, item in reversed(value.items())}
    return [_turned(item) for item in reversed(value)] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("stack", "several"), [("dev", SEVERAL), ("gpu", {}), ("prod", {})], ids=["dev", "gpu", "prod"]
)
def test_the_order_of_what_has_none_changes_no_resource(stack: str, several: Mapping[str, Any]) -> None:
    given = {f"trainium-eks:{key}": json.dumps(value) for key, value in several.items()}

    def turned(config: Mapping[str, str]) -> dict[str, str]:
        return {
            key: json.dumps(_turned(json.loads(text)))
            if text[:1] in "[{" and key.partition(":")[2] not in IN_ORDER
            else text
            for key, text in {**config, **given}.items()
        }

    one, other = (
        full_environments.changed(stack, lambda config: {**config, **given}),
        full_environments.changed(stack, turned),
    )
    assert [(each.urn, each.inputs) for each in one.resources] == [(each.urn, each.inputs) for each in other.resources]
