"""NVIDIA and EFA device plugins and DCGM metrics for a cluster's GPU nodes, without the Training Operator."""

import pulumi
import pulumi_kubernetes as kubernetes

from trainium_eks import GpuAddons

cluster = kubernetes.Provider("cluster", kubeconfig=pulumi.Config().require("kubeconfig"))
GpuAddons(
    "gpu",
    {"region": "us-west-2", "instance_types": ["p5.48xlarge"], "trainers": []},
    pulumi.ResourceOptions(providers=[cluster]),
)
