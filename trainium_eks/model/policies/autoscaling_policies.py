"""What autoscalers may do in AWS."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainium_eks.model.catalogue import regions
from trainium_eks.model.policies.addon_policies import Statement

DISCOVERY_TAG = "trainium-eks/cluster-autoscaler"
"""Tag of the Auto Scaling groups that Cluster Autoscaler serves; its value is the cluster's name. EKS' own discovery
tags are on every group, those of the system nodes and of gangs too (EKS user guide, autoscaling)."""


def cluster_autoscaler_statements(cluster_name: str, region: str) -> list[Statement]:
    """Reads what the AWS provider of Cluster Autoscaler reads (its README, full features policy), and changes the
    groups that carry this cluster's tag.

    Reading cannot be narrowed: Auto Scaling's and EC2's describing actions know no resources (AWS service
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
    """What Karpenter's nodes are made of."""

    cluster_name: str
    region: str
    node_role_arn: str
    queue_arn: str
    subnet_ids: Sequence[str]
    security_group_ids: Sequence[str]
    capacity_reservation_ids: Sequence[str] = ()


def karpenter_statements(nodes: KarpenterNodes) -> list[Statement]:
    """What Karpenter 1.14 asks of AWS (its CloudFormation template, getting started), narrower where the stack knows
    more: the subnets, groups and reservations by their ids, one queue, and one node role. Instance profiles are the
    stack's, so it makes none."""
    return [*_launches(nodes), *_ends(nodes), *_passes_and_reads(nodes)]


def _launches(nodes: KarpenterNodes) -> list[Statement]:
    """Instances, volumes and interfaces come with the cluster's tag, or not at all."""
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
    """Its own instances and templates; of an instance's tags only those by which it finds it again."""
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
    """The queue's own policy: EventBridge sends for these rules, and nobody comes without TLS."""
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
