"""ImageCache, and a cluster of 300 nodes: what its plan says without the settings for it, and with them."""

import json

import pytest
from unit.components.parts import STACK, of_kind, one, recorder, releases

from components import ImageCache, TrainingStack
from components._args import ArgumentError
from trainium_eks.model.catalogue import cached_images
from trainium_eks.plan import cost
from trainium_eks.plan.rules import judge

HOST = "111122223333.dkr.ecr.us-west-2.amazonaws.com"
SECRET = "arn:aws:secretsmanager:us-west-2:111122223333:secret:ecr-pullthroughcache/{}-AbCdEf"
SECRETS = {"docker_hub_secret_arn": SECRET.format("docker"), "github_secret_arn": SECRET.format("github")}
KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
CACHE = {"region": "us-west-2", "account_id": "111122223333", "kms_key_arn": KEY}
GROUPS = [{"name": f"trn1-{zone}", "instance_type": "trn1.32xlarge", "max_size": 150} for zone in ("a", "b")]
LARGE = {
    **STACK,
    "node_groups": GROUPS,
    "file_system": None,
    "autoscaling": {"karpenter": {}},
    "observability": {"metrics": {}, "grafana": {}, "logs": {"retention_days": 365}},
}
BOUNDS = {"max_unhealthy_node_threshold_percentage": 10, "max_parallel_nodes_repaired_count": 4}
SCALING = {"coredns": {"settings": {"autoScaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 24}}}}
SETTINGS = {
    "cluster": {**STACK["cluster"], "control_plane_tier": "tier-xl", "addons": SCALING},
    "node_groups": [{**group, "node_repair": BOUNDS} for group in GROUPS],
    "image_cache": SECRETS,
}
stack = recorder(TrainingStack, "trn", LARGE)


def failing(graph):
    return {each.id for each in judge(graph) if each.status == "fail" and each.id > "R94"}


def test_three_hundred_nodes_fail_their_rules_until_configured(record):
    before, after = stack(record), stack(record, **SETTINGS)
    assert failing(before) == {"R95", "R96", "R97", "R99"}
    assert failing(after) == set()
    assert one(after, "aws:eks/cluster:Cluster").inputs["controlPlaneScalingConfig"] == {"tier": "tier-xl"}
    assert json.loads(one(after, "Addon", "coredns").inputs["configurationValues"]) == SCALING["coredns"]["settings"]
    repaired = [each.inputs["nodeRepairConfig"] for each in of_kind(after, "NodeGroup") if "trn1" in each.name]
    bounds = {"maxUnhealthyNodeThresholdPercentage": 10, "maxParallelNodesRepairedCount": 4}
    assert repaired == [{"enabled": True, **bounds}] * 2
    dearer = cost.estimate(after).hourly_usd - cost.estimate(before).hourly_usd
    assert dearer == pytest.approx(1.65)
    assert one(after, "TrainingStack").outputs["stack_outputs"]["hourlyUsd"] == pytest.approx(
        cost.estimate(after).hourly_usd, abs=0.005
    )


def test_every_cacheable_image_comes_from_the_accounts_registry(record):
    graph = stack(record, image_cache=SECRETS)
    inside = [each for each in graph.resources if each.type.startswith("kubernetes:")]
    outside = [text for each in inside for text in leaves(each.inputs) if text.startswith((*cached_images.UPSTREAMS,))]
    assert outside == [], "charts come by oci://, images from no other registry"
    made = releases(graph)
    assert made["volcano"].inputs["values"]["basic"]["image_registry"] == f"{HOST}/trainium-eks-test/docker"
    plugin = made["neuron"].inputs["values"]["devicePlugin"]
    assert plugin["image"]["repository"] == f"{HOST}/trainium-eks-test/ecr/neuron/neuron-device-plugin"
    assert plugin["tolerations"], "the chart's other values stay"
    rule = one(graph, "PullThroughCacheRule", "-docker")
    assert rule.inputs["credentialArn"] == SECRETS["docker_hub_secret_arn"]
    repositories = [each for each in of_kind(graph, "Repository") if "-cache-" in each.name]
    assert {each.inputs["imageTagMutability"] for each in repositories} == {"IMMUTABLE"}
    assert all(rule.urn in each.dependencies for each in repositories)
    waits = graph.by_urn[made["volcano"].parent].dependencies
    assert {each.urn for each in repositories} <= set(waits), "before the first pull"


def test_cache_without_secrets_covers_only_public_registries(record):
    graph = record(lambda: ImageCache("cache", {**CACHE, "images": ("docker.io/a/b", "quay.io/c/d")}) and None)
    rules = {each.inputs["upstreamRegistryUrl"]: each.inputs for each in of_kind(graph, "PullThroughCacheRule")}
    assert sorted(rules) == ["public.ecr.aws", "quay.io", "registry.k8s.io"]
    assert rules["quay.io"] == {"ecrRepositoryPrefix": "trainium-eks-test/quay", "upstreamRegistryUrl": "quay.io"}
    assert [each.inputs["name"] for each in of_kind(graph, "Repository")] == ["trainium-eks-test/quay/c/d"]


def test_invalid_ecr_prefix_is_refused_before_creation(record, monkeypatch):
    monkeypatch.setattr("pulumi.get_stack", lambda: "a-stack-with-a-name")
    with pytest.raises(ArgumentError, match="of which ECR takes 23 characters"):
        record(lambda: ImageCache("cache", CACHE) and None)


def test_own_registry_is_kept_and_official_images_get_library():
    cache = cached_images.Cache(f"{HOST}/p", ("docker.io", "quay.io"))
    own = {"basic": {"image_registry": "mirror.example.com"}}
    assert cache.in_values("volcano", own) == own
    trainer = cache.in_values("kubeflow-trainer", {})
    assert trainer == {"runtimes": {"installer": {"image": {"registry": f"{HOST}/p/docker/library"}}}}
    spec = {"containers": [{"image": "quay.io/a/b:1@sha256:0"}, {"image": "nvcr.io/a/b:1"}]}
    assert [each["image"] for each in cache.rewrite_images(spec)["containers"]] == [
        f"{HOST}/p/quay/a/b:1@sha256:0",
        "nvcr.io/a/b:1",
    ]


def leaves(value):
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    elif isinstance(value, str):
        yield value
