"""Which upgrades there are, and what they set."""

import json
from typing import Any

import pytest

from trainium_eks.model.catalogue import addon_records, versions
from trainium_eks.model.config.stack_config import StackConfig, load
from trainium_eks.model.validation.problems import Severity
from trainium_eks.operate.upgrade.settings import UpgradeTargets, next_version, problems, settings


def config(**sections: Any) -> StackConfig:
    return load({"region": "us-west-2", "owner": "me", **{key: json.dumps(value) for key, value in sections.items()}})


PINNED = config(
    cluster={"kubernetesVersion": "1.35", "addons": {"kube-proxy": {"version": "v1.35.2-eksbuild.4"}}},
    nodeGroups=[
        {"name": "one", "instanceType": "trn1.32xlarge", "releaseVersion": "1.35.1-20260312"},
        {"name": "two", "instanceType": "trn1.32xlarge"},
    ],
)


def test_what_is_pinned_for_the_old_version_goes_with_a_new_one() -> None:
    assert {each.path: each.value for each in settings(PINNED, UpgradeTargets("1.36"))} == {
        "cluster.kubernetes_version": "1.36",
        "node_groups[0].release_version": versions.AMI_RELEASES["1.36"],
        "cluster.addons.kube-proxy.version": addon_records.KUBE_PROXY.version("1.36"),
    }


def test_nodes_can_be_kept_and_be_brought_after_the_control_plane() -> None:
    kept = {each.path: each.value for each in settings(PINNED, UpgradeTargets("1.36", keep_nodes=True))}
    assert kept == {
        "cluster.kubernetes_version": "1.36",
        "node_groups[0].kubernetes_version": "1.35",
        "node_groups[1].kubernetes_version": "1.35",
        "cluster.addons.kube-proxy.version": addon_records.KUBE_PROXY.version("1.36"),
    }
    halfway = config(
        cluster={"kubernetesVersion": "1.36"},
        nodeGroups=[{"name": "one", "instanceType": "trn1.32xlarge", "kubernetesVersion": "1.35"}],
    )
    brought = {each.path: each.value for each in settings(halfway, UpgradeTargets("1.36"))}
    assert brought == {"node_groups[0].kubernetes_version": "1.36"}
    assert settings(halfway, UpgradeTargets("1.36", keep_nodes=True)) == ()


def test_what_is_asked_by_name_wins() -> None:
    asked = UpgradeTargets("1.36", "1.36.2-20260901", {"kube-proxy": "v1.36.1-eksbuild.1"}, {"trn1": "a.io/b:1"})
    assert {each.path: each.value for each in settings(PINNED, asked)} == {
        "cluster.kubernetes_version": "1.36",
        "node_groups[0].release_version": "1.36.2-20260901",
        "node_groups[1].release_version": "1.36.2-20260901",
        "cluster.addons.kube-proxy.version": "v1.36.1-eksbuild.1",
        "image_repository.base_images.trn1": "a.io/b:1",
    }
    assert settings(PINNED, UpgradeTargets()) == ()


def test_what_is_so_already_is_not_set() -> None:
    proxy = {"kube-proxy": "v1.35.2-eksbuild.4"}
    assert settings(PINNED, UpgradeTargets("1.35", addons=proxy)) == ()
    based = config(imageRepository={"baseImages": {"trn1": "a.io/b:1"}})
    assert settings(based, UpgradeTargets(images={"trn1": "a.io/b:1"})) == ()
    assert [each.path for each in settings(PINNED, UpgradeTargets(ami="1.35.1-20260312"))] == [
        "node_groups[1].release_version"
    ]


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
def test_a_version_is_followed_by_the_next(now: str, to: str, said: str) -> None:
    found = problems(config(cluster={"kubernetesVersion": now}), UpgradeTargets(to))
    assert [problem.reason for problem in found] == ([said] if said else [])
    assert all(problem.severity is Severity.REFUSE for problem in found)


def test_the_cni_goes_up_one_minor_version_at_a_time() -> None:
    old = config(cluster={"addons": {"vpc-cni": {"version": "v1.20.1-eksbuild.1"}}})
    [told] = problems(old, UpgradeTargets(addons={"vpc-cni": "v1.22.0-eksbuild.1"}))
    assert told.severity is Severity.WARN
    assert "one minor version at a time" in told.reason
    assert "v1.21" in told.fix
    assert problems(old, UpgradeTargets(addons={"vpc-cni": "v1.21.0-eksbuild.1"})) == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (UpgradeTargets(addons={"core-dns": "v1.14.3-eksbuild.3"}), "did you mean coredns?"),
        (UpgradeTargets(images={"cda": "a.io/b:1"}), "did you mean cuda?"),
    ],
)
def test_a_name_that_is_not_there_is_refused(asked: UpgradeTargets, said: str) -> None:
    [problem] = problems(config(), asked)
    assert said in problem.fix


def test_the_last_version_has_none_after_it() -> None:
    assert next_version("1.35") == "1.36"
    assert next_version("1.36") == ""
