"""The modelled time to ready: its critical path, its lower bound, and wrong edges."""

import pytest
from hand_built import Builder, changed, environment, urn, waiting, with_parts, without

from trainium_eks.plan import timeline
from trainium_eks.plan.graph import Resource


def _edge_ids(graph):
    return {check.id for check in timeline.model(graph).edges if not check.ok}


def _path(graph):
    return [step.name for step in timeline.model(graph).critical_path]


def _ends(graph, later, earlier):
    """Whether one thing starts when another one is done."""
    steps = {step.name: step for step in timeline.model(graph).steps}
    return steps[later].start == steps[earlier].start + steps[earlier].seconds


def test_good_order_equals_its_bound_and_an_empty_one_is_ready_at_once():
    modelled = timeline.model(environment())
    assert 1.0 <= modelled.ratio <= timeline.BAR
    assert (modelled.forbidden_edges, modelled.missing_edges) == ((), ())
    assert modelled.serial_seconds == sum(step.seconds for step in modelled.steps) > modelled.seconds
    assert modelled.lower_bound_seconds == timeline.chains(environment())["cluster"]
    modelled = timeline.model(Builder().graph())
    assert (modelled.seconds, modelled.ratio, modelled.critical_path) == (0.0, 1.0, ())


def test_critical_path_and_cluster_chain_end_with_the_slower_branch():
    assert _path(environment()) == ["vpc", "subnet", "control-plane", "cni", "trn1"]
    resting = changed(environment(), "trn1", scalingConfig=REST)
    assert _path(resting) == ["vpc", "subnet", "control-plane", "cni", "system", "dns", "volcano-release", "queue-test"]
    up_to_cni = 12 + 12 + 612 + 50
    chains = timeline.chains(environment())
    assert set(chains) == {"cluster", "fileSystem"}
    linked = Builder()
    linked.add("aws:fsx/lustreFileSystem:LustreFileSystem", "files")
    linked.add("aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", "link")
    assert timeline.chains(linked.graph())["fileSystem"] == 480 + 420
    assert set(timeline.model(without(environment(), "lustre")).chains) == {"cluster"}
    assert chains["cluster"] == up_to_cni + max(270, 124 + 35 + 75 + 1)
    resting = changed(environment(), "trn1", scalingConfig=REST)
    assert timeline.chains(resting)["cluster"] == up_to_cni + 124 + 35 + 75 + 1


REST = {"minSize": 0, "desiredSize": 0, "maxSize": 4}
ONE = {"minSize": 0, "desiredSize": 1, "maxSize": 4}


@pytest.mark.parametrize(
    ("type_", "inputs", "seconds"),
    [
        ("aws:ec2/vpcEndpoint:VpcEndpoint", {"vpcEndpointType": "Interface"}, 60),
        ("aws:ec2/vpcEndpoint:VpcEndpoint", {"vpcEndpointType": "Gateway"}, 6),
        ("kubernetes:helm.sh/v3:Release", {"chart": "volcano"}, 75),
        ("kubernetes:helm.sh/v3:Release", {"chart": "charts/volcano/"}, 75),
        ("kubernetes:helm.sh/v3:Release", {"chart": "volcano-agent"}, 37),
        ("aws:eks/nodeGroup:NodeGroup", {"scalingConfig": ONE, "amiType": "AL2023_x86_64_NEURON"}, 270),
        ("aws:eks/nodeGroup:NodeGroup", {"scalingConfig": ONE, "amiType": "AL2023_ARM_64_STANDARD"}, 124),
        ("aws:eks/nodeGroup:NodeGroup", {"scalingConfig": REST, "amiType": "AL2023_x86_64_NEURON"}, 58),
        ("aws:eks/addon:Addon", {"addonName": "vpc-cni"}, 50),
        ("aws:eks/addon:Addon", {"addonName": "their-own"}, 45),
        ("kubernetes:batch/v1:Job", {}, 30),
        ("kubernetes:example.com/v1:Widget", {}, 1),
        ("pulumi:providers:aws", {}, 0),
    ],
)
def test_resource_takes_its_listed_time(type_, inputs, seconds):
    assert timeline.step_seconds(Resource("u", type_, "n", inputs=inputs)) == seconds
    assert timeline.step_seconds(Resource("u", type_, "n", inputs=inputs, custom=False)) == 0


