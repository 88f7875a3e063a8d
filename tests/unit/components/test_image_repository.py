"""ImageRepository: images are scanned, never overwritten, encrypted, and cleaned up."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from components import ArgumentError, ImageRepository
from components.image_repository import default_name
from trainium_eks.model.config import repository
from trainium_eks.model.config.repository import ImageRepositoryConfig
from trainium_eks.plan.graph import Graph, Resource

REPOSITORY = "aws:ecr/repository:Repository"
LIFECYCLE = "aws:ecr/lifecyclePolicy:LifecyclePolicy"
KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
WIRING: dict[str, Any] = {"region": "us-west-2", "kms_key_arn": KEY}

Record = Callable[..., Graph]


def images(record: Record, *, dry_run: bool = False, **args: Any) -> Graph:
    return record(lambda: ImageRepository("images", {**WIRING, **args}) and None, dry_run=dry_run)


def one(graph: Graph, type_: str) -> Resource:
    (found,) = graph.of_type(type_)
    return found


def test_images_are_scanned_immutable_encrypted_and_kept_on_destroy(record: Record) -> None:
    inputs = one(images(record), REPOSITORY).inputs
    assert inputs["imageScanningConfiguration"] == {"scanOnPush": True}
    assert inputs["imageTagMutability"] == "IMMUTABLE"
    assert inputs["encryptionConfigurations"] == [{"encryptionType": "KMS", "kmsKey": KEY}]
    assert inputs["forceDelete"] is False


def test_name_is_the_stacks_unless_given(record: Record) -> None:
    assert one(images(record), REPOSITORY).inputs["name"] == "trainium-eks-test/training"
    assert one(images(record, name="team/bert"), REPOSITORY).inputs["name"] == "team/bert"


@pytest.mark.parametrize("stack", ["dev", "Dev-2", "gpu.eu_1"])
def test_default_name_is_one_that_ecr_takes(stack: str) -> None:
    assert repository.validate(ImageRepositoryConfig(name=default_name("trainium-eks", stack))) == []


def test_unused_images_expire(record: Record) -> None:
    policy = json.loads(one(images(record, kept_images=5, untagged_days=2), LIFECYCLE).inputs["policy"])
    untagged, tagged = (rule["selection"] for rule in policy["rules"])
    assert untagged == {
        "tagStatus": "untagged",
        "countType": "sinceImagePushed",
        "countUnit": "days",
        "countNumber": 2,
    }
    assert tagged == {
        "tagStatus": "tagged",
        "tagPatternList": ["*"],
        "countType": "imageCountMoreThan",
        "countNumber": 5,
    }
    assert [rule["rulePriority"] for rule in policy["rules"]] == [1, 2]
    assert {rule["action"]["type"] for rule in policy["rules"]} == {"expire"}


def test_lifecycle_is_that_of_the_repository(record: Record) -> None:
    graph = images(record)
    assert one(graph, LIFECYCLE).inputs["repository"] == one(graph, REPOSITORY).outputs["name"]


def test_without_a_key_it_makes_one(record: Record) -> None:
    graph = images(record, kms_key_arn=None)
    (encryption,) = one(graph, REPOSITORY).inputs["encryptionConfigurations"]
    assert encryption["kmsKey"] == one(graph, "aws:kms/key:Key").outputs["arn"]


def test_images_go_with_the_repository_only_when_asked(record: Record) -> None:
    assert one(images(record, force_delete=True), REPOSITORY).inputs["forceDelete"] is True


def test_outputs_say_where_to_push(record: Record) -> None:
    graph = images(record)
    made = one(graph, REPOSITORY).outputs
    assert one(graph, "trainium-eks:index:ImageRepository").outputs == {
        "repository_url": made["repositoryUrl"],
        "repository_arn": made["arn"],
        "repository_name": made["name"],
    }


def test_preview_plans_the_same_resources(record: Record) -> None:
    assert [each.urn for each in images(record, dry_run=True).resources] == [
        each.urn for each in images(record).resources
    ]


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"name": "Team/BERT"}, "name"),
        ({"kept_images": 0}, "kept_images"),
        ({"untagged_days": 0}, "untagged_days"),
        ({"kept_image": 3}, "kept_image"),
        ({"force_delete": "yes"}, "force_delete"),
    ],
)
def test_bad_args_are_refused_by_name(args: dict[str, Any], path: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        ImageRepository("images", {**WIRING, **args})
    assert [problem.path for problem in caught.value.problems] == [path]
