"""Volumes of an existing file system, for two namespaces."""

import pulumi
import pulumi_kubernetes as kubernetes

from trainium_eks import LustreVolumes

clusters = pulumi.StackReference("organization/clusters/dev")
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
volumes = LustreVolumes(
    "volumes",
    {
        "file_system_id": "fs-0123456789abcdef0",
        "dns_name": "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com",
        "mount_name": "abcdefgh",
        "storage_capacity_gib": 4800,
        "subnet_id": "subnet-0a1b2c3d4e5f60711",
        "security_group_id": "sg-0123456789abcdef0",
        "namespaces": {"vision": 1000, "speech": 1000},
    },
    pulumi.ResourceOptions(providers=[cluster]),
)
pulumi.export("visionVolume", volumes.volume_name("vision"))
