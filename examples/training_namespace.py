"""A team's namespace with its queue and the access of its researchers."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from trainium_eks import TrainingNamespace

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
clusters = pulumi.StackReference("organization/clusters/dev")
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
team = TrainingNamespace(
    "vision",
    {
        "name": "vision",
        "queues": ["research"],
        "principals": ["arn:aws:iam::111122223333:role/vision-researchers"],
        "data_bucket": "my-training-data",
        "region": "us-west-2",
        "cluster_name": "my-cluster",
        "room": {"cpu": "512", "memory": "1800Gi", "pods": "400"},
        "queue_capability": {"aws.amazon.com/neuron": 64, "vpc.amazonaws.com/efa": 32},
    },
    pulumi.ResourceOptions(providers=[provider, cluster]),
)
pulumi.export("serviceAccount", team.service_account)
