"""A Trainium pool made beside a TrainiumCluster, with the cluster's node role, once its nodes can become ready."""

import pulumi
import pulumi_aws as aws

from trainium_eks import AcceleratorNodeGroup, Network, TrainiumCluster

options = pulumi.ResourceOptions(providers=[aws.Provider("aws", region="us-west-2")])
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
    },
    options,
)
pool = AcceleratorNodeGroup(
    "pool",
    {
        "name": "trn1-pool",
        "instance_type": "trn1.32xlarge",
        "max_size": 4,
        "region": "us-west-2",
        "cluster_name": cluster.cluster_name,
        "cluster_security_group_id": cluster.cluster_security_group_id,
        "vpc_id": network.vpc_id,
        "subnet_id": network.accelerator_subnet_id,
        "node_role_arn": cluster.node_role_arn,
        "kms_key_arn": cluster.kms_key_arn,
        "wait_for": cluster.before_nodes,
    },
    options,
)
pulumi.export("nodeGroup", pool.node_group_name)
