"""What each component registers, held whole: with the least arguments, and with those of its variants."""

import golden_components
import pytest
from dry_run import planned_alike
from golden_components import VARIANTS
from kubernetes_schemas import schema_faults


@pytest.mark.parametrize("name", VARIANTS)
def test_component_registers_its_golden_resources(record, monkeypatch, name):
    monkeypatch.chdir(golden_components.TESTS.parent)  # charts are named from the working directory
    found = golden_components.variants(name, lambda program: planned_alike(record, program))
    faults = [fault for graph in found.values() for fault in schema_faults(graph)]
    assert [each for each in faults if "no schema for karpenter" not in each] == []
    assert golden_components.golden_of(found) == golden_components.expected(name), (
        "`make golden` accepts the difference"
    )
