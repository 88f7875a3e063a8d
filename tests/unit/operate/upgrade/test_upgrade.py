"""Which upgrades there are, what they set, and what they do to a small environment built by hand."""

import json

import pytest
from hand_built import changed, environment

from trainium_eks.model.catalogue import addon_records, versions
from trainium_eks.model.config.stack_config import load
from trainium_eks.model.validation.problems import Severity
from trainium_eks.operate.upgrade.settings import UpgradeTargets, next_version, problems, settings
from trainium_eks.operate.upgrade.steps import DRAIN_SECONDS, disturbance, steps, total_seconds
from trainium_eks.plan.differences import diff
from trainium_eks.plan.resource_types.rows import eks

AMI = "1.35.1-20260312"
PROXY, NEXT_PROXY = "v1.35.2-eksbuild.4", addon_records.KUBE_PROXY.version("1.36")


def config(**sections):
    return load({"region": "us-west-2", "owner": "me", **{key: json.dumps(value) for key, value in sections.items()}})


def group(name, **settings):
    return {"name": name, "instanceType": "trn1.32xlarge", **settings}


PINNED = config(
    cluster={"kubernetesVersion": "1.35", "addons": {"kube-proxy": {"version": PROXY}}},
    nodeGroups=[group("one", releaseVersion=AMI), group("two")],
)
HALFWAY = config(cluster={"kubernetesVersion": "1.36"}, nodeGroups=[group("one", kubernetesVersion="1.35")])
BASED = config(imageRepository={"baseImages": {"trn1": "a.io/b:1"}})
SETTINGS = {
    "what is pinned for the old version goes with a new one": (
        PINNED,
        UpgradeTargets("1.36"),
        {
            "cluster.kubernetes_version": "1.36",
            "node_groups[0].release_version": versions.AMI_RELEASES["1.36"],
            "cluster.addons.kube-proxy.version": NEXT_PROXY,
        },
    ),
    "nodes can be kept": (
        PINNED,
        UpgradeTargets("1.36", keep_nodes=True),
        {
            "cluster.kubernetes_version": "1.36",
            "node_groups[0].kubernetes_version": "1.35",
            "node_groups[1].kubernetes_version": "1.35",
            "cluster.addons.kube-proxy.version": NEXT_PROXY,
        },
    ),
    "and be brought after": (HALFWAY, UpgradeTargets("1.36"), {"node_groups[0].kubernetes_version": "1.36"}),
    "or stay": (HALFWAY, UpgradeTargets("1.36", keep_nodes=True), {}),
    "what is asked by name wins": (
        PINNED,
        UpgradeTargets("1.36", "1.36.2-20260901", {"kube-proxy": "v1.36.1-eksbuild.1"}, {"trn1": "a.io/b:1"}),
        {
            "cluster.kubernetes_version": "1.36",
            "node_groups[0].release_version": "1.36.2-20260901",
            "node_groups[1].release_version": "1.36.2-20260901",
            "cluster.addons.kube-proxy.version": "v1.36.1-eksbuild.1",
            "image_repository.base_images.trn1": "a.io/b:1",
        },
    ),
    "nothing is asked": (PINNED, UpgradeTargets(), {}),
    "it is so already": (PINNED, UpgradeTargets("1.35", addons={"kube-proxy": PROXY}), {}),
    "the image is so already": (BASED, UpgradeTargets(images={"trn1": "a.io/b:1"}), {}),
    "an AMI that one group has": (PINNED, UpgradeTargets(ami=AMI), {"node_groups[1].release_version": AMI}),
}


@pytest.mark.parametrize(("now", "targets", "wanted"), SETTINGS.values(), ids=SETTINGS)
def test_upgrade_changes_the_expected_settings(now, targets, wanted):
    assert {each.path: each.value for each in settings(now, targets)} == wanted


