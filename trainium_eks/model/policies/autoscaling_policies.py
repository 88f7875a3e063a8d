"""IAM statements for autoscalers."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainium_eks.model.catalogue import regions
from trainium_eks.model.policies.addon_policies import Statement, allow

DISCOVERY_TAG = "trainium-eks/cluster-autoscaler"
"""Tag of the Auto Scaling groups that Cluster Autoscaler serves; its value is the cluster's name. EKS' own discovery
tags are on every group, the groups of system nodes and gangs included (EKS user guide, autoscaling)."""


def cluster_autoscaler_statements(cluster_name: str, region: str) -> list[Statement]:
    """Return Cluster Autoscaler's rights: the reads of its AWS provider (its README, full features policy), and changes
    of groups with this cluster's tag.

    Reads cannot be narrowed: the Describe actions of Auto Scaling and EC2 support no resources (AWS service
    authorization reference).
    """
    partition = regions.partition(region)
    groups = f"arn:{partition}:autoscaling:{region}:*:autoScalingGroup:*:autoScalingGroupName/eks-*"
    return [
        allow(
            [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeLaunchConfigurations",
                "autoscaling:DescribeScalingActivities",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:GetInstanceTypesFromInstanceRequirements",
            ],
            "*",
        ),
        allow("eks:DescribeNodegroup", f"arn:{partition}:eks:{region}:*:nodegroup/{cluster_name}/*/*"),
        allow(
            ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            groups,
            {"StringEquals": {f"aws:ResourceTag/{DISCOVERY_TAG}": cluster_name}},
        ),
    ]


POOL_TAG = "karpenter.sh/nodepool"
"""Tag that Karpenter puts on all that it makes; its value is the NodePool's name."""


@dataclass(frozen=True)
class KarpenterNodes:
    """Resources that Karpenter's nodes use."""

    cluster_name: str
    region: str
    node_role_arn: str
    queue_arn: str
    subnet_ids: Sequence[str]
    security_group_ids: Sequence[str]
    capacity_reservation_ids: Sequence[str] = ()


def karpenter_statements(nodes: KarpenterNodes) -> list[Statement]:
    """Return the rights of Karpenter 1.14 (its CloudFormation template, getting started; 1.15 calls nothing else by
    default: pkg/aws/sdk.go), narrowed to the stack's resources: subnets, groups and reservations by their ids, one
    queue, and one node role. The stack makes the instance profile, so Karpenter may make none."""
    return [*_launches(nodes), *_ends(nodes), *_passes_and_reads(nodes)]


def _launches(nodes: KarpenterNodes) -> list[Statement]:
    """Return the rights to launch; instances, volumes and interfaces must have the cluster's tag."""
    ec2 = f"arn:{regions.partition(nodes.region)}:ec2:{nodes.region}"
    made = [
        f"{ec2}:*:{kind}/*"
        for kind in ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
    ]
    ours = {f"kubernetes.io/cluster/{nodes.cluster_name}": "owned", "eks:eks-cluster-name": nodes.cluster_name}
    asked = {f"aws:RequestTag/{key}": value for key, value in ours.items()}
    from_pool = {"StringLike": {f"aws:RequestTag/{POOL_TAG}": "*"}}
    return [
        allow(
            ["ec2:RunInstances", "ec2:CreateFleet"],
            [
                f"{ec2}::image/*",
                f"{ec2}::snapshot/*",
                f"{ec2}:*:placement-group/*",
                *(f"{ec2}:*:subnet/{id_}" for id_ in nodes.subnet_ids),
                *(f"{ec2}:*:security-group/{id_}" for id_ in nodes.security_group_ids),
                *(f"{ec2}:*:capacity-reservation/{id_}" for id_ in nodes.capacity_reservation_ids),
            ],
        ),
        allow(["ec2:RunInstances", "ec2:CreateFleet"], f"{ec2}:*:launch-template/*", _owned(nodes)),
        allow(
            ["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
            made,
            {"StringEquals": asked, **from_pool},
        ),
        allow(
            "ec2:CreateTags",
            made,
            {
                "StringEquals": {
                    **asked,
                    "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                },
                **from_pool,
            },
        ),
    ]


def _owned(nodes: KarpenterNodes) -> dict[str, object]:
    return {
        "StringEquals": {f"aws:ResourceTag/kubernetes.io/cluster/{nodes.cluster_name}": "owned"},
        "StringLike": {f"aws:ResourceTag/{POOL_TAG}": "*"},
    }


def _ends(nodes: KarpenterNodes) -> list[Statement]:
    """Return the rights to end Karpenter's own instances and templates, and to set the instance tags by which it finds
    them again."""
    ec2 = f"arn:{regions.partition(nodes.region)}:ec2:{nodes.region}:*"
    tags = ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]
    return [
        allow(
            "ec2:CreateTags", f"{ec2}:instance/*", {**_owned(nodes), "ForAllValues:StringEquals": {"aws:TagKeys": tags}}
        ),
        allow(
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            [f"{ec2}:instance/*", f"{ec2}:launch-template/*"],
            _owned(nodes),
        ),
    ]


def _passes_and_reads(nodes: KarpenterNodes) -> list[Statement]:
    partition, region = regions.partition(nodes.region), nodes.region
    described = (
        "CapacityReservations", "Images", "Instances", "InstanceStatus", "InstanceTypeOfferings", "InstanceTypes",
        "LaunchTemplates", "PlacementGroups", "SecurityGroups", "SpotPriceHistory", "Subnets",
    )  # fmt: skip
    in_region = {"StringEquals": {"aws:RequestedRegion": region}}
    to_ec2 = {"StringEquals": {"iam:PassedToService": f"ec2.{regions.dns_suffix(region)}"}}
    return [
        allow("iam:PassRole", nodes.node_role_arn, to_ec2),
        allow(["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"], nodes.queue_arn),
        allow("eks:DescribeCluster", f"arn:{partition}:eks:{region}:*:cluster/{nodes.cluster_name}"),
        allow([f"ec2:Describe{what}" for what in described], "*", in_region),
        allow("ssm:GetParameter", f"arn:{partition}:ssm:{region}::parameter/aws/service/*"),
        allow(["iam:GetInstanceProfile", "iam:ListInstanceProfiles", "pricing:GetProducts"], "*"),
    ]


def interruption_statements(queue_arn: str, rule_arns: Sequence[str]) -> list[Statement]:
    """Return the queue's policy: EventBridge may send for these rules, and requests without TLS are denied."""
    return [
        {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue_arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": list(rule_arns)}},
        },
        {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": queue_arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    ]
