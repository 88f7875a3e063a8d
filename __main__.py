"""The stack program: read the environment's config, build one TrainingStack, export its outputs."""

import pulumi
import pulumi_aws as aws

from components import TrainingStack, default_tags, read_config

config = read_config()

provider = aws.Provider(
    "aws",
    region=config.region,
    allowed_account_ids=sorted(config.allowed_account_ids) or None,
    default_tags={"tags": default_tags(config)},
)

stack = TrainingStack(f"trn-{pulumi.get_stack()}", config, pulumi.ResourceOptions(providers=[provider]))

for name, value in stack.exports().items():
    pulumi.export(name, value)
