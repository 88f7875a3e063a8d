"""The prod stack on a real engine: built, given Karpenter for Cluster Autoscaler, and kept from being destroyed.

The steps share one stack and run in their order.
"""

from engine import same
from engine.rig import called, succeeded


def karpenter(config):
    """Karpenter for Cluster Autoscaler, with a pool of accelerators, and Amazon Managed Grafana."""
    pool = {"name": "inference", "instanceType": "inf2.48xlarge", "maxNodes": 2}
    config["trainium-eks:autoscaling"] = {"karpenter": {"acceleratorPools": [pool]}}
    config["trainium-eks:observability"]["grafana"] = {"managed": {}}


def test_prod_is_built_as_recorded_and_a_second_update_changes_nothing(rig):
    rig.begin("prod")
    succeeded(rig.up("prod"))
    same.assert_made(rig.recorded("prod"), rig)
    assert succeeded(rig.up("prod", "--expect-no-changes")).changes() == {}


def test_switch_from_cluster_autoscaler_to_karpenter_replaces_nothing(rig):
    before = rig.recorded("prod")
    rig.configure("prod", karpenter)
    run = succeeded(rig.preview("prod"))
    same.assert_planned(before, rig.recorded("prod"), run)
    assert run.of("replace") == set()
    assert {name for name in run.of("delete") if "autoscaler" not in name} == set()

    assert succeeded(rig.up("prod")).of("replace") == set()
    same.assert_made(rig.recorded("prod"), rig)
    assert succeeded(rig.up("prod", "--expect-no-changes")).changes() == {}


def test_protected_resources_survive_destroy_even_without_a_preview(rig):
    """Everything else goes then, which is why docs/deploying.md warns of it."""
    before = rig.inventory()
    code, said = rig.says("destroy", "--yes", "--stack", "prod")
    assert code != 0
    assert "protected" in said
    assert rig.inventory() == before
    protected = {state["urn"] for state in rig.resources("prod") if state.get("protect")}
    protected &= {thing["urn"] for thing in before}
    assert {called(urn).split()[0] for urn in protected} >= {"Bucket", "Cluster", "LustreFileSystem"}
    assert rig.destroy("prod").code != 0
    left = {thing["urn"] for thing in rig.inventory()}
    assert protected <= left
    assert len(left) < len(before)
