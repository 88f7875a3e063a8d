"""A VPC for accelerators: the first zone is the accelerator zone, by id."""

import pulumi
import pulumi_aws as aws

from trainium_eks import Network

provider = aws.Provider("aws", region="us-west-2")
network = Network(
    "ml",
    {
        "region": "us-west-2",
        "cidr_block": "10.48.0.0/16",
        "zone_ids": ["usw2-az4", "usw2-az1"],
        "nat_gateways": "per-zone",
        "interface_endpoints": ["ecr.api", "ecr.dkr"],
    },
    pulumi.ResourceOptions(providers=[provider]),
)
pulumi.export("acceleratorSubnet", network.accelerator_subnet_id)
