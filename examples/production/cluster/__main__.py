"""A production environment with a private endpoint, in the network that the stack `production-network` made."""

import pulumi
import pulumi_aws as aws

from trainium_eks import TrainingStack, default_tags, read_config, read_output

network = f"{pulumi.get_organization()}/production-network/{pulumi.get_stack()}"
config = read_config(existing_network=read_output(network, "existingNetwork"))
provider = aws.Provider(
    "aws",
    region=config.region,
    allowed_account_ids=sorted(config.allowed_account_ids),
    default_tags={"tags": default_tags(config)},
)
stack = TrainingStack(f"trn-{pulumi.get_stack()}", config, pulumi.ResourceOptions(providers=[provider]))
for output, value in stack.exports().items():
    pulumi.export(output, value)