@pytest.mark.parametrize(
    ("who", "whom", "edge"),
    [
        ("lustre", "control-plane", "fsx-cluster"),
        ("lustre", "nat", "fsx-nat"),
        ("trn1", "lustre", "accelerators-fsx"),
        ("volcano-release", "trn1", "volcano-accelerators"),
        ("trn1", "system", "accelerators-system"),
        ("key", "vpc", "kms-vpc"),
        ("node-role", "vpc", "iam-vpc"),
        ("fsx-group", "cni", "fsx-cluster"),  # through other resources
        ("fsx", "eks", "fsx-cluster fsx-nat"),  # waiting for a component is waiting for everything in it
    ],
)
def test_a_forbidden_edge_is_named(who, whom, edge):
    graph = waiting(environment(), who, whom)
    assert _edge_ids(graph) == set(edge.split())
    through = who.startswith("fsx")
    assert ((urn(who, graph), urn(whom, graph)) in timeline.model(graph).forbidden_edges) is not through


def test_children_wait_for_their_components_dependencies():
    assert _ends(waiting(environment(), "fsx", "nat"), "fsx-group", "nat")
    assert _ends(with_parts(environment(), "queue-test", dependencies=(), parent=""), "queue-test", "control-plane")


@pytest.mark.parametrize(
    ("gone", "edge"),
    [
        (("logs", "control-plane"), "cluster-logs"),
        (("cni", "trn1"), "nodes-cni"),
        (("nat", "trn1"), "nodes-egress"),
        (("worker", "trn1"), "nodes-role"),
        (("volcano-release", "queue-test"), "queues-volcano"),
    ],
)
def test_a_missing_edge_is_named(gone, edge):
    graph = environment()
    target, waiter = urn(gone[0], graph), urn(gone[1], graph)
    kept = tuple(each for each in graph.by_urn[waiter].dependencies if each != target)
    without_edge = with_parts(graph, gone[1], dependencies=kept)
    assert _edge_ids(without_edge) == {edge}
    assert (waiter, target) in timeline.model(without_edge).missing_edges


def test_nodes_without_a_nat_wait_only_for_the_endpoints():
    graph = without(environment(), "nat")
    assert _edge_ids(graph) == {"nodes-egress"}
    assert _edge_ids(waiting(waiting(graph, "trn1", "sts"), "system", "sts")) == set()
    assert _edge_ids(without(environment(), "cni", "nat", "sts", "worker", "volcano-release")) == set()


@pytest.mark.parametrize("hint", [{"taints": []}, {"amiType": None}])
def test_an_accelerator_group_is_known_by_taint_or_by_ami(hint):
    graph = waiting(changed(environment(), "trn1", **hint), "trn1", "lustre")
    assert "accelerators-fsx" in _edge_ids(graph)


def test_cluster_roles_do_not_wait_for_the_vpc():
    build = Builder()
    build.add("aws:ec2/vpc:Vpc", "vpc")
    build.add("aws:iam/role:Role", "role", waits=("vpc",))
    build.add("aws:kms/key:Key", "key", waits=("role",))
    build.add("aws:eks/cluster:Cluster", "cluster", waits=("key",))
    build.add("aws:iam/role:Role", "team", waits=("cluster",))
    graph = build.graph()
    [found] = [check for check in timeline.model(graph).edges if check.id == "iam-vpc"]
    assert found.violations == ((urn("role", graph), urn("vpc", graph)),)


def test_dependency_cycle_is_refused():
    graph = waiting(environment(), "vpc", "subnet")
    with pytest.raises(ValueError, match=r"circle: .*::subnet -> .*::vpc -> .*::subnet$"):
        timeline.model(graph)
