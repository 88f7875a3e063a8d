"""Container logs in CloudWatch Logs for half a year, encrypted with the program's key."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from trainium_eks import EncryptionKey, LogShipping

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
clusters = pulumi.StackReference("organization/clusters/dev")
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
key = EncryptionKey("key", {"region": "us-west-2"}, pulumi.ResourceOptions(providers=[provider]))
logs = LogShipping(
    "logs",
    {
        "region": "us-west-2",
        "cluster_name": "my-cluster",
        "kms_key_arn": key.key_arn,
        "retention_days": 180,
    },
    pulumi.ResourceOptions(providers=[cluster, provider]),
)
pulumi.export("logGroup", logs.log_group)
