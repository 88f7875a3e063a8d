"""A Trainium pool with its device plugins, on an EKS cluster that another team, eksctl or Terraform made."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from trainium_eks import AcceleratorNodeGroup, NeuronAddons, eks_kubeconfig

INSTANCE_TYPE = "trn1.32xlarge"

config = pulumi.Config()
region, cluster = config.require("region"), config.require_object("cluster")
tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": pulumi.get_stack()}
cloud = aws.Provider("aws", region=region, allowed_account_ids=[config.require("account")], default_tags={"tags": tags})
inside = kubernetes.Provider(
    "cluster",
    kubeconfig=eks_kubeconfig(cluster["name"], cluster["endpoint"], cluster["certificateAuthority"], region),
)
pool = AcceleratorNodeGroup(
    "pool",
    {
        "name": "trn1",
        "instance_type": INSTANCE_TYPE,
        "max_size": 4,
        "desired_size": 2,
        "region": region,
        "cluster_name": cluster["name"],
        "cluster_security_group_id": cluster["securityGroupId"],
        "kubernetes_version": cluster["version"],
        "vpc_id": cluster["vpcId"],
        "subnet_id": cluster["subnetId"],
        "node_role_arn": cluster["nodeRoleArn"],
        "tags": tags,
    },
    pulumi.ResourceOptions(providers=[cloud]),
)
# The plugins are there before the first node, which then joins with its devices.
NeuronAddons(
    "neuron", {"region": region, "instance_types": [INSTANCE_TYPE]}, pulumi.ResourceOptions(providers=[inside])
)
pulumi.export("nodeGroup", pool.node_group_name)
