"""A whole environment from code instead of a config file: StackConfig documents the fields."""

import pulumi
import pulumi_aws as aws

from trainium_eks import TrainingStack

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "prod"}
provider = aws.Provider("aws", region="us-east-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
stack = TrainingStack(
    "ml",
    {
        "region": "us-east-2",
        "owner": "ml-platform",
        "production": True,
        "allowed_account_ids": ["111122223333"],
        "network": {"nat_gateways": "per-zone"},
        "cluster": {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}},
        "node_groups": [{"name": "trn1", "instance_type": "trn1.32xlarge", "max_size": 2, "desired_size": 2}],
        "queues": [{"name": "research"}],
        "namespaces": [{"name": "vision", "queues": ["research"]}],
    },
    pulumi.ResourceOptions(providers=[provider]),
)
for name, value in stack.exports().items():
    pulumi.export(name, value)
