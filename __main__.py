"""The stack program: read the environment's config, build one TrainingStack, export its outputs."""

import pulumi
import pulumi_aws as aws

from components import TrainingStack, read_config

config = read_config()

provider = aws.Provider(
    "aws",
    region=config.region,
    allowed_account_ids=list(config.allowed_account_ids) or None,
    default_tags={
        "tags": {
            "Environment": pulumi.get_stack(),
            "Owner": config.owner,
            "CostCenter": config.cost_center,
            "ManagedBy": "pulumi",
            **config.tags,
        }
    },
)

stack = TrainingStack(f"trn-{pulumi.get_stack()}", config, pulumi.ResourceOptions(providers=[provider]))

for name, value in stack.exports().items():
    pulumi.export(name, value)
