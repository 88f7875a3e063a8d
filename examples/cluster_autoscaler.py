"""Cluster Autoscaler for the CPU pool and one Trainium group of a cluster made by another stack."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from trainium_eks import ClusterAutoscaler

clusters = pulumi.StackReference("organization/clusters/dev")
tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
ClusterAutoscaler(
    "autoscaler",
    {
        "region": "us-west-2",
        "cluster_name": "dev-cluster-eks-0a1b2c3",
        "groups": [
            {"name": "cpu", "instance_type": "m6i.xlarge", "autoscaling_group": "eks-cpu-0a1b2c3d"},
            {"name": "trn1", "instance_type": "trn1.32xlarge", "autoscaling_group": "eks-trn1-4e5f6a7b"},
        ],
        "permissions_boundary": "arn:aws:iam::111122223333:policy/trn-boundary",
        "tags": tags,
    },
    pulumi.ResourceOptions(providers=[provider, cluster]),
)
