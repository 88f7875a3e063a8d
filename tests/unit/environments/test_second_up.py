"""A second ``up`` without a change changes nothing."""

from collections.abc import Iterator
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
