"""IAM statements for autoscalers."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainium_eks.model.catalogue import regions
from trainium_eks.model.policies.addon_policies import Statement

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
        {
            "Effect": "Allow",
            "Action": [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeLaunchConfigurations",
                "autoscaling:DescribeScalingActivities",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:GetInstanceTypesFromInstanceRequirements",
            ],
            "Resource": "*",
        },
        {
            "Effect": "Allow",
            "Action": "eks:DescribeNodegroup",
            "Resource": f"arn:{partition}:eks:{region}:*:nodegroup/{cluster_name}/*/*",
        },
        {
            "Effect": "Allow",
            "Action": ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            "Resource": groups,
            "Condition": {"StringEquals": {f"aws:ResourceTag/{DISCOVERY_TAG}": cluster_name}},
        },
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
        {
            "Effect": "Allow",
            "Action": ["ec2:RunInstances", "ec2:CreateFleet"],
            "Resource": [
                f"{ec2}::image/*",
                f"{ec2}::snapshot/*",
                f"{ec2}:*:placement-group/*",
                *(f"{ec2}:*:subnet/{id_}" for id_ in nodes.subnet_ids),
                *(f"{ec2}:*:security-group/{id_}" for id_ in nodes.security_group_ids),
                *(f"{ec2}:*:capacity-reservation/{id_}" for id_ in nodes.capacity_reservation_ids),
            ],
        },
        {
            "Effect": "Allow",
            "Action": ["ec2:RunInstances", "ec2:CreateFleet"],
            "Resource": f"{ec2}:*:launch-template/*",
            "Condition": _owned(nodes),
        },
        {
            "Effect": "Allow",
            "Action": ["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
            "Resource": made,
            "Condition": {"StringEquals": asked, **from_pool},
        },
        {
            "Effect": "Allow",
            "Action": "ec2:CreateTags",
            "Resource": made,
            "Condition": {
                "StringEquals": {
                    **asked,
                    "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                },
                **from_pool,
            },
        },
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
        {
            "Effect": "Allow",
            "Action": "ec2:CreateTags",
            "Resource": f"{ec2}:instance/*",
            "Condition": {**_owned(nodes), "ForAllValues:StringEquals": {"aws:TagKeys": tags}},
        },
        {
            "Effect": "Allow",
            "Action": ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            "Resource": [f"{ec2}:instance/*", f"{ec2}:launch-template/*"],
            "Condition": _owned(nodes),
        },
    ]


def _passes_and_reads(nodes: KarpenterNodes) -> list[Statement]:
    partition, region = regions.partition(nodes.region), nodes.region
    return [
        {
            "Effect": "Allow",
            "Action": "iam:PassRole",
            "Resource": nodes.node_role_arn,
            "Condition": {"StringEquals": {"iam:PassedToService": f"ec2.{regions.dns_suffix(region)}"}},
        },
        {
            "Effect": "Allow",
            "Action": ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"],
            "Resource": nodes.queue_arn,
        },
        {
            "Effect": "Allow",
            "Action": "eks:DescribeCluster",
            "Resource": f"arn:{partition}:eks:{region}:*:cluster/{nodes.cluster_name}",
        },
        {
            "Effect": "Allow",
            "Action": [
                f"ec2:Describe{what}"
                for what in (
                    "CapacityReservations", "Images", "Instances", "InstanceStatus", "InstanceTypeOfferings",
                    "InstanceTypes", "LaunchTemplates", "PlacementGroups", "SecurityGroups", "SpotPriceHistory",
                    "Subnets",
                )
            ],
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:RequestedRegion": region}},
        },
        {
            "Effect": "Allow",
            "Action": "ssm:GetParameter",
            "Resource": f"arn:{partition}:ssm:{region}::parameter/aws/service/*",
        },
        {
            "Effect": "Allow",
            "Action": ["iam:GetInstanceProfile", "iam:ListInstanceProfiles", "pricing:GetProducts"],
            "Resource": "*",
        },
    ]  # fmt: skip


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
