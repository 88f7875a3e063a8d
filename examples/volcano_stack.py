"""Volcano with two queues over a pool of four trn1.32xlarge nodes."""

import pulumi
import pulumi_kubernetes as kubernetes

from trainium_eks import VolcanoStack

clusters = pulumi.StackReference("organization/clusters/dev")
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
volcano = VolcanoStack(
    "volcano",
    {
        "pool": {"aws.amazon.com/neuron": 64, "vpc.amazonaws.com/efa": 32},
        "rests_at_zero": True,
        "queues": [
            {"name": "research", "capability": {"aws.amazon.com/neuron": 64, "vpc.amazonaws.com/efa": 32}},
            {"name": "nightly", "capability": {"aws.amazon.com/neuron": 32, "vpc.amazonaws.com/efa": 16}},
        ],
    },
    pulumi.ResourceOptions(providers=[cluster]),
)
pulumi.export("queueNames", volcano.queue_names)
