"""What autoscalers may do in AWS."""

from trainium_eks.model import regions
from trainium_eks.model.addon_policies import Statement

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
