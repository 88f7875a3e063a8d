"""An existing VPC, with the same outputs as a new one. Creates nothing."""

import pulumi

from trainium_eks import ExistingNetwork

network = ExistingNetwork(
    "shared",
    {
        "region": "us-west-2",
        "vpc_id": "vpc-0a1b2c3d4e5f60718",
        "cidr_block": "10.64.0.0/16",
        "private_subnets": [
            {"id": "subnet-0a1b2c3d4e5f60711", "zone_id": "usw2-az4", "cidr_block": "10.64.0.0/18"},
            {"id": "subnet-0a1b2c3d4e5f60712", "zone_id": "usw2-az1", "cidr_block": "10.64.64.0/18"},
        ],
    },
)
pulumi.export("acceleratorSubnet", network.accelerator_subnet_id)
