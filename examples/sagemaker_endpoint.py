"""A SageMaker endpoint on Inferentia in a network that is there already."""

import pulumi
import pulumi_aws as aws

from trainium_eks import SageMakerEndpoint

network = pulumi.StackReference("organization/network/dev")
tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
endpoint = SageMakerEndpoint(
    "trn-reviews",
    {
        "name": "reviews",
        "region": "us-west-2",
        "vpc_id": network.require_output("vpcId"),
        "subnet_ids": [network.require_output("privateSubnetId")],
        "kms_key_arn": "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666",
        "bucket": "acme-training-data",
        "model": "sagemaker/training/reviews/output/model.tar.gz",
        "image": "111122223333.dkr.ecr.us-west-2.amazonaws.com/trainium-eks-dev/training:1",
        "instance_type": "ml.inf2.xlarge",
        "max_instances": 4,
    },
    pulumi.ResourceOptions(provider=provider),
)
pulumi.export("endpoint", endpoint.endpoint_name)
