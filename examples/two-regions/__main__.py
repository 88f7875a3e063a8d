"""Two environments in two regions from one program: each has its own provider, network and cluster."""

import pulumi
import pulumi_aws as aws

from trainium_eks import TrainingStack

ACCOUNT = "111122223333"
REGIONS = {"us-west-2": 2, "us-east-2": 0}
"""Region to the nodes that it begins with; a group at zero waits for `trn scale`."""

for region, nodes in REGIONS.items():
    tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": f"dev-{region}"}
    provider = aws.Provider(region, region=region, allowed_account_ids=[ACCOUNT], default_tags={"tags": tags})
    stack = TrainingStack(
        f"ml-{region}",
        {
            "region": region,
            "owner": "ml-platform",
            "allowed_account_ids": [ACCOUNT],
            "cluster": {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}},
            "node_groups": [
                {"name": "trn1", "instance_type": "trn1.32xlarge", "max_size": 4, "desired_size": nodes},
            ],
            "queues": [{"name": "research"}],
            "namespaces": [{"name": "vision", "queues": ["research"]}],
        },
        pulumi.ResourceOptions(providers=[provider]),
    )
    # `trn --outputs FILE` reads one region's part: pulumi stack output us-west-2 --json --show-secrets > FILE
    pulumi.export(region, stack.exports())
