"""A whole environment from code instead of a config file: every field is one of StackConfig's."""

import pulumi
import pulumi_aws as aws

from trainium_eks import TrainingStack

provider = aws.Provider("aws", region="us-east-2", allowed_account_ids=["111122223333"])
stack = TrainingStack(
    "ml",
    {
        "region": "us-east-2",
        "owner": "ml-platform",
        "allowed_account_ids": ["111122223333"],
        "cluster": {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}},
        "node_groups": [{"name": "trn1", "instance_type": "trn1.32xlarge", "max_size": 2, "desired_size": 2}],
        "queues": [{"name": "research"}],
        "namespaces": [{"name": "vision", "queues": ["research"]}],
    },
    pulumi.ResourceOptions(providers=[provider]),
)
for name, value in stack.exports().items():
    pulumi.export(name, value)
