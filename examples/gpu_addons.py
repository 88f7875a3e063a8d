"""NVIDIA and EFA device plugins and DCGM metrics for a cluster's GPU nodes, without the Training Operator."""

import pulumi
import pulumi_kubernetes as kubernetes

from trainium_eks import GpuAddons

clusters = pulumi.StackReference("organization/clusters/dev")
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
GpuAddons(
    "gpu",
    {"region": "us-west-2", "instance_types": ["p5.48xlarge"], "trainers": []},
    pulumi.ResourceOptions(providers=[cluster]),
)
