"""A pull-through cache of ECR, and the name of an image in it."""

import pulumi
import pulumi_aws as aws

from trainium_eks import EncryptionKey, ImageCache

ACCOUNT = "111122223333"
tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=[ACCOUNT], default_tags={"tags": tags})
opts = pulumi.ResourceOptions(providers=[provider])
key = EncryptionKey("key", {"region": "us-west-2"}, opts)
image = "public.ecr.aws/docker/library/python"
cache = ImageCache(
    "cache", {"region": "us-west-2", "account_id": ACCOUNT, "kms_key_arn": key.key_arn, "images": [image]}, opts
)
pulumi.export("python", pulumi.Output.concat(cache.prefix, "/ecr/docker/library/python:3.13.7-slim-bookworm"))
