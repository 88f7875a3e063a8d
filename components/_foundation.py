"""The foundation of a stack: key, network and cluster, which all its other components stand on."""

from dataclasses import dataclass
from typing import Any

import pulumi

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.network import additional_ranges
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.config_model import mark_validated

from ._args import merge_args, waivers_of
from ._stack_config import default_tags
from .cluster import TrainiumCluster, TrainiumClusterArgs
from .encryption_key import EncryptionKey, EncryptionKeyArgs
from .image_cache import ImageCache, ImageCacheArgs
from .network import ExistingNetwork, ExistingNetworkArgs, Network, NetworkArgs


@dataclass(frozen=True)
class Foundation:
    """The stack's config, key, network and cluster, which its other components share."""

    stack: pulumi.Resource
    """The component that they belong to."""
    name: str
    """Its logical name, which theirs start with."""
    config: StackConfig
    catalogue: Catalogue
    """The config's: with its own entries."""
    tags: dict[str, str]
    """The AWS provider's default tags, for resources that the provider does not tag."""
    key: EncryptionKey
    network: Network | ExistingNetwork
    cluster: TrainiumCluster
    cache: ImageCache | None

    def child(self) -> pulumi.ResourceOptions:
        """Return the options of a component with AWS resources alone."""
        return pulumi.ResourceOptions(parent=self.stack)

    def in_cluster(self, *also: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of a component in Kubernetes: the cluster's provider, after the system nodes, DNS and
        ``also``."""
        wait_for = [*self.cluster.ready, *(self.cache.made if self.cache else ()), *also]
        return pulumi.ResourceOptions(parent=self.stack, providers=[self.cluster.provider], depends_on=wait_for)

    @property
    def for_aws_callers(self) -> dict[str, Any]:
        """The wiring that the stack passes to every :class:`~components._args.AwsCallerArgs`."""
        return {
            "region": self.config.region,
            "cluster_name": self.cluster.cluster_name,
            "permissions_boundary": self.config.permissions_boundary,
            "tags": self.tags,
        }


def make_foundation(name: str, config: StackConfig, stack: pulumi.Resource) -> Foundation:
    """Make key, network and cluster."""
    child = pulumi.ResourceOptions(parent=stack)
    catalogue, tags = model.catalogue(config), default_tags(config)
    key_args = EncryptionKeyArgs(region=config.region, kept_key_arn=config.kept_key_arn)
    key = EncryptionKey(f"{name}-key", key_args, child)
    network = _make_network(f"{name}-network", config, key, child)
    args = merge_args(
        TrainiumClusterArgs,
        config.cluster,
        region=config.region,
        vpc_id=network.vpc_id,
        vpc_cidr_block=network.cidr_block,
        peer_cidr_blocks=additional_ranges(config.existing_network or config.network),
        subnet_ids_by_zone={zone: network.private_subnet_id(zone) for zone in network.zone_ids},
        egress=tuple(network.egress),
        node_groups=config.node_groups,
        catalogue=catalogue,
        kms_key_arn=key.key_arn,
        permissions_boundary=config.permissions_boundary,
        lustre_network=model.lustre_network(config),
        file_systems_on_demand=config.file_system is not None and config.file_system.on_demand,
        production=config.production,
        tags=tags,
        waivers=waivers_of(config),
    )
    cluster = TrainiumCluster(f"{name}-cluster", mark_validated(args), child)
    cache = _make_cache(f"{name}-cache", config, key, child)
    return Foundation(stack, name, config, catalogue, tags, key, network, cluster, cache)


def _make_cache(name: str, config: StackConfig, key: EncryptionKey, child: pulumi.ResourceOptions) -> ImageCache | None:
    if config.image_cache is None:
        return None
    args = merge_args(
        ImageCacheArgs,
        config.image_cache,
        region=config.region,
        account_id=config.allowed_account_ids[0],
        kms_key_arn=key.key_arn,
        images=model.cached_images(config),
    )
    return ImageCache(name, mark_validated(args), child)


def _make_network(
    name: str, config: StackConfig, key: EncryptionKey, child: pulumi.ResourceOptions
) -> Network | ExistingNetwork:
    if config.existing_network is not None:
        wiring = merge_args(ExistingNetworkArgs, config.existing_network, region=config.region)
        return ExistingNetwork(name, mark_validated(wiring), child)
    args = merge_args(
        NetworkArgs,
        config.network,
        zone_ids=model.zone_ids(config),
        region=config.region,
        kms_key_arn=key.key_arn,
        permissions_boundary=config.permissions_boundary,
    )
    return Network(name, mark_validated(args), child)
