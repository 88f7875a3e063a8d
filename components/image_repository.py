"""ImageRepository: the ECR repository of training images."""

import json

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.config import repository
from trainium_eks.model.config.repository import ImageRepositoryConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.problems import Problem

from . import _ids
from ._args import Tags, Text, outputs, validate_args
from ._dicts import ImageRepositoryArgsDict
from .encryption_key import EncryptionKeyArgs, given_or_made


class ImageRepositoryArgs(ImageRepositoryConfig):
    """Args of :class:`ImageRepository`: the config's section, and its wiring."""

    region: formats.Region
    """AWS region."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key for the images. None makes one."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags in addition to the provider's."""


def validate(args: ImageRepositoryArgs) -> list[Problem]:
    """Return the problems of the repository."""
    return [*repository.validate(args), *formats.tags("tags", args.tags)]


class ImageRepository(pulumi.ComponentResource):
    """An ECR repository: scanned on push, encrypted, with tags that never move and old images that expire."""

    repository_url: pulumi.Output[str]
    """Repository for ``docker push``, without a tag."""
    repository_arn: pulumi.Output[str]
    """ARN of the repository."""
    repository_name: pulumi.Output[str]
    """Name of the repository in its registry."""

    def __init__(
        self,
        name: str,
        args: ImageRepositoryArgs | ImageRepositoryArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(ImageRepositoryArgs, args, validate, f"ImageRepository {name}", opts=opts)
        super().__init__("trainium-eks:index:ImageRepository", name, {}, opts)
        self._args = args

        made_with = EncryptionKeyArgs(region=args.region, description=f"Images of {name}")
        self._repository = make_repository(
            f"{name}-repository",
            # People type it, so it has no random suffix; the stack keeps two environments of an account apart.
            args.name or default_name(pulumi.get_project(), pulumi.get_stack()),
            given_or_made(args.kms_key_arn, f"{name}-key", made_with, self),
            args.force_delete,
            args.tags,
            pulumi.ResourceOptions(parent=self),
        )
        aws.ecr.LifecyclePolicy(
            f"{name}-lifecycle",
            repository=self._repository.name,
            policy=lifecycle_policy(kept_images=args.kept_images, untagged_days=args.untagged_days),
            opts=pulumi.ResourceOptions(parent=self),
        )

        self.repository_url = self._repository.repository_url
        self.repository_arn = self._repository.arn
        self.repository_name = self._repository.name
        self.register_outputs(outputs(self, ImageRepository))


def make_repository(
    logical_name: str, name: str, kms_key_arn: Text, force_delete: bool, tags: Tags, opts: pulumi.ResourceOptions
) -> aws.ecr.Repository:
    """Make a repository: scanned on push, encrypted, with tags that never move."""
    return aws.ecr.Repository(
        logical_name,
        name=name,
        image_tag_mutability="IMMUTABLE",
        image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
        encryption_configurations=[
            aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=kms_key_arn)
        ],
        force_delete=force_delete,
        tags=dict(tags),
        opts=opts,
    )


def default_name(project: str, stack: str) -> str:
    """Return the name of a stack's repository, in lower case as ECR requires."""
    return f"{project}-{stack}/training".lower()


def lifecycle_policy(*, kept_images: int, untagged_days: int) -> str:
    """Return ECR's lifecycle policy, as JSON.

    Args:
        kept_images: tagged images to keep; the oldest expire first.
        untagged_days: days that an image without a tag stays.
    """
    untagged = {
        "rulePriority": 1,
        "description": f"Untagged images go after {untagged_days} days",
        "selection": {
            "tagStatus": "untagged",
            "countType": "sinceImagePushed",
            "countUnit": "days",
            "countNumber": untagged_days,
        },
        "action": {"type": "expire"},
    }
    tagged = {
        "rulePriority": 2,
        "description": f"The last {kept_images} tagged images stay",
        "selection": {
            "tagStatus": "tagged",
            "tagPatternList": ["*"],
            "countType": "imageCountMoreThan",
            "countNumber": kept_images,
        },
        "action": {"type": "expire"},
    }
    return json.dumps({"rules": [untagged, tagged]})
