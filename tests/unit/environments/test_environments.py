"""The committed environments, each recorded from the very program that `pulumi up` runs."""

import json
from collections.abc import Callable

import golden
import pytest
from kubernetes_schemas import schema_faults

from trainium_eks.model.config import namespaces
from trainium_eks.model.config import stack_config as model
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.sizing import bill
from trainium_eks.model.validation.config_model import read
from trainium_eks.plan import cost, timeline
from trainium_eks.plan.graph import UNKNOWN, Graph
from trainium_eks.plan.rules import judge
from trainium_eks.plan.rules._endpoint import endpoints
from trainium_eks.plan.rules._view import View

Environment = Callable[..., Graph]
EFA = ("efa", "efa-only")


def _templates(graph: Graph) -> dict[str, list[dict[str, object]]]:
    return {
        template.name: template.inputs.get("networkInterfaces", [])
        for template in graph.of_type("aws:ec2/launchTemplate:LaunchTemplate")
    }


def _efa_count(graph: Graph, group: str) -> int:
    [interfaces] = [found for name, found in _templates(graph).items() if group in name]
    return sum(each.get("interfaceType") in EFA for each in interfaces)


def _config(graph: Graph) -> model.StackConfig:
    return read(model.StackConfig, graph.config)


def test_no_rule_fails_without_a_waiver(graph: Graph) -> None:
    failed = {verdict.id: verdict.findings for verdict in judge(graph) if verdict.status == "fail"}
    assert failed == {}


def test_no_team_can_have_a_namespace_of_the_stacks_own(graph: Graph) -> None:
    teams = {namespace.name for namespace in _config(graph).namespaces}
    made = {each.inputs["metadata"]["name"] for each in graph.of_type("kubernetes:core/v1:Namespace")}
    released = {each.inputs["namespace"] for each in graph.of_type("kubernetes:helm.sh/v3:Release")}
    assert made - teams
    assert made - teams <= set(namespaces.STACK)
    assert released <= {*namespaces.STACK, "kube-system"}


def test_what_queues_are_guaranteed_is_there(graph: Graph) -> None:
    told = [problem for problem in model.validate(_config(graph)) if ".guarantee" in problem.path]
    assert told == []


def test_every_waiver_says_why(graph: Graph) -> None:
    waived = [verdict for verdict in judge(graph) if verdict.status == "waived"]
    assert waived
    assert all(verdict.reason for verdict in waived)


def test_time_to_ready_stays_within_five_percent_of_the_bound(graph: Graph) -> None:
    modelled = timeline.model(graph)
    assert modelled.seconds <= 1.05 * modelled.lower_bound_seconds
    assert modelled.serial_seconds >= 2 * modelled.seconds


def test_forbidden_edges_are_absent_and_required_ones_present(graph: Graph) -> None:
    modelled = timeline.model(graph)
    assert modelled.forbidden_edges == ()
    assert modelled.missing_edges == ()


def test_outputs_are_what_the_tools_read(graph: Graph) -> None:
    outputs = StackOutputs.parse(graph.outputs)
    config = _config(graph)
    assert outputs.queue_names == tuple(queue.name for queue in config.queues)
    assert [group.name for group in outputs.node_groups] == [group.name for group in config.node_groups]
    assert outputs.kubeconfig == "[secret]"


def test_cost_of_the_graph_is_the_cost_in_the_outputs(graph: Graph) -> None:
    assert cost.estimate(graph).hourly_usd == pytest.approx(bill.of_config(_config(graph)).hourly_usd, abs=0.005)
    assert graph.outputs["hourlyUsd"] == pytest.approx(cost.estimate(graph).hourly_usd, abs=0.005)


def test_kubernetes_objects_satisfy_their_schemas(graph: Graph) -> None:
    assert schema_faults(graph) == []


def test_urns_replacing_inputs_edges_and_options_are_those_of_the_release(graph: Graph) -> None:
    expected = json.loads((golden.FOLDER / f"{graph.stack}.json").read_text())
    changes = list(golden.changes(expected, json.loads(golden.text(graph))))
    assert not changes, "\n".join(["if that is meant, `make golden`; see tests/golden.py", *changes])


def test_first_preview_registers_what_up_builds(graph: Graph, environment: Environment) -> None:
    preview = environment(graph.stack, dry_run=True)
    assert [resource.urn for resource in preview.resources] == [resource.urn for resource in graph.resources]
    for before, after in zip(preview.resources, graph.resources, strict=True):
        assert before.type == after.type
        assert before.options == after.options
        for name, value in before.inputs.items():
            if UNKNOWN not in str(value):
                assert value == after.inputs[name], f"{before.urn} {name}"


def test_first_preview_leaves_values_unknown(environment: Environment) -> None:
    preview = environment("dev", dry_run=True)
    [group] = [each for each in preview.of_type("aws:eks/nodeGroup:NodeGroup") if "trn1-32xl-ng1" in each.name]
    assert group.inputs["clusterName"] == UNKNOWN


