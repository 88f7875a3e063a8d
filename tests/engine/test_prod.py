"""The prod stack on a real engine: built, given Karpenter for Cluster Autoscaler, and kept from being destroyed.

The steps share one stack and run in their order.
"""

import pytest
from engine import same
from engine.rig import Config, Rig, called, succeeded, why_not

from trainium_eks.plan.differences.diff import compare

if missing := why_not():
    pytest.skip(missing, allow_module_level=True)


def karpenter(config: Config) -> None:
    """Karpenter for Cluster Autoscaler, with a pool of accelerators, and Amazon Managed Grafana besides."""
    pool = {"name": "inference", "instanceType": "inf2.48xlarge", "maxNodes": 2}
    config["trainium-eks:autoscaling"] = {"karpenter": {"acceleratorPools": [pool]}}
    config["trainium-eks:observability"]["grafana"] = {"managed": {}}


def assert_as_recorded(rig: Rig) -> None:
    states = {state["urn"]: state for state in rig.resources("prod")}
    assert list(same.differences(rig.recorded("prod"), states)) == []


def test_it_is_built_as_recorded_and_a_second_update_changes_nothing(rig: Rig) -> None:
    rig.begin("prod")
    succeeded(rig.up("prod"))
    assert_as_recorded(rig)
    assert succeeded(rig.up("prod", "--expect-no-changes")).changes() == {}


def test_karpenter_comes_and_cluster_autoscaler_goes_and_nothing_is_replaced(rig: Rig) -> None:
    before = rig.recorded("prod")
    rig.configure("prod", karpenter)
    planned = compare(before, rig.recorded("prod"))

    run = succeeded(rig.preview("prod"))
    custom = {step.name for step in run.steps if step.custom}
    for kind in ("create", "update", "replace", "delete"):
        assert {called(item.resource.urn) for item in planned.of(kind)} == run.of(kind) & custom, kind
    assert run.of("replace") == set()
    assert {name for name in run.of("delete") if "autoscaler" not in name} == set()

    assert succeeded(rig.up("prod")).of("replace") == set()
    assert_as_recorded(rig)
    assert succeeded(rig.up("prod", "--expect-no-changes")).changes() == {}


def test_what_is_protected_stops_a_destroy_before_anything_is_deleted(rig: Rig) -> None:
    before = rig.inventory()
    code, said = rig.destroy_after_preview("prod")
    assert code != 0
    assert "protected" in said
    assert rig.inventory() == before


def test_a_destroy_without_preview_leaves_what_is_protected(rig: Rig) -> None:
    """Everything else goes, which is why docs/deploying.md warns of it."""
    before = rig.inventory()
    protected = {state["urn"] for state in rig.resources("prod") if state.get("protect")}
    protected &= {thing["urn"] for thing in before}
    assert {called(urn).split()[0] for urn in protected} >= {"Bucket", "Cluster", "LustreFileSystem"}
    assert rig.destroy("prod").code != 0
    left = {thing["urn"] for thing in rig.inventory()}
    assert protected <= left
    assert len(left) < len(before)
