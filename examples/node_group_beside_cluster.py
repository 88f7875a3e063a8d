"""A Trainium pool made beside a TrainiumCluster, with the cluster's node role, once its nodes can become ready."""

import pulumi
import pulumi_aws as aws

from trainium_eks import AcceleratorNodeGroup, EncryptionKey, Network, NeuronAddons, TrainiumCluster

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
options = pulumi.ResourceOptions(providers=[provider])
zones = ["usw2-az4", "usw2-az1"]
key = EncryptionKey("ml", {"region": "us-west-2"}, options)
network = Network("ml", {"region": "us-west-2", "zone_ids": zones, "kms_key_arn": key.key_arn}, options)
cluster = TrainiumCluster(
    "ml",
    {
        "region": "us-west-2",
        "vpc_id": network.vpc_id,
        "subnet_ids_by_zone": {zone: network.private_subnet_id(zone) for zone in zones},
        "egress": network.egress,
        "kms_key_arn": key.key_arn,
        "endpoint": {"public_access_cidrs": ["203.0.113.0/24"]},
        "tags": tags,
        "production": True,  # EKS and Pulumi refuse to delete the cluster
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
        "tags": tags,
    },
    options,
)
NeuronAddons(
    "neuron",
    {"region": "us-west-2", "instance_types": ["trn1.32xlarge"]},
    pulumi.ResourceOptions(providers=[cluster.provider], depends_on=list(cluster.ready)),
)
pulumi.export("nodeGroup", pool.node_group_name)
