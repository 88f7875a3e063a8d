"""Amazon Managed Grafana for the metrics of a cluster. IAM Identity Center must be on in the organisation."""

import pulumi
import pulumi_aws as aws

from trainium_eks import ManagedGrafana

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
grafana = ManagedGrafana(
    "grafana",
    {"workspace_arn": "arn:aws:aps:us-west-2:111122223333:workspace/ws-0a1b2c3d", "authentication": "AWS_SSO"},
    pulumi.ResourceOptions(providers=[provider]),
)
pulumi.export("endpoint", grafana.endpoint)
