"""The server's version, how many nodes are Ready, where they are, and what they offer."""

from typing import Any

import pytest
from cluster_snapshots import EFA, NEURON, Object, accelerated, group, judged, node, outputs, the, without

from trainium_eks.operate.verify.check import CheckStatus
from trainium_eks.operate.verify.local_report import LocalReport


def _ng1(number: int) -> Object:
    return accelerated(f"trn{number}", group("ng1", NEURON, 8, 2))


def test_a_cluster_that_is_as_its_stack_says_fails_nothing() -> None:
    found = judged()
    assert {check.id for check in found.values() if check.status is CheckStatus.FAIL} == set()
    assert found["server/version"].detail == "answers, v1.35.4"
    assert found["nodes/ng1"].detail == "2 of 2 Ready, wants 2 (0 to 4)"
    assert found["devices/ng1/aws.amazon.com/neuron"].detail == "16 on each of 2 nodes"
    assert found["nodes/others"].detail == "3 of 3 Ready"


def test_what_passes_has_no_remedy_and_what_fails_has_one() -> None:
    assert not [check.id for check in judged().values() if check.remedy]
    empty = judged(lambda made: made.clear())
    failures = [check for check in empty.values() if check.status is CheckStatus.FAIL]
    assert failures
    assert not [check.id for check in failures if not check.remedy]
    assert not [check.id for check in failures if "\n" in check.remedy]


def test_an_empty_cluster_passes_nothing_but_that_its_server_answers() -> None:
    empty = judged(lambda made: made.clear())
    assert [check.id for check in empty.values() if check.status is CheckStatus.PASS] == ["server/version"]


@pytest.mark.parametrize("version", ["v1.33.2", "v2.35.0"])
def test_a_server_of_a_version_without_pinned_addons_fails(version: str) -> None:
    found = judged(version=version)["server/version"]
    assert found.status is CheckStatus.FAIL
    assert "1.34, 1.35, 1.36" in found.detail


@pytest.mark.parametrize(("kubelet", "status"), [("v1.32.9", "pass"), ("v1.31.9", "fail"), ("v1.36.0", "fail")])
def test_kubelets_may_be_three_minors_older_and_never_newer(kubelet: str, status: str) -> None:
    def spoil(made: Any) -> None:
        the(made, "Node", "trn1")["status"]["nodeInfo"]["kubeletVersion"] = kubelet

    found = judged(spoil)["server/kubelets"]
    assert found.status == status
    assert found.faults == (() if status == "pass" else (f"trn1 runs {kubelet}",))


def test_a_node_that_is_not_ready_is_named_with_its_kubelets_words() -> None:
    def spoil(made: Any) -> None:
        ready = the(made, "Node", "trn1")["status"]["conditions"][0]
        ready.update(status="False", message="container runtime network not ready")

    found = judged(spoil)["nodes/ng1"]
    assert found.status is CheckStatus.FAIL
    assert found.detail == "1 of 2 Ready, wants 2 (0 to 4)"
    assert found.faults == ("trn1: not Ready: container runtime network not ready",)


def test_a_cordoned_node_is_named() -> None:
    found = judged(lambda made: the(made, "Node", "trn0")["spec"].update(unschedulable=True))["nodes/ng1"]
    assert found.faults == ("trn0: cordoned",)
    assert found.remedy.endswith("kubectl uncordon trn0")
    assert found.fault == "node-cordoned"


def test_fewer_nodes_than_the_stack_asks_for_fail_with_where_to_look() -> None:
    found = judged(lambda made: without(made, "Node", "trn1"))["nodes/ng1"]
    assert found.status is CheckStatus.FAIL
    assert "--nodegroup-name ng1-eks" in found.remedy


def test_more_nodes_than_the_stack_asks_for_fail() -> None:
    found = judged(lambda made: made["Node"].append(_ng1(2)))["nodes/ng1"]
    assert found.status is CheckStatus.FAIL
    assert "ignoreDesiredSize" in found.remedy


@pytest.mark.parametrize(("nodes", "status"), [(1, "fail"), (2, "pass"), (4, "pass"), (5, "fail")])
def test_a_ignore_desired_size_must_be_within_its_bounds(nodes: int, status: str) -> None:
    stack = outputs(nodeGroups=[group("ng1", NEURON, 8, None, minSize=2)])

    def spoil(made: Any) -> None:
        made["Node"] = [each for each in made["Node"] if each["metadata"]["name"].startswith("system")]
        made["Node"] += [_ng1(number) for number in range(nodes)]

    assert judged(spoil, stack=stack)["nodes/ng1"].status == status


def test_a_group_at_zero_is_not_said_to_pass() -> None:
    found = judged()
    for id_ in ("nodes/rest", "nodes/rest/labels", f"devices/rest/{NEURON}", f"devices/rest/{EFA}"):
        assert found[id_].status is CheckStatus.NOT_APPLICABLE, id_


