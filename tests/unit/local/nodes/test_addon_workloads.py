"""Stand-ins of EKS add-ons: real names, places and weights, and nothing that could be taken for real."""

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

import pytest
from kubernetes_schemas import object_faults

from trainium_eks.local.changes import Applied
from trainium_eks.local.nodes.addon_workloads import AddonWorkloads, manifests
from trainium_eks.local.objects.apply import Objects
from trainium_eks.model.catalogue import addon_records
from trainium_eks.model.catalogue.instances import CATALOGUE, Taint
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


def pod_spec(name: str) -> dict[str, Any]:
    return dict(pod_specs())[name]


def tolerates(spec: Mapping[str, Any], taint: Taint) -> bool:
    """As the scheduler judges it, for the operator that is used here."""
    assert all(each["operator"] == "Exists" for each in spec.get("tolerations", ()))
    return any(
        each.get("key") in (None, taint.key) and each.get("effect") in (None, taint.effect)
        for each in spec.get("tolerations", ())
    )


def test_every_add_on_makes_what_the_list_says_and_no_other_workload() -> None:
    for addon in ADDONS:
        listed = [(each.kind, each.namespace, each.name) for each in addon_records.ADDONS[addon].workloads]
        objects = of_kind(addon, "DaemonSet", "Deployment", "StatefulSet")
        assert [(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in objects] == listed


@pytest.mark.parametrize("addon", ADDONS)
def test_everything_is_valid_for_kubernetes(addon: str) -> None:
    assert [fault for each in made(addon) for fault in object_faults(each)] == []


@pytest.mark.parametrize("addon", ADDONS)
def test_everything_says_that_it_is_simulated(addon: str) -> None:
    for each in made(addon):
        assert each["metadata"]["annotations"]["trainium-eks/simulated"] == "true"
    for each in of_kind(addon, "DaemonSet", "Deployment"):
        assert each["spec"]["template"]["metadata"]["annotations"]["trainium-eks/simulated"] == "true"


def test_no_two_workloads_select_the_same_pods() -> None:
    selectors = [frozenset(workload.pod.labels.items()) for _, workload in WORKLOADS]
    assert not any(one <= other for one in selectors for other in selectors if one is not other)


@pytest.mark.parametrize("addon", [addon.name for addon in addon_records.installed() if addon.identity])
def test_the_service_accounts_that_get_roles_are_there(addon: str) -> None:
    accounts = [each["metadata"]["name"] for each in of_kind(addon, "ServiceAccount")]
    identity = addon_records.ADDONS[addon].identity
    assert identity is not None
    assert identity.service_account in accounts


@pytest.mark.parametrize("instance_type", ["trn1.32xlarge", "p5.48xlarge"])
def test_agents_run_on_accelerator_nodes_and_controllers_do_not(instance_type: str) -> None:
    (taint,) = CATALOGUE.taints(instance_type)
    family = CATALOGUE[instance_type].family
    for _, workload in WORKLOADS:
        assert tolerates(pod_spec(workload.name), taint) is (workload.nodes in ("all", family)), workload.name


def test_dcgm_is_for_gpu_nodes_alone() -> None:
    required = pod_spec("dcgm-server")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = required["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression["key"] == "node.kubernetes.io/instance-type"
    assert {CATALOGUE.find(each).family for each in expression["values"]} == {"nvidia"}


def test_node_agents_that_need_it_are_on_the_host_network() -> None:
    on_host = {name for name, spec in pod_specs() if spec.get("hostNetwork")}
    assert on_host == {"aws-node", "kube-proxy", "eks-pod-identity-agent", "eks-node-monitoring-agent"}


def test_the_agents_of_a_node_together_leave_room_for_a_job() -> None:
    millicpu = sum(workload.pod.millicpu for _, workload in WORKLOADS if workload.nodes == "all")
    memory_mib = sum(workload.pod.memory_mib for _, workload in WORKLOADS if workload.nodes == "all")
    assert (millicpu, memory_mib) == (220, 254)


def test_no_pod_carries_a_token() -> None:
    assert [name for name, spec in pod_specs() if spec["automountServiceAccountToken"]] == []


def test_images_come_from_where_eks_has_them_at_the_add_ons_version() -> None:
    assert pod_spec("coredns")["containers"][0]["image"] == (
        f"602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/coredns:{ADDONS['coredns']}"
    )
    version = ADDONS["aws-fsx-csi-driver"].partition("-")[0]
    assert pod_spec("fsx-csi-node")["containers"][0]["image"] == (
        f"public.ecr.aws/fsx-csi-driver/aws-fsx-csi-driver:{version}"
    )
    china = made("vpc-cni", "cn-north-1")[-1]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert china.startswith("918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn/amazon-k8s-cni:")


def test_no_api_is_registered_that_nobody_answers() -> None:
    assert not [each for addon in ADDONS for each in made(addon) if each["kind"] in ("APIService", "Service")]


class Untouchable:
    """Objects that nobody may use."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} was asked for")


def test_an_add_on_that_is_not_known_is_named_as_not_installed() -> None:
    applied = AddonWorkloads(cast(Objects, Untouchable())).apply("aws-efs-csi-driver", "v3.5.0-eksbuild.1", REGION)
    assert isinstance(applied, Applied)
    assert "aws-efs-csi-driver" in applied.not_installed
    AddonWorkloads(cast(Objects, Untouchable())).delete("aws-efs-csi-driver")
