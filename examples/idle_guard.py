"""An idle guard for a cluster that has a node group already."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from trainium_eks import IdleGuard

clusters = pulumi.StackReference("organization/clusters/dev")
tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
guard = IdleGuard(
    "idle",
    {
        "region": "us-west-2",
        "cluster_name": "training",
        "groups": {"trn1": {"eks_name": "trn1-32xl", "devices": ["aws.amazon.com/neuron"], "minimum": 1}},
        "warn_after_minutes": 10,
        "remove_after_minutes": 30,
    },
    pulumi.ResourceOptions(providers=[provider, cluster]),
)
pulumi.export("role", guard.role_arn)
