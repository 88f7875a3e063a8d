"""StackConfig: everything an environment can say, in one validated model."""

import json
from collections.abc import Mapping
from typing import Any

from trainium_eks.model.addons import GpuAddonsConfig, NeuronAddonsConfig
from trainium_eks.model.cluster import ClusterConfig
from trainium_eks.model.namespaces import NamespaceConfig
from trainium_eks.model.network import ExistingNetworkConfig, NetworkConfig
from trainium_eks.model.node_groups import NodeGroupConfig
from trainium_eks.model.problems import Problem
from trainium_eks.model.queues import QueueConfig, VolcanoConfig
from trainium_eks.model.repository import ImageRepositoryConfig
from trainium_eks.model.shape import Flag, Shape, ShapeError, read
from trainium_eks.model.storage import FileSystemConfig


class StackConfig(Shape):
    """One environment. Each field is a key of the stack's config file, in camelCase."""

    region: str
    """AWS region. us-east-1, us-east-2 and us-west-2 work from defaults; others need ``network.zoneIds``."""
    owner: str
    """Who answers for this environment; tag ``Owner`` on everything."""
    cost_center: str = "training"
    """Tag ``CostCenter`` on everything."""
    production: Flag = False
    """True holds the environment to the production rules: deletion protection, ``protect`` on what holds data,
    private endpoint or named ranges, NAT per zone."""
    allowed_account_ids: tuple[str, ...] = ()
    """The only AWS accounts this environment may be built in (12 digits each). Empty: any, waive R67."""
    tags: dict[str, str] = {}
    """Further tags on everything."""
    network: NetworkConfig = NetworkConfig()
    """The VPC to make; see also ``existing_network``."""
    existing_network: ExistingNetworkConfig | None = None
    """A VPC to use instead of making one."""
    cluster: ClusterConfig = ClusterConfig()
    """Control plane and CPU nodes."""
    node_groups: tuple[NodeGroupConfig, ...] = (
        NodeGroupConfig(name="trn1-32xl-ng1", instance_type="trn1.32xlarge", min_size=0, max_size=4, desired_size=2),
        NodeGroupConfig(name="trn1n-32xl-ng", instance_type="trn1n.32xlarge", min_size=0, max_size=2, desired_size=0),
    )
    """Accelerator node groups."""
    instance_types: dict[str, dict[str, Any]] = {}
    """Catalogue entries added or changed: ``{trn3.48xlarge: {…}}`` with the fields of the catalogue."""
    file_system: FileSystemConfig | None = FileSystemConfig()
    """The shared file system; null for none."""
    volcano: VolcanoConfig = VolcanoConfig()
    """Gang scheduler."""
    queues: tuple[QueueConfig, ...] = (QueueConfig(name="test"),)
    """Volcano queues."""
    namespaces: tuple[NamespaceConfig, ...] = (NamespaceConfig(name="training", queues=("test",)),)
    """Team namespaces."""
    image_repository: ImageRepositoryConfig | None = ImageRepositoryConfig()
    """Repository for training images; null for none."""
    neuron_addons: NeuronAddonsConfig = NeuronAddonsConfig()
    """Add-ons of Trainium and Inferentia groups; installed when there is such a group."""
    gpu_addons: GpuAddonsConfig = GpuAddonsConfig()
    """Add-ons of GPU groups; installed when there is such a group."""
    waivers: dict[str, str] = {}
    """Rules that this environment breaks on purpose, each with its reason: ``{R06: torn down every night}``."""


def decode(values: Mapping[str, str]) -> dict[str, Any]:
    """Config values as Pulumi stores them (text, JSON for what is not text), as plain data.

    Args:
        values: key without namespace to text, as in ``{"region": "us-west-2", "nodeGroups": "[…]"}``.

    Raises:
        ShapeError: for text that should be JSON and is not.
    """
    plain = {(field.alias or name) for name, field in StackConfig.model_fields.items() if field.annotation is str}
    data: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, text in values.items():
        if key in plain:
            data[key] = text
            continue
        try:
            data[key] = json.loads(text)
        except ValueError as error:
            if key in {field.alias for field in StackConfig.model_fields.values()}:
                problems.append(Problem(key, f"expected JSON (an object, array, number or true/false), got {text!r}: {error}"))
            data[key] = text
    if problems:
        raise ShapeError(problems)
    return data


def load(values: Mapping[str, str]) -> StackConfig:
    """The stack's config from Pulumi's key-to-text map.

    Raises:
        ShapeError: with every fault of shape. Whether the values make sense is for :func:`problems`.
    """
    return read(StackConfig, decode(values))
