"""Values that are known only during an update, wherever people have them: a preview plans them all the same."""

import pulumi
import pulumi_aws as aws
import pytest
from dry_run import planned_alike
from unit.components.parts import LEAST, STACK, of_kind, one

from components import AcceleratorNodeGroup, EncryptionKey, FsxLustre, TrainingNamespace, TrainingStack, TrainiumCluster
from trainium_eks.plan.graph import UNKNOWN

RESERVATION = "cr-0123456789abcdef0"
ROLE_ARN = "arn:aws:iam::000000000000:role/ops"
BOUNDARY = "arn:aws:iam::000000000000:policy/trn-boundary"
GROUP = {name: value for name, value in LEAST["AcceleratorNodeGroup"].items() if name != "node_role_arn"}


def nodes(**args):
    return AcceleratorNodeGroup("g", {**GROUP, **args})


def team(**args):
    return TrainingNamespace("t", {**LEAST["TrainingNamespace"], **args})


def cluster(**args):
    return TrainiumCluster("c", {**LEAST["TrainiumCluster"], **args})


BLOCK = {"id": RESERVATION, "zone_id": "usw2-az4"}

CASES = {
    "a reservation's id": (
        RESERVATION, "LaunchTemplate", lambda it: nodes(capacity={**BLOCK, "type": "reservation", "id": it})
    ),
    "a Capacity Block's id": (
        RESERVATION, "LaunchTemplate", lambda it: nodes(capacity={**BLOCK, "type": "capacity-block", "id": it})
    ),
    "a placement group": ("packed", "LaunchTemplate", lambda it: nodes(placement_group=it)),
    "a reservation's placement group": (
        "packed", "LaunchTemplate", lambda it: nodes(capacity={**BLOCK, "type": "reservation", "placement_group": it})
    ),
    "a launch template's tag": ("payroll", "LaunchTemplate", lambda it: nodes(tags={"Team": it})),
    "a node role's boundary": (BOUNDARY, "aws:iam/role:Role", lambda it: nodes(permissions_boundary=it)),
    "a key's tag": ("payroll", "Key", lambda it: EncryptionKey("k", {"region": "us-west-2", "tags": {"Team": it}})),
    "a linked bucket": (
        "data-of-others", "DataRepositoryAssociation",
        lambda it: FsxLustre("f", {**LEAST["FsxLustre"], "durability": {"type": "s3", "bucket": it}}),
    ),
    "a team's bucket": ("data-of-others", "RolePolicy", lambda it: team(data_bucket=it)),
    "a team's queue": ("their-queue", "ValidatingAdmissionPolicy", lambda it: team(queues=["test", it])),
    "a researcher": (ROLE_ARN, "AccessEntry", lambda it: team(principal_arns={"ops": it})),
    "an administrator": (ROLE_ARN, "AccessEntry", lambda it: cluster(admin_principal_arns={"ops": it})),
}  # fmt: skip
"""What is given, as its value, the kind of resource that it reaches, and the program."""


@pytest.mark.parametrize("case", CASES)
def test_value_argument_accepts_an_output(record, case):
    value, kind, program = CASES[case]

    def whole():
        # A resource's output is unknown in the preview; what is made of it is so too.
        program(aws.iam.Role("source", assume_role_policy="{}").arn.apply(lambda _: value))

    graph = planned_alike(record, whole)
    reached = [each for each in of_kind(graph, kind) if value in str(each.inputs)]
    assert reached
    source = one(graph, "aws:iam/role:Role", "source")
    assert all(source.urn in each.dependencies for each in reached)
    assert [each.name for each in graph.resources if value in each.name] == []
    preview = record(whole, dry_run=True)
    assert all(UNKNOWN in str(preview.by_urn[each.urn].inputs) for each in reached)
    # One that is known at once may be an Output too.
    known = record(lambda: program(pulumi.Output.from_input(value)) and None, dry_run=True)
    assert [each for each in of_kind(known, kind) if value in str(each.inputs)]


def test_stack_links_a_bucket_of_the_program(record):
    def program():
        bucket = aws.s3.Bucket("data").bucket
        TrainingStack("trn-dev", {**STACK, "file_system": {"durability": {"type": "s3", "bucket": bucket}}})

    graph = planned_alike(record, program)
    name = one(graph, "Bucket").outputs["bucket"]
    assert one(graph, "DataRepositoryAssociation").inputs["dataRepositoryPath"] == f"s3://{name}"
    policies = [str(each.inputs["policy"]) for each in of_kind(graph, "RolePolicy")]
    assert [each for each in policies if f"arn:aws:s3:::{name}/training" in each]


def test_node_group_waits_for_its_clusters_add_ons_but_not_for_dns(record):
    def program():
        made = cluster()
        nodes(cluster_name=made.cluster_name, wait_for=made.before_nodes)

    graph = planned_alike(record, program)
    waits = one(graph, "NodeGroup", "g-nodes").dependencies
    waited = {each.inputs["addonName"] for each in of_kind(graph, "Addon") if each.urn in waits}
    assert waited == {"vpc-cni", "kube-proxy", "eks-pod-identity-agent"}
