"""The whole environment of a config: the same program as this repository's own, for a project of yours."""

import pulumi
import pulumi_aws as aws

from trainium_eks import TrainingStack, default_tags, read_config

config = read_config()
provider = aws.Provider(
    "aws",
    region=config.region,
    allowed_account_ids=sorted(config.allowed_account_ids) or None,
    default_tags={"tags": default_tags(config)},
)
stack = TrainingStack(
    f"{pulumi.get_project()}-{pulumi.get_stack()}", config, pulumi.ResourceOptions(providers=[provider])
)
for output, value in stack.exports().items():
    pulumi.export(output, value)
