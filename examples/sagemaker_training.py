"""SageMaker training jobs in a network that is there already."""

import pulumi
import pulumi_aws as aws

from trainium_eks import SageMakerTraining

network = pulumi.StackReference("organization/network/dev")
tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
training = SageMakerTraining(
    "sagemaker",
    {
        "region": "us-west-2",
        "vpc_id": network.require_output("vpcId"),
        "subnet_ids": [network.require_output("privateSubnetId")],
        "kms_key_arn": "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666",
        "bucket": "acme-training-data",
        "prefix": "sagemaker",
    },
    pulumi.ResourceOptions(provider=provider),
)
pulumi.export("role", training.role_arn)
