"""Karpenter on a cluster made by another stack: CPU nodes as pods need them, and up to four Trainium nodes."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from trainium_eks import Karpenter

clusters = pulumi.StackReference("organization/clusters/dev")
tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
Karpenter(
    "karpenter",
    {
        "region": "us-west-2",
        "cluster_name": "dev-cluster-eks-0a1b2c3",
        "cluster_security_group_id": "sg-0123456789abcdef0",
        "vpc_id": "vpc-0123456789abcdef0",
        "subnet_ids_by_zone": {"usw2-az4": "subnet-0123456789abcdef0"},
        "kms_key_arn": "arn:aws:kms:us-west-2:111122223333:key/22222222-2222-2222-2222-222222222222",
        "cpu_limit": 32,
        "accelerator_pools": [{"name": "trn1", "instance_type": "trn1.32xlarge", "max_nodes": 4}],
        "permissions_boundary": "arn:aws:iam::111122223333:policy/trn-boundary",
        "tags": tags,
    },
    pulumi.ResourceOptions(providers=[provider, cluster]),
)