def test_a_resting_group_that_should_have_nodes_fails() -> None:
    stack = outputs(nodeGroups=[group("rest", NEURON, 16, 1)])
    assert judged(stack=stack)["nodes/rest"].status is CheckStatus.FAIL


def test_a_cluster_without_system_nodes_fails() -> None:
    def spoil(made: Any) -> None:
        made["Node"] = [each for each in made["Node"] if each["metadata"]["name"].startswith("trn")]

    assert judged(spoil)["nodes/others"].status is CheckStatus.FAIL


def test_a_system_node_that_is_not_ready_fails() -> None:
    def spoil(made: Any) -> None:
        the(made, "Node", "system1")["status"]["conditions"] = []

    assert judged(spoil)["nodes/others"].faults == ("system1: not Ready: it has not reported yet",)


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("node.kubernetes.io/instance-type", "trn1.2xlarge"),
        ("topology.k8s.aws/zone-id", "usw2-az1"),
        (f"{NEURON}.present", "false"),
    ],
)
def test_a_node_of_another_type_or_zone_or_without_its_label_is_named(label: str, value: str) -> None:
    found = judged(lambda made: the(made, "Node", "trn1")["metadata"]["labels"].update({label: value}))
    check = found["nodes/ng1/labels"]
    assert check.status is CheckStatus.FAIL
    [fault] = check.faults
    assert fault.startswith(f"trn1: {label} is {value}, wants ")


def _with(capacity: str | None, allocatable: str | None, resource: str) -> Any:
    def spoil(made: Any) -> None:
        status = the(made, "Node", "trn1")["status"]
        for field, value in (("capacity", capacity), ("allocatable", allocatable)):
            status[field].pop(resource)
            status[field].update({resource: value} if value is not None else {})

    return spoil


@pytest.mark.parametrize(
    ("resource", "capacity", "allocatable", "has", "remedy"),
    [
        (NEURON, None, None, "none", "the Neuron device plugin has not registered on trn1"),
        (EFA, None, None, "none", "without /dev/infiniband/uverbs* the launch template has no EFA interface"),
        (EFA, "4", "4", "4", "the group's launch template has other EFA interfaces"),
        (NEURON, "15", "15", "15", "neuron-ls on trn1"),
        (NEURON, "16", "15", "15 of 16", "aws ec2 terminate-instances --instance-ids i-trn1"),
        (NEURON, "16", "0", "0 of 16", "has stopped, or reports every device as unhealthy"),
    ],
)
def test_missing_devices_are_named_with_their_cause(
    resource: str, capacity: str | None, allocatable: str | None, has: str, remedy: str
) -> None:
    found = judged(_with(capacity, allocatable, resource))
    check = found[f"devices/ng1/{resource}"]
    assert check.status is CheckStatus.FAIL
    assert check.detail.startswith("1 of 2 nodes")
    assert check.faults == (f"trn1: {resource} has {has}, wants {16 if resource == NEURON else 8}",)
    assert remedy in check.remedy
    other = EFA if resource == NEURON else NEURON
    assert found[f"devices/ng1/{other}"].status is CheckStatus.PASS


def test_each_cause_has_its_remedy_once() -> None:
    def spoil(made: Any) -> None:
        made["Node"].append(_ng1(2))
        for name, value in (("trn0", "4"), ("trn1", "4"), ("trn2", "0")):
            the(made, "Node", name)["status"]["allocatable"][EFA] = value
            the(made, "Node", name)["status"]["capacity"][EFA] = "4" if value == "4" else "8"

    check = judged(spoil)[f"devices/ng1/{EFA}"]
    assert len(check.faults) == 3
    assert check.remedy.count("launch template has other") == 1
    assert check.remedy.count("has stopped") == 1


def test_devices_of_nodes_that_are_not_ready_are_not_judged() -> None:
    def spoil(made: Any) -> None:
        for name in ("trn0", "trn1"):
            the(made, "Node", name)["status"]["conditions"][0]["status"] = "Unknown"

    check = judged(spoil)[f"devices/ng1/{NEURON}"]
    assert (check.status, check.detail) == (CheckStatus.NOT_APPLICABLE, "no Ready node")


def test_a_local_clusters_remedy_is_not_an_instance() -> None:
    check = judged(_with("4", "4", EFA), local=LocalReport())[f"devices/ng1/{EFA}"]
    assert check.remedy.endswith("trn local up sets them back")


def test_a_thousand_nodes_are_all_looked_at() -> None:
    stack = outputs(nodeGroups=[group("ng1", NEURON, 8, 1000, maxSize=1000)])

    def spoil(made: Any) -> None:
        made["Node"] = [node("system", "system-eks", {}), *(_ng1(number) for number in range(1000))]
        made["Node"][777]["status"]["allocatable"][NEURON] = "12"

    found = judged(spoil, stack=stack)
    assert found["nodes/ng1"].status is CheckStatus.PASS
    assert found[f"devices/ng1/{NEURON}"].faults == (f"trn776: {NEURON} has 12 of 16, wants 16",)
