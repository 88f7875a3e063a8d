"""Stand-ins of EKS add-ons: real names, places and weights, and nothing that could be taken for real."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from kubernetes_schemas import object_faults

from trainium_eks.local.changes import ApplyResult
from trainium_eks.local.nodes.addon_workloads import AddonWorkloads, manifests
from trainium_eks.local.objects.apply import Objects
from trainium_eks.model.catalogue import addon_records
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.catalogue.versions import KUBERNETES

REGION = "us-west-2"
ADDONS = addon_records.pinned(KUBERNETES)
WORKLOADS = [(addon, workload) for addon in ADDONS for workload in addon_records.ADDONS[addon].workloads]


def made(addon: str, region: str = REGION) -> list[dict[str, Any]]:
    return manifests(addon, ADDONS[addon], region)


def of_kind(addon: str, *kinds: str) -> list[dict[str, Any]]:
    return [each for each in made(addon) if each["kind"] in kinds]


def pod_specs() -> Iterator[tuple[str, dict[str, Any]]]:
    for addon in ADDONS:
        for each in of_kind(addon, "DaemonSet", "Deployment"):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


SPECS = dict(pod_specs())


@pytest.mark.parametrize("addon", ADDONS)
def test_an_add_on_makes_what_the_list_says_valid_and_simulated(addon: str) -> None:
    listed = [(each.kind, each.namespace, each.name) for each in addon_records.ADDONS[addon].workloads]
    workloads = of_kind(addon, "DaemonSet", "Deployment", "StatefulSet")
    assert [(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in workloads] == listed
    assert [fault for each in made(addon) for fault in object_faults(each)] == []
    for each in (*made(addon), *(each["spec"]["template"] for each in workloads)):
        assert each["metadata"]["annotations"]["trainium-eks/simulated"] == "true"
    kinds = {each["kind"] for each in made(addon)}
    assert not kinds & {"APIService", "Service"}, "nobody would answer"


def test_no_two_workloads_select_the_same_pods() -> None:
    selectors = [frozenset(workload.pod.labels.items()) for _, workload in WORKLOADS]
    assert not any(one <= other for one in selectors for other in selectors if one is not other)


def test_the_service_accounts_that_get_roles_are_there() -> None:
    for addon in addon_records.installed():
        if addon.identity:
            accounts = [each["metadata"]["name"] for each in of_kind(addon.name, "ServiceAccount")]
            assert addon.identity.service_account in accounts


def test_dcgm_is_for_gpu_nodes_alone() -> None:
    required = SPECS["dcgm-server"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = required["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression["key"] == "node.kubernetes.io/instance-type"
    assert {CATALOGUE.find(each).family for each in expression["values"]} == {"nvidia"}


def test_pods_have_no_token_and_only_the_room_and_network_that_they_need() -> None:
    on_host = {name for name, spec in SPECS.items() if spec.get("hostNetwork")}
    assert on_host == {"aws-node", "kube-proxy", "eks-pod-identity-agent", "eks-node-monitoring-agent"}
    agents = [workload.pod for _, workload in WORKLOADS if workload.nodes == "all"]
    assert (sum(each.millicpu for each in agents), sum(each.memory_mib for each in agents)) == (220, 254)
    assert [name for name, spec in SPECS.items() if spec["automountServiceAccountToken"]] == []


def test_images_come_from_where_eks_has_them_at_the_add_ons_version() -> None:
    assert SPECS["coredns"]["containers"][0]["image"] == (
        f"602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/coredns:{ADDONS['coredns']}"
    )
    version = ADDONS["aws-fsx-csi-driver"].partition("-")[0]
    assert SPECS["fsx-csi-node"]["containers"][0]["image"] == (
        f"public.ecr.aws/fsx-csi-driver/aws-fsx-csi-driver:{version}"
    )
    china = made("vpc-cni", "cn-north-1")[-1]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert china.startswith("918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn/amazon-k8s-cni:")


def test_an_add_on_that_is_not_known_is_named_as_not_installed() -> None:
    untouchable = cast(Objects, object())
    applied = AddonWorkloads(untouchable).apply("aws-efs-csi-driver", "v3.5.0-eksbuild.1", REGION)
    assert isinstance(applied, ApplyResult)
    assert "aws-efs-csi-driver" in applied.not_installed
    AddonWorkloads(untouchable).delete("aws-efs-csi-driver")
