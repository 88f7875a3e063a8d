"""A shared file system and a gang scheduler for a cluster that exists, with its FSx CSI driver and its nodes."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from trainium_eks import FsxLustre, LustreVolumes, VolcanoStack, eks_kubeconfig

TEAMS = {"vision": 1001, "speech": 1002}
"""Namespace to the user id of its jobs, which owns the namespace's directory."""
NODE = {"aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": 8}
"""Devices of a trn1.32xlarge."""

config = pulumi.Config()
region, cluster = config.require("region"), config.require_object("cluster")
tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": pulumi.get_stack()}
cloud = aws.Provider("aws", region=region, allowed_account_ids=[config.require("account")], default_tags={"tags": tags})
inside = kubernetes.Provider(
    "cluster",
    kubeconfig=eks_kubeconfig(cluster["name"], cluster["endpoint"], cluster["certificateAuthority"], region),
)
file_system = FsxLustre(
    "scratch",
    {
        "region": region,
        "vpc_id": cluster["vpcId"],
        "subnet_id": cluster["subnetId"],
        "client_security_group_ids": {"cluster": cluster["securityGroupId"]},
        "storage_capacity_gib": 4800,
        "throughput_per_tib": 500,
        "durability": {"type": "s3"},
        "tags": tags,
    },
    pulumi.ResourceOptions(providers=[cloud]),
)
volumes = LustreVolumes(
    "volumes",
    {
        "file_system_id": file_system.file_system_id,
        "dns_name": file_system.dns_name,
        "mount_name": file_system.mount_name,
        "storage_capacity_gib": 4800,
        "subnet_id": cluster["subnetId"],
        "security_group_id": file_system.security_group_id,
        "namespaces": TEAMS,
    },
    pulumi.ResourceOptions(providers=[inside], depends_on=list(file_system.client_access)),
)
volcano = VolcanoStack(
    "volcano",
    {
        "pool": {device: 4 * count for device, count in NODE.items()},
        "queues": [
            {"name": team, "capability": {device: nodes * count for device, count in NODE.items()}}
            for team, nodes in (("vision", 4), ("speech", 2))
        ],
    },
    pulumi.ResourceOptions(providers=[inside]),
)
pulumi.export("volumes", {team: volumes.volume_name(team) for team in TEAMS})
pulumi.export("queues", volcano.queue_names)
