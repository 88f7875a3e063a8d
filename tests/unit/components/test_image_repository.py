"""ImageRepository: images are scanned, never overwritten, encrypted, and cleaned up."""

import json

from unit.components.parts import one, recorder

from components import ImageRepository
from components.image_repository import default_name
from trainium_eks.model.config import repository
from trainium_eks.model.config.repository import ImageRepositoryConfig

KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
images = recorder(ImageRepository, "images", {"region": "us-west-2", "kms_key_arn": KEY})


def test_images_are_scanned_immutable_encrypted_and_kept_on_destroy(record):
    inputs = one(images(record), "Repository").inputs
    assert inputs["imageScanningConfiguration"] == {"scanOnPush": True}
    assert inputs["imageTagMutability"] == "IMMUTABLE"
    assert inputs["encryptionConfigurations"] == [{"encryptionType": "KMS", "kmsKey": KEY}]
    assert (inputs["forceDelete"], inputs["name"]) == (False, "trainium-eks-test/training")
    # Without a key it makes one, and images go with the repository only when asked.
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


def test_unused_images_expire_and_the_default_name_is_valid(record):
    for stack in ("dev", "Dev-2", "gpu.eu_1"):
        assert repository.validate(ImageRepositoryConfig(name=default_name("trainium-eks", stack))) == []
    policy = json.loads(one(images(record, kept_images=5, untagged_days=2), "LifecyclePolicy").inputs["policy"])
    untagged, tagged = (rule["selection"] for rule in policy["rules"])
    since = {"countType": "sinceImagePushed", "countUnit": "days", "countNumber": 2}
    assert untagged == {"tagStatus": "untagged", **since}
    more = {"countType": "imageCountMoreThan", "countNumber": 5}
    assert tagged == {"tagStatus": "tagged", "tagPatternList": ["*"], **more}
    assert [rule["rulePriority"] for rule in policy["rules"]] == [1, 2]
    assert {rule["action"]["type"] for rule in policy["rules"]} == {"expire"}
