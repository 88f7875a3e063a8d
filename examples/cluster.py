"""A cluster with one Trainium group, in a network of its own."""

import pulumi
import pulumi_aws as aws

from trainium_eks import Network, TrainiumCluster

provider = aws.Provider("aws", region="us-west-2")
options = pulumi.ResourceOptions(providers=[provider])
zones = ["usw2-az4", "usw2-az1"]
network = Network("ml", {"region": "us-west-2", "zone_ids": zones}, options)
cluster = TrainiumCluster(
    "ml",
    {
        "region": "us-west-2",
        "vpc_id": network.vpc_id,
        "subnet_ids_by_zone": {zone: network.private_subnet_id(zone) for zone in zones},
        "egress": network.egress,
        "endpoint": {"public_access_cidrs": ["203.0.113.0/24"]},
        "node_groups": [{"name": "trn1", "instance_type": "trn1.32xlarge", "max_size": 4, "desired_size": 2}],
    },
    options,
)
pulumi.export("kubeconfig", cluster.kubeconfig)
