"""A cluster with one Trainium group and its device plugins, in its own network."""

import pulumi
import pulumi_aws as aws

from trainium_eks import EncryptionKey, Network, NeuronAddons, TrainiumCluster

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
        "node_groups": [{"name": "trn1", "instance_type": "trn1.32xlarge", "max_size": 4, "desired_size": 2}],
        "tags": tags,
        "production": True,  # EKS and Pulumi refuse to delete the cluster
    },
    options,
)
NeuronAddons(
    "neuron",
    {"region": "us-west-2", "instance_types": ["trn1.32xlarge"]},
    pulumi.ResourceOptions(providers=[cluster.provider], depends_on=list(cluster.ready)),
)
pulumi.export("kubeconfig", cluster.kubeconfig)
