"""A repository for training images."""

import pulumi
import pulumi_aws as aws

from trainium_eks import ImageRepository

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
images = ImageRepository(
    "images",
    {"region": "us-west-2", "name": "ml/training", "kept_images": 50},
    pulumi.ResourceOptions(providers=[provider]),
)
pulumi.export("repository", images.repository_url)
