"""A file system linked to a bucket, in the subnet of the accelerators."""

import pulumi
import pulumi_aws as aws

from trainium_eks import FsxLustre

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
file_system = FsxLustre(
    "scratch",
    {
        "region": "us-west-2",
        "vpc_id": "vpc-0a1b2c3d4e5f60718",
        "subnet_id": "subnet-0a1b2c3d4e5f60711",
        "client_security_group_ids": {"cluster": "sg-0123456789abcdef0"},
        "storage_capacity_gib": 4800,
        "throughput_per_tib": 500,
        "durability": {"type": "s3"},
    },
    pulumi.ResourceOptions(providers=[provider]),
)
pulumi.export("mount", pulumi.Output.concat(file_system.dns_name, "@tcp:/", file_system.mount_name))
