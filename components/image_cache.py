"""ImageCache: images of other registries from the account's own, which brings each of them once."""

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.catalogue import regions
from trainium_eks.model.catalogue.cached_images import LONGEST_PREFIX, UPSTREAMS, Cache
from trainium_eks.model.config import image_cache
from trainium_eks.model.config.image_cache import ImageCacheConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.problems import Problem

from . import _ids
from ._args import Tags, outputs, validate_args
from ._dicts import ImageCacheArgsDict
from .image_repository import make_repository

RELEASE = "kubernetes:helm.sh/v3:Release"


class ImageCacheArgs(ImageCacheConfig):
    """Args of :class:`ImageCache`: the config's section, and its wiring."""

    region: formats.Region
    """AWS region."""
    account_id: str
    """Account of the registry, 12 digits."""
    kms_key_arn: _ids.KeyArn
    """Key for the images."""
    images: tuple[str, ...] = ()
    """Images that it may bring, without tags; those of registries that it does not cache are left out."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags in addition to the provider's."""


def validate(args: ImageCacheArgs) -> list[Problem]:
    """Return the problems of the cache."""
    found = [*image_cache.validate(args, (args.account_id,)), *formats.account_id("account_id", args.account_id)]
    return found + formats.tags("tags", args.tags)


class ImageCache(pulumi.ComponentResource):
    """ECR's pull-through cache: a rule for each registry, and the repositories that it may fill.

    Repositories are made here, with the stack's key, tags that never move and a scan of each image: without them ECR
    would make them by a template, and nodes would need the right to make repositories (decision 106).
    """

    prefix: pulumi.Output[str]
    """Registry with the start of all its repositories."""

    def __init__(
        self,
        name: str,
        args: ImageCacheArgs | ImageCacheArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(
            ImageCacheArgs, args, validate, f"ImageCache {name}", naming=lambda _: _name_problems(), opts=opts
        )
        super().__init__("trainium-eks:index:ImageCache", name, {}, opts)
        cache = cache_of(args, args.region, args.account_id)
        secrets = {"docker.io": args.docker_hub_secret_arn, "ghcr.io": args.github_secret_arn}
        # Name in the registry of each image that the cache serves.
        cached = sorted(cache.of(each).partition("/")[2] for each in set(args.images) if cache.of(each) != each)
        rules = [
            aws.ecr.PullThroughCacheRule(
                f"{name}-{UPSTREAMS[registry][0]}",
                ecr_repository_prefix=cache.of(registry).partition("/")[2],
                upstream_registry_url=UPSTREAMS[registry][1],
                credential_arn=secrets.get(registry),
                opts=pulumi.ResourceOptions(parent=self),
            )
            for registry in args.registries
        ]
        opts_of = pulumi.ResourceOptions(parent=self, depends_on=rules)
        self.made: list[pulumi.Resource] = [
            make_repository(
                f"{name}-{each.partition('/')[2].replace('/', '-')}", each, args.kms_key_arn, True, args.tags, opts_of
            )
            for each in cached
        ]
        """Repositories, which pods with their images wait for."""
        self.prefix = pulumi.Output.from_input(cache.prefix)
        self.register_outputs(outputs(self, ImageCache))


def cache_of(config: ImageCacheConfig, region: str, account_id: str) -> Cache:
    """Return the cache's names of images, as plain data: charts are rendered in previews."""
    return Cache(f"{account_id}.dkr.ecr.{region}.{regions.dns_suffix(region)}/{_own_prefix()}", config.registries)


def from_cache(cache: Cache) -> pulumi.ResourceTransform:
    """Return the transform that takes images of all pods and charts below a component from a cache: one mechanism for
    every chart, although each names images in its own way."""

    def replace(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        if not args.type_.startswith("kubernetes:"):
            return None
        props, values = dict(args.props), args.props.get("values")
        if args.type_ == RELEASE and isinstance(values, dict):
            props["values"] = cache.in_values(str(props.get("chart", "")).rstrip("/").rpartition("/")[2], values)
        return pulumi.ResourceTransformResult(cache.rewrite_images(props), args.opts)

    return replace


def _own_prefix() -> str:
    return f"{pulumi.get_project()}-{pulumi.get_stack()}".lower()


def _name_problems() -> list[Problem]:
    if len(own := _own_prefix()) <= LONGEST_PREFIX:
        return []
    reason = f"project and stack are the cache's prefix, {own!r}, of which ECR takes {LONGEST_PREFIX} characters"
    return [Problem("", reason, "give the stack a shorter name")]
