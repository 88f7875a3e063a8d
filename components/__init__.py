"""Pulumi components that make an AWS account ready for distributed training with Amazon EKS.

Each loads on first use: a program with one component does not wait for the SDK modules of all others (1 s).
"""

from importlib import import_module
from typing import TYPE_CHECKING

from trainium_eks.model.validation.problems import snake

if TYPE_CHECKING:
    from ._args import ArgumentError
    from ._stack_config import default_tags, read_config
    from .cluster import TrainiumCluster, TrainiumClusterArgs
    from .cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerArgs
    from .encryption_key import EncryptionKey, EncryptionKeyArgs
    from .fsx_lustre import FsxLustre, FsxLustreArgs
    from .gpu_addons import GpuAddons, GpuAddonsArgs
    from .idle_guard import IdleGuard, IdleGuardArgs
    from .image_repository import ImageRepository, ImageRepositoryArgs
    from .karpenter import Karpenter, KarpenterArgs
    from .log_shipping import LogShipping, LogShippingArgs
    from .lustre_volumes import LustreVolumes, LustreVolumesArgs
    from .managed_grafana import ManagedGrafana, ManagedGrafanaArgs
    from .metrics_stack import MetricsStack, MetricsStackArgs
    from .network import ExistingNetwork, ExistingNetworkArgs, Network, NetworkArgs
    from .neuron_addons import NeuronAddons, NeuronAddonsArgs
    from .node_group import AcceleratorNodeGroup, AcceleratorNodeGroupArgs
    from .training_namespace import TrainingNamespace, TrainingNamespaceArgs
    from .training_stack import TrainingStack
    from .volcano_stack import VolcanoStack, VolcanoStackArgs

__all__ = [
    "AcceleratorNodeGroup",
    "AcceleratorNodeGroupArgs",
    "ArgumentError",
    "ClusterAutoscaler",
    "ClusterAutoscalerArgs",
    "EncryptionKey",
    "EncryptionKeyArgs",
    "ExistingNetwork",
    "ExistingNetworkArgs",
    "FsxLustre",
    "FsxLustreArgs",
    "GpuAddons",
    "GpuAddonsArgs",
    "IdleGuard",
    "IdleGuardArgs",
    "ImageRepository",
    "ImageRepositoryArgs",
    "Karpenter",
    "KarpenterArgs",
    "LogShipping",
    "LogShippingArgs",
    "LustreVolumes",
    "LustreVolumesArgs",
    "ManagedGrafana",
    "ManagedGrafanaArgs",
    "MetricsStack",
    "MetricsStackArgs",
    "Network",
    "NetworkArgs",
    "NeuronAddons",
    "NeuronAddonsArgs",
    "TrainingNamespace",
    "TrainingNamespaceArgs",
    "TrainingStack",
    "TrainiumCluster",
    "TrainiumClusterArgs",
    "VolcanoStack",
    "VolcanoStackArgs",
    "default_tags",
    "read_config",
]

# Where a name lives, when that is not the module called like the class.
_ELSEWHERE = {
    "AcceleratorNodeGroup": "node_group",
    "ArgumentError": "_args",
    "ExistingNetwork": "network",
    "TrainiumCluster": "cluster",
    "default_tags": "_stack_config",
    "read_config": "_stack_config",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    described = name.removesuffix("Args")
    module = _ELSEWHERE.get(described) or snake(described).lstrip("_")
    return getattr(import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
