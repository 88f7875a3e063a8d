"""A Trainium pool for an existing cluster, from a capacity reservation."""

import pulumi
import pulumi_aws as aws

from trainium_eks import AcceleratorNodeGroup

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
pool = AcceleratorNodeGroup(
    "pool",
    {
        "name": "trn1-pool",
        "instance_type": "trn1.32xlarge",
        "max_size": 4,
        "desired_size": 4,
        "capacity": {"type": "reservation", "id": "cr-0123456789abcdef0", "zone_id": "usw2-az4"},
        "region": "us-west-2",
        "cluster_name": "my-cluster",
        "cluster_security_group_id": "sg-0123456789abcdef0",
        "kubernetes_version": "1.35",
        "vpc_id": "vpc-0a1b2c3d4e5f60718",
        "subnet_id": "subnet-0a1b2c3d4e5f60711",
        "tags": tags,
    },
    pulumi.ResourceOptions(providers=[provider]),
)
pulumi.export("nodeGroup", pool.node_group_name)
