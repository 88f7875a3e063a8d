"""ImageRepository: images are scanned, never overwritten, encrypted, and cleaned up."""

import json
from typing import Any

import pytest
from unit.components.parts import Record, one

from components import ImageRepository
from components.image_repository import default_name
from trainium_eks.model.config import repository
from trainium_eks.model.config.repository import ImageRepositoryConfig
from trainium_eks.plan.graph import Graph

KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
WIRING: dict[str, Any] = {"region": "us-west-2", "kms_key_arn": KEY}


def images(record: Record, **args: Any) -> Graph:
    return record(lambda: ImageRepository("images", {**WIRING, **args}) and None)


def test_images_are_scanned_immutable_encrypted_and_kept_on_destroy(record: Record) -> None:
    inputs = one(images(record), "Repository").inputs
    assert inputs["imageScanningConfiguration"] == {"scanOnPush": True}
    assert inputs["imageTagMutability"] == "IMMUTABLE"
    assert inputs["encryptionConfigurations"] == [{"encryptionType": "KMS", "kmsKey": KEY}]
    assert (inputs["forceDelete"], inputs["name"]) == (False, "trainium-eks-test/training")


@pytest.mark.parametrize("stack", ["dev", "Dev-2", "gpu.eu_1"])
def test_default_name_is_one_that_ecr_takes(stack: str) -> None:
    assert repository.validate(ImageRepositoryConfig(name=default_name("trainium-eks", stack))) == []


def test_unused_images_expire(record: Record) -> None:
    policy = json.loads(one(images(record, kept_images=5, untagged_days=2), "LifecyclePolicy").inputs["policy"])
    untagged, tagged = (rule["selection"] for rule in policy["rules"])
    since = {"countType": "sinceImagePushed", "countUnit": "days", "countNumber": 2}
    assert untagged == {"tagStatus": "untagged", **since}
    more = {"countType": "imageCountMoreThan", "countNumber": 5}
    assert tagged == {"tagStatus": "tagged", "tagPatternList": ["*"], **more}
    assert [rule["rulePriority"] for rule in policy["rules"]] == [1, 2]
    assert {rule["action"]["type"] for rule in policy["rules"]} == {"expire"}


def test_without_a_key_it_makes_one_and_images_go_with_the_repository_only_when_asked(record: Record) -> None:
    graph = images(record, kms_key_arn=None, force_delete=True, name="team/bert")
    made = one(graph, "Repository")
    (encryption,) = made.inputs["encryptionConfigurations"]
    assert encryption["kmsKey"] == one(graph, "Key").outputs["arn"]
    assert (made.inputs["forceDelete"], made.inputs["name"]) == (True, "team/bert")
    assert one(graph, "ImageRepository").outputs == {
        "repository_url": made.outputs["repositoryUrl"],
        "repository_arn": made.outputs["arn"],
        "repository_name": made.outputs["name"],
    }
