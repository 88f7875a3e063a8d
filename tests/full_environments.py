"""The environments, each with every feature that it can have."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import config_tables
from golden import ROOT

from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.plan.recording.process import record

DATA_BUCKET = "acme-data"
DATA_KEY = "arn:aws:kms:us-west-2:123456789012:key/44444444-4444-4444-4444-444444444444"
TOPIC_KEY = "arn:aws:kms:us-west-2:123456789012:key/55555555-5555-5555-5555-555555555555"
DOCKER_SECRET = "arn:aws:secretsmanager:us-west-2:123456789012:secret:ecr-pullthroughcache/docker-AbCdEf"
BOUNDARY = "arn:aws:iam::123456789012:policy/trn-boundary"
_ROLE = "arn:aws:iam::111122223333:role"
_TOPIC = "arn:aws:sns:us-west-2:111122223333:oncall"
_METRICS = {"managedPrometheus": True, "alerts": {"topicArn": _TOPIC, "topicKeyArn": TOPIC_KEY}}

_OFF = [
    field.alias or name
    for name, field in StackConfig.model_fields.items()
    for section in config_tables.models(field.annotation)
    if field.default is None and not any(each.is_required() for each in section.model_fields.values())
]
"""Sections that an environment lacks by default, and that need nothing said."""

EVERYWHERE: Mapping[str, Any] = {
    "allowedAccountIds": ["123456789012"],
    "permissionsBoundary": BOUNDARY,
    "observability": {"metrics": _METRICS, "grafana": {"managed": {}}, "logs": {"retentionDays": 365, "system": True}},
    **{each: {} for each in _OFF},
    "budget": {"hourlyUsd": 10_000, "nodes": 200, "alert": {"monthlyUsd": 1000, "emails": ["ml@example.com"]}},
    "gpuAddons": {"trainers": ["v2"]},
    "idleGuard": {"warnAfterMinutes": 10, "removeAfterMinutes": 60},
    "imageCache": {"dockerHubSecretArn": DOCKER_SECRET},
    "imageRepository": {"keptImages": 10},
    "neuronAddons": {"schedulerExtension": True},
    "volcano": {"rendezvous": "etcd", "scaleFromZero": True, "reclaim": True, "replicas": 3},
}
_ENDPOINT = {
    "name": "reviews",
    "model": "sagemaker/training/reviews/output/model.tar.gz",
    "image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/trainium-eks-gpu/training:1",
    "instanceType": "ml.inf2.xlarge",
}
_POOLS = [{"name": "inference", "instanceType": "inf2.48xlarge", "maxNodes": 2}]

OF_EACH: Mapping[str, Mapping[str, Any]] = {
    "dev": {
        "network": {"natGateways": "per-zone", "interfaceEndpoints": ["ecr.api", "ecr.dkr", "sts", "logs"]},
        "cluster": {"endpoint": {"publicAccessCidrs": ["0.0.0.0/0"]}, "adminPrincipals": [f"{_ROLE}/oncall"]},
        "nodeGroups": [
            {"name": "trn1", "instanceType": "trn1.32xlarge", "minSize": 0, "ignoreDesiredSize": True},
            {"name": "spot", "instanceType": "trn1n.32xlarge", "minSize": 0, "capacity": {"type": "spot"}},
            {"name": "gpu", "instanceType": "p5.4xlarge", "maxSize": 1},
        ],
        "autoscaling": {"karpenter": {"acceleratorPools": _POOLS}},
        "fileSystem": {"durability": {"type": "s3"}, "onDemand": True, "metadataIops": 6000},
        "waivers": {rule: {"reason": "a test", "expires": "2027-10-31"} for rule in ("R02", "R06", "R29")},
        "namespaces": [
            {
                "name": "training",
                "queues": ["test"],
                "principals": [f"{_ROLE}/training"],
                "dataBucket": DATA_BUCKET,
                "dataBucketKeyArn": DATA_KEY,
            }
        ],
    },
    "prod": {
        "autoscaling": {
            "clusterAutoscaler": {},
            "karpenter": {
                "cpuLimit": 0,
                "acceleratorPools": [{**_POOLS[0], "capacityReservationIds": ["cr-0fedcba9876543210"]}],
            },
        }
    },
    "gpu": {
        "cluster": {
            "endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]},
            "cpuNodes": {"ignoreDesiredSize": True},
        },
        "nodeGroups": [
            {"name": "p4d", "instanceType": "p4d.24xlarge", "minSize": 0, "maxSize": 4, "ignoreDesiredSize": True}
        ],
        "autoscaling": {"clusterAutoscaler": {"acceleratorGroups": ["p4d"]}},
        "fileSystem": {"durability": {"type": "s3", "bucket": DATA_BUCKET, "bucketKeyArn": DATA_KEY}},
        "sageMaker": {"logRetentionDays": 365, "servingTypes": ["ml.inf2.xlarge"]},
        "sageMakerEndpoints": [{**_ENDPOINT, "maxInstances": 4, "capturePercent": 10}],
    },
}


def given(stack):
    """Return the keys of the config in which an environment with all features differs."""
    return {f"trainium-eks:{key}": value for key, value in {**EVERYWHERE, **OF_EACH[stack]}.items()}


@cache
def recorded(stack):
    """Return the recording of an environment with all features on."""
    return changed(stack, dict)


def changed(stack, change, *, dry_run=False):
    """Return the same with a change of the whole config, full key to text."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given(stack).items()}

    def turn_on(settings):
        return replace(settings, config=change({**settings.config, **texts}))

    return record(ROOT, stack, adjust=turn_on, dry_run=dry_run)
