"""Neuron and EFA device plugins and neuron-monitor for a cluster's Trainium nodes."""

import pulumi
import pulumi_kubernetes as kubernetes

from trainium_eks import NeuronAddons

clusters = pulumi.StackReference("organization/clusters/dev")
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
NeuronAddons(
    "neuron",
    {"region": "us-west-2", "instance_types": ["trn1.32xlarge", "trn2.48xlarge"]},
    pulumi.ResourceOptions(providers=[cluster]),
)
