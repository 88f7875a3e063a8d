"""Tags of things in AWS, and the cluster that they name."""

from collections.abc import Iterable, Mapping

CLUSTER_TAGS = (
    *("eks:cluster-name", "aws:eks:cluster-name", "eks:eks-cluster-name", "KubernetesCluster"),
    *("elbv2.k8s.aws/cluster", "cluster.k8s.amazonaws.com/name", "ebs.csi.aws.com/cluster-name"),
)
"""Tags with a cluster's name as their value: of EKS, of Karpenter, of Kubernetes' cloud provider, of the load balancer
controller, of the CNI, of the EBS driver."""

OWNED = "kubernetes.io/cluster/"
"""Prefix of a tag's key that ends with the cluster; ``shared`` is its value on resources that the cluster only uses."""


def tags_of(listed: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return AWS' list of tags as a mapping."""
    return {each["Key"]: each.get("Value", "") for each in listed}


def cluster_of(tags: Mapping[str, str]) -> str:
    """Return the cluster that a thing was made for; empty for none."""
    named = next((tags[key] for key in CLUSTER_TAGS if tags.get(key)), "")
    owned = (key.removeprefix(OWNED) for key, value in tags.items() if key.startswith(OWNED) and value == "owned")
    return named or next(owned, "")
