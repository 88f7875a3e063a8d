"""A VPC for accelerators: the first zone is the accelerator zone, by id."""

import pulumi
import pulumi_aws as aws

from trainium_eks import EncryptionKey, Network

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
options = pulumi.ResourceOptions(providers=[provider])
key = EncryptionKey("ml", {"region": "us-west-2"}, options)
network = Network(
    "ml",
    {
        "region": "us-west-2",
        "cidr_block": "10.48.0.0/16",
        "zone_ids": ["usw2-az4", "usw2-az1"],
        "nat_gateways": "per-zone",
        "interface_endpoints": ["ecr.api", "ecr.dkr"],
        "kms_key_arn": key.key_arn,
    },
    options,
)
pulumi.export("acceleratorSubnet", network.accelerator_subnet_id)