def test_dev_is_the_blueprint(environment: Environment) -> None:
    graph = environment("dev")
    subnets = graph.of_type("aws:ec2/subnet:Subnet")
    assert len(subnets) == 4
    assert _efa_count(graph, "trn1-32xl-ng1") == 8
    assert _efa_count(graph, "trn1n-32xl-ng") == 16
    sizes = {each.name: each.inputs["scalingConfig"] for each in graph.of_type("aws:eks/nodeGroup:NodeGroup")}
    assert [size["desiredSize"] for name, size in sizes.items() if "trn1-32xl-ng1" in name] == [2]
    assert [size["desiredSize"] for name, size in sizes.items() if "trn1n-32xl-ng" in name] == [0]
    assert graph.outputs["queueNames"] == ["test"]


def test_dev_file_system_is_in_the_accelerator_subnet(environment: Environment) -> None:
    graph = environment("dev")
    [file_system] = graph.of_type("aws:fsx/lustreFileSystem:LustreFileSystem")
    groups = graph.of_type("aws:eks/nodeGroup:NodeGroup")
    [subnets] = [each.inputs["subnetIds"] for each in groups if "trn1-32xl-ng1" in each.name]
    assert [file_system.inputs["subnetIds"]] == subnets


def test_prod_keeps_what_holds_data(environment: Environment) -> None:
    graph = environment("prod")
    [file_system] = graph.of_type("aws:fsx/lustreFileSystem:LustreFileSystem")
    assert file_system.options.protect
    buckets = graph.of_type("aws:s3/bucket:Bucket")
    assert buckets
    assert all(bucket.options.protect or bucket.options.retain_on_delete for bucket in buckets)
    assert len(graph.of_type("aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation")) == 1


def test_prod_is_reached_from_a_network_that_is_there_before(environment: Environment) -> None:
    graph = environment("prod")
    assert graph.of_type("aws:ec2/vpc:Vpc") == ()
    [endpoint] = endpoints(View(graph))
    assert (endpoint.public, endpoint.own_network) == ((), False)
    assert set(endpoint.private) == {"10.32.0.0/16", "10.200.0.0/16"}
    assert endpoint.first_up


def test_prod_capacity_block_waits_at_zero(environment: Environment) -> None:
    graph = environment("prod")
    [block] = [each for each in graph.of_type("aws:eks/nodeGroup:NodeGroup") if "trn1-block" in each.name]
    assert block.inputs["capacityType"] == "CAPACITY_BLOCK"
    assert block.inputs["scalingConfig"]["desiredSize"] == 0
    assert "instanceTypes" not in block.inputs


def test_prod_has_three_teams_with_guarantees(environment: Environment) -> None:
    graph = environment("prod")
    queues = {
        each.inputs["metadata"]["name"]: each.inputs["spec"]
        for each in graph.of_type("kubernetes:scheduling.volcano.sh/v1beta1:Queue")
    }
    assert set(queues) == {"pretraining", "finetuning", "research"}
    guaranteed = [
        each.get("guarantee", {}).get("resource", {}).get("aws.amazon.com/neuron") for each in queues.values()
    ]
    assert sorted(guaranteed, key=str) == [16, 16, None]


def test_gpu_uses_the_vpc_that_is_there(environment: Environment) -> None:
    graph = environment("gpu")
    assert graph.of_type("aws:ec2/vpc:Vpc") == ()
    assert graph.of_type("aws:ec2/natGateway:NatGateway") == ()
    assert _efa_count(graph, "p4d-odcr") == 4
    assert graph.outputs["rendezvous"].startswith("etcd-server")


def test_gpu_reservation_has_no_placement_group(environment: Environment) -> None:
    graph = environment("gpu")
    [template] = [each for each in graph.of_type("aws:ec2/launchTemplate:LaunchTemplate") if "p4d-odcr" in each.name]
    target = template.inputs["capacityReservationSpecification"]["capacityReservationTarget"]
    assert target["capacityReservationId"] == "cr-0fedcba9876543210"
    assert "placement" not in template.inputs
    assert graph.of_type("aws:ec2/placementGroup:PlacementGroup") == ()


def test_what_node_groups_launch_has_the_tags_of_everything_else(graph: Graph) -> None:
    """The provider's default tags do not reach instances, volumes and interfaces."""
    (provider,) = graph.of_type("pulumi:providers:aws")
    tags = json.loads(str(provider.inputs["defaultTags"]))["tags"]
    assert {"Environment", "Owner", "CostCenter", "ManagedBy"} <= set(tags)
    templates = graph.of_type("aws:ec2/launchTemplate:LaunchTemplate")
    assert templates
    for template in templates:
        specifications = {each["resourceType"]: each["tags"] for each in template.inputs["tagSpecifications"]}
        assert set(specifications) == {"instance", "volume", "network-interface"}
        assert all(set(tags.items()) < set(each.items()) for each in specifications.values())


def test_another_tag_reaches_new_nodes_and_replaces_none(graph: Graph) -> None:
    """The launch template ignores it, and the Auto Scaling group of every node group has it."""
    for template in graph.of_type("aws:ec2/launchTemplate:LaunchTemplate"):
        assert template.options.ignore_changes == ("tagSpecifications",)
    handed_on: dict[str, set[str]] = {}
    for tag in graph.of_type("aws:autoscaling/tag:Tag"):
        if tag.inputs["tag"]["propagateAtLaunch"]:
            handed_on.setdefault(tag.inputs["autoscalingGroupName"], set()).add(tag.inputs["tag"]["key"])
    assert len(handed_on) == len(graph.of_type("aws:eks/nodeGroup:NodeGroup"))
    assert all(keys >= {"Owner", "CostCenter"} for keys in handed_on.values())
