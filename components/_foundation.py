"""The foundation of a stack: key, network and cluster, and the one way in which it makes its components."""

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

import pulumi

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config import karpenter
from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.network import additional_ranges
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.config_model import ConfigModel, mark_validated

from ._args import Text, waivers_of
from ._stack_config import default_tags
from .cluster import TrainiumCluster
from .encryption_key import EncryptionKey
from .image_cache import ImageCache
from .network import ExistingNetwork, Network

C = TypeVar("C")


class Foundation:
    """A stack's key, network, cluster and image cache, and the values that its other components share."""

    def __init__(self, stack: pulumi.Resource, name: str, config: StackConfig) -> None:
        """Make key, network, cluster and cache for the component ``stack``, whose name theirs begin with."""
        self.stack = stack
        self.name = name
        self.config = config
        self.key = self.make(EncryptionKey, "key", kept_key_arn=config.kept_key_arn)
        self.network = (
            self.make(ExistingNetwork, "network", config.existing_network)
            if config.existing_network is not None
            else self.make(Network, "network", config.network, zone_ids=model.zone_ids(config))
        )
        self.cluster = self.make(
            TrainiumCluster,
            "cluster",
            config.cluster,
            vpc_cidr_block=self.network.cidr_block,
            peer_cidr_blocks=additional_ranges(config.existing_network or config.network),
            egress=tuple(self.network.egress),
            node_groups=config.node_groups,
            file_systems_on_demand=config.file_system is not None and config.file_system.on_demand,
            tags=self.tags,
        )
        self.cache: ImageCache | None = None
        if config.image_cache is not None:
            account, images = config.allowed_account_ids[0], model.cached_images(config)
            self.cache = self.make(ImageCache, "cache", config.image_cache, account_id=account, images=images)

    @cached_property
    def catalogue(self) -> Catalogue:
        """Facts about instance types, with the config's own entries."""
        return model.catalogue(self.config)

    @cached_property
    def tags(self) -> dict[str, str]:
        """The AWS provider's default tags, for resources that the provider does not tag."""
        return default_tags(self.config)

    @cached_property
    def accelerator_pools(self) -> dict[str, str]:
        """Each accelerator node group and each of Karpenter's pools, to its instance type."""
        return {
            group.name: group.instance_type for group in (*self.config.node_groups, *karpenter.as_groups(self.config))
        }

    @cached_property
    def accelerator_types(self) -> tuple[str, ...]:
        """Instance types of accelerator nodes, each once."""
        return tuple(dict.fromkeys(self.accelerator_pools.values()))

    @cached_property
    def efa_types(self) -> tuple[str, ...]:
        """Accelerator types with EFA."""
        return tuple(each for each in self.accelerator_types if self.catalogue.find(each).has_efa)

    def make(
        self,
        component: Callable[[str, Any, pulumi.ResourceOptions], C],
        suffix: str,
        section: ConfigModel | None = None,
        opts: pulumi.ResourceOptions | None = None,
        *,
        is_validated: bool = True,
        **wiring: Any,
    ) -> C:
        """Make a component of its config section, the values that the stack shares, and ``wiring``.

        ``NetworkArgs`` extends ``NetworkConfig``, so no field is given twice: a component's args are the section, then
        each shared value that they have a field for and the section has not, then the wiring. Values are passed through
        uncopied, so Outputs stay themselves. ``is_validated`` says that the stack's validation covers all that the
        component checks.
        """
        # By its name: for other languages the provider replaces the annotation of ``args``.
        spec: type[ConfigModel] = vars(import_module(component.__module__))[f"{component.__name__}Args"]
        given = {**dict(section or {}), **wiring}
        shared = {
            name: self._shared[name]() for name in self._shared if name in spec.model_fields and name not in given
        }
        args = spec(**shared, **given)
        name = f"{self.name}-{suffix}"
        return component(name, mark_validated(args) if is_validated else args, opts or self.child())

    @property
    def _shared(self) -> dict[str, Callable[[], object]]:
        """What components ask for by the names of their args; made only when one asks."""
        config = self.config
        return {
            "region": lambda: config.region,
            "production": lambda: config.production,
            "permissions_boundary": lambda: config.permissions_boundary,
            "waivers": lambda: waivers_of(config),
            "catalogue": lambda: self.catalogue,
            "lustre_network": lambda: model.lustre_network(config),
            "kms_key_arn": lambda: self.key.key_arn,
            "vpc_id": lambda: self.network.vpc_id,
            "subnet_ids_by_zone": self.subnets,
            "cluster_name": lambda: self.cluster.cluster_name,
            "kubernetes_version": lambda: config.cluster.kubernetes_version,
        }

    def subnets(self) -> dict[str, Text]:
        """Return the private subnet of each zone."""
        return {zone: self.network.private_subnet_id(zone) for zone in self.network.zone_ids}

    def child(self) -> pulumi.ResourceOptions:
        """Return the options of a component with AWS resources alone."""
        return pulumi.ResourceOptions(parent=self.stack)

    def in_cluster(self, *also: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of a component in Kubernetes: the cluster's provider, after the system nodes, DNS and
        ``also``."""
        wait_for = [*self.cluster.ready, *(self.cache.made if self.cache else ()), *also]
        return pulumi.ResourceOptions(parent=self.stack, providers=[self.cluster.provider], depends_on=wait_for)
