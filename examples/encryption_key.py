"""A key that Auto Scaling, EBS, FSx, EKS, ECR and CloudWatch Logs of one region may use."""

import pulumi
import pulumi_aws as aws

from trainium_eks import EncryptionKey

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
key = EncryptionKey("ml", {"region": "us-west-2"}, pulumi.ResourceOptions(providers=[provider]))
pulumi.export("keyArn", key.key_arn)