@pytest.mark.parametrize(
    ("now", "to", "said"),
    [
        ("1.34", "1.36", "EKS goes one minor version at a time: 1.34 to 1.35 comes first"),
        ("1.35", "1.34", "EKS never goes back from Kubernetes 1.35 to 1.34"),
        ("1.34", "1.35", ""),
        ("1.35", "1.35", ""),
        ("1.35", "1.99", ""),  # the config's judge says which there are
    ],
)
def test_a_version_is_followed_by_the_next(now, to, said):
    found = problems(config(cluster={"kubernetesVersion": now}), UpgradeTargets(to))
    assert [problem.reason for problem in found] == ([said] if said else [])
    assert all(problem.severity is Severity.REFUSE for problem in found)
    assert (next_version("1.35"), next_version("1.37")) == ("1.36", ""), "the last has none after it"


def test_cni_is_upgraded_one_minor_version_at_a_time():
    old = config(cluster={"addons": {"vpc-cni": {"version": "v1.20.1-eksbuild.1"}}})
    [told] = problems(old, UpgradeTargets(addons={"vpc-cni": "v1.22.0-eksbuild.1"}))
    said = "one minor version at a time" in told.reason, "v1.21" in told.fix
    assert (told.severity, *said) == (Severity.WARN, True, True)
    assert problems(old, UpgradeTargets(addons={"vpc-cni": "v1.21.0-eksbuild.1"})) == []
    # A name that is not there is refused.
    [addon] = problems(config(), UpgradeTargets(addons={"core-dns": "v1.14.3-eksbuild.3"}))
    assert "did you mean coredns?" in addon.fix
    [image] = problems(config(), UpgradeTargets(images={"cda": "a.io/b:1"}))
    assert "did you mean cuda?" in image.fix


def found(before, after):
    return {each.change.resource.name: each for each in steps(before, after, diff.compare(before, after))}


def sized(nodes, **update):
    sizes = {"minSize": 0, "desiredSize": nodes, "maxSize": 8}
    return changed(environment(), "trn1", scalingConfig=sizes, updateConfig=update or None)


def test_control_plane_then_add_ons_then_nodes():
    before = environment()
    after = changed(changed(before, "control-plane", version="1.36"), "cni", addonVersion="v1.23.0")
    after = changed(changed(after, "trn1", version="1.36"), "system", version="1.36")
    by_name = found(before, after)
    assert [step.phase for step in by_name.values()] == ["control plane", "add-on", "node group", "node group"]
    plane, cni, nodes = by_name["control-plane"], by_name["cni"], by_name["trn1"]
    assert (plane.start, cni.start, nodes.start) == (0, plane.seconds, plane.seconds + cni.seconds)
    assert total_seconds(steps(before, before, diff.compare(before, before))) == (0, 0)


@pytest.mark.parametrize(
    ("nodes", "update", "batches"),
    [
        (2, {}, 2),
        (5, {"maxUnavailable": 2}, 3),
        (8, {"maxUnavailablePercentage": 50}, 2),
        (1, {"maxUnavailablePercentage": 50}, 1),
    ],
)
def test_nodes_go_in_turns(nodes, update, batches):
    before = sized(nodes, **update)
    step = found(before, changed(before, "trn1", version="1.36"))["trn1"]
    assert (step.nodes, step.batches) == (nodes, batches)
    assert step.seconds == batches * eks.ACCELERATOR_GROUP_SECONDS
    assert step.most_seconds == step.seconds + batches * DRAIN_SECONDS
    assert any("a gang on them starts again" in text for text in disturbance(step))
    shrunk = found(before, changed(sized(0, **update), "trn1", version="1.36"))["trn1"]
    assert (shrunk.nodes, shrunk.seconds) == (nodes, step.seconds), "the running nodes count, not those to come"
    # A resting group disturbs nobody.
    before = sized(0)
    step = found(before, changed(before, "trn1", version="1.36"))["trn1"]
    assert (step.nodes, step.seconds) == (0, eks.EMPTY_GROUP_SECONDS)
    assert list(disturbance(step)) == ["no nodes now: the next ones are new"]
