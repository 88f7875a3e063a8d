"""The queue by which Karpenter learns that EC2 is about to take an instance."""

import json
from collections.abc import Mapping

import pulumi
import pulumi_aws as aws

from trainium_eks.model.policies.autoscaling_policies import interruption_statements

from . import _iam
from ._args import Text

RETENTION_SECONDS = 300
"""A warning that is older is of no use: Spot gives two minutes (Karpenter's CloudFormation template)."""

EVENTS: Mapping[str, tuple[str, str]] = {
    "health": ("aws.health", "AWS Health Event"),
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "state": ("aws.ec2", "EC2 Instance State-change Notification"),
    "reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
}
"""Events that Karpenter receives: source and detail type."""


def make_interruptions(
    name: str, tags: Mapping[str, Text], parent: pulumi.Resource
) -> tuple[aws.sqs.Queue, tuple[pulumi.Resource, ...]]:
    """Make the queue, encrypted by SQS, and what fills it: one rule for each kind of event. Rules match events of the
    whole account; Karpenter ignores instances that it did not start."""
    child = pulumi.ResourceOptions(parent=parent)
    queue = aws.sqs.Queue(
        f"{name}-interruptions",
        message_retention_seconds=RETENTION_SECONDS,
        sqs_managed_sse_enabled=True,
        tags=dict(tags),
        opts=child,
    )
    rules, targets = [], []
    for key, (source, detail_type) in EVENTS.items():
        rule = aws.cloudwatch.EventRule(
            f"{name}-{key}",
            description=f"{detail_type}, for Karpenter",
            event_pattern=json.dumps({"source": [source], "detail-type": [detail_type]}),
            tags=dict(tags),
            opts=child,
        )
        rules.append(rule)
        targets.append(aws.cloudwatch.EventTarget(f"{name}-{key}", rule=rule.name, arn=queue.arn, opts=child))
    document = pulumi.Output.all(queue.arn, *(rule.arn for rule in rules)).apply(
        lambda arns: _iam.policy(interruption_statements(arns[0], arns[1:]))
    )
    policy = aws.sqs.QueuePolicy(f"{name}-interruptions", queue_url=queue.url, policy=document, opts=child)
    return queue, (policy, *targets)
