"""Prometheus, Grafana and the exporters, with everything written to Amazon Managed Prometheus too."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from trainium_eks import EncryptionKey, MetricsStack

tags = {"Owner": "ml-platform", "CostCenter": "training", "Environment": "dev"}
provider = aws.Provider("aws", region="us-west-2", allowed_account_ids=["111122223333"], default_tags={"tags": tags})
clusters = pulumi.StackReference("organization/clusters/dev")
cluster = kubernetes.Provider("cluster", kubeconfig=clusters.require_output("kubeconfig"))
key = EncryptionKey("key", {"region": "us-west-2"}, pulumi.ResourceOptions(providers=[provider]))
metrics = MetricsStack(
    "metrics",
    {
        "region": "us-west-2",
        "cluster_name": clusters.require_output("clusterName"),
        "managed_prometheus": True,
        "kms_key_arn": key.key_arn,
        "grafana": {"in_cluster": True},
        "node_selector": {"trainium-eks/pool": "cpu"},  # one zone: the volumes stay in theirs
        "efa_instance_types": ["trn1.32xlarge"],
        "alerts": {"topic_arn": "arn:aws:sns:us-west-2:111122223333:oncall"},
    },
    pulumi.ResourceOptions(providers=[cluster, provider]),
)
pulumi.export("workspace", metrics.workspace_endpoint)
