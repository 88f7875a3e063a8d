"""ImageRepository: images are scanned, never overwritten, encrypted, and cleaned up."""

import json

from unit.components.parts import one, recorder

from components import ImageRepository
from components.image_repository import default_name
from trainium_eks.model.config import repository
from trainium_eks.model.config.repository import ImageRepositoryConfig

KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
images = recorder(ImageRepository, "images", {"region": "us-west-2", "kms_key_arn": KEY})


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
