"""The dev stack's life on a real engine, step after step, and what the other stacks would be.

The steps share one stack and run in their order; each takes 5 to 20 seconds.
"""

from dataclasses import dataclass

import pytest
from engine import same
from engine.config_changes import CHANGES, GROUP, REPLACED, SEATS, expected, kubernetes_version, of_vision, second_queue
from engine.rig import Rig, called, succeeded

from trainium_eks.plan.graph import Graph
from trainium_eks.plan.resource_types.rows.eks import NODE_GROUP

OURS = "kubernetes trn-dev-cluster-kubernetes"
"""The Kubernetes provider that everything in the cluster is made with."""

COMPONENTS_OWN = "kubernetes trn-dev-cluster-eks-eks-k8s"
"""The Kubernetes provider that pulumi-eks makes for itself; nothing of ours is made with it."""


@dataclass
class Life:
    """The stack as the steps go on."""

    rig: Rig
    built: Graph
    """Recorded with the config that is built."""


@pytest.fixture(scope="module")
def life(rig):
    rig.begin("dev", second_queue)
    return Life(rig, rig.recorded("dev"))


@pytest.mark.parametrize("stack", ["gpu", "prod"])
def test_first_preview_plans_the_recorded_resources(rig, stack):
    rig.begin(stack)
    assert_planned_as_recorded(rig, stack)


def test_first_preview_of_dev_plans_the_recorded_resources(life):
    assert_planned_as_recorded(life.rig, "dev")
    assert life.rig.inventory() == ()


def test_failed_update_shows_the_clouds_error_and_the_next_completes_it(life):
    def things():
        return {(thing["type"], thing["id"]) for thing in life.rig.inventory()}

    run = life.rig.up("dev", failing=NODE_GROUP.token)
    assert run.code != 0
    assert "ThrottlingException: Rate exceeded" in run.messages
    assert "Traceback" not in run.messages
    assert NODE_GROUP.token in run.messages
    before = things()
    run = succeeded(life.rig.up("dev", failing=NODE_GROUP.token))
    assert set(run.changes()) == {"create"}
    assert before < things()


def test_engine_creates_exactly_the_recorded_resources(life):
    same.assert_made(life.built, life.rig)
    in_the_clouds = {thing["urn"] for thing in life.rig.inventory()}
    custom = {resource.urn for resource in life.built.resources if resource.custom}
    assert {urn for urn in custom if "pulumi:providers:" not in urn} == in_the_clouds


def test_a_second_update_and_a_refresh_find_nothing_changed(life):
    before = life.rig.inventory()
    assert succeeded(life.rig.up("dev", "--expect-no-changes")).changes() == {}
    assert life.rig.inventory() == before
    assert set(succeeded(life.rig.refresh("dev")).changes()) <= {"refresh"}


@pytest.mark.parametrize("change", CHANGES)
def test_config_change_touches_only_affected_resources(life, change):
    life.rig.configure("dev", second_queue, CHANGES[change])
    run = succeeded(life.rig.preview("dev"))
    planned = life.rig.recorded("dev")
    assert run.changes() == expected(change, life.built, planned)
    same.assert_planned(life.built, planned, run)


def test_unknown_kubeconfig_replaces_no_object(life):
    """pulumi-eks#352: without ``clusterIdentifier`` the provider is replaced, and with it every object."""
    life.rig.configure("dev", second_queue, kubernetes_version)
    run = succeeded(life.rig.preview("dev", forgetful=True))
    assert run.of("replace", "create", "delete") == {COMPONENTS_OWN}
    assert OURS in run.of("update")


def test_all_changes_are_made_in_one_update(life):
    life.rig.configure("dev", second_queue, *CHANGES.values())
    run = succeeded(life.rig.up("dev"))
    assert run.of("replace") == {"Job trn-dev-volumes-directories"} | REPLACED
    assert run.of("delete") == {"Queue trn-dev-volcano-batch"}
    assert run.of("create") == of_vision(life.rig.recorded("dev")) | SEATS | {"Queue trn-dev-volcano-nightly"}
    made = {called(thing["urn"]): thing for thing in life.rig.inventory()}
    assert made[f"NodeGroup {GROUP}-nodes"]["inputs"]["instanceTypes"] == ["trn1n.32xlarge"]
    assert made["LustreFileSystem trn-dev-fsx-file-system"]["outputs"]["storageCapacity"] == 2400
    assert succeeded(life.rig.preview("dev", "--expect-no-changes")).changes() == {}


def test_destroy_leaves_only_the_retained_resources(life):
    kept = {resource.urn for resource in life.rig.recorded("dev").resources if resource.options.retain_on_delete}
    succeeded(life.rig.destroy("dev"))
    assert life.rig.resources("dev") == ()
    left = {thing["urn"] for thing in life.rig.inventory()}
    assert left == {urn for urn in kept if urn.rpartition("$")[2].startswith("aws:")}
    assert {called(urn) for urn in left} == {"Key trn-dev-key-key", "KeyPolicy trn-dev-key-policy"}


def assert_planned_as_recorded(rig, stack):
    run = succeeded(rig.preview(stack))
    assert set(run.changes()) == {"create"}
    states = {step.urn: step.state for step in run.steps}
    assert list(same.differences(rig.recorded(stack, dry_run=True), states, first_preview=True)) == []
