"""Pulumi components that make an AWS account ready for distributed training with Amazon EKS."""

from ._args import ArgumentError
from .cluster import TrainiumCluster, TrainiumClusterArgs
from .encryption_key import EncryptionKey, EncryptionKeyArgs
from .fsx_lustre import FsxLustre, FsxLustreArgs
from .gpu_addons import GpuAddons, GpuAddonsArgs
from .image_repository import ImageRepository, ImageRepositoryArgs
from .lustre_volumes import LustreVolumes, LustreVolumesArgs
from .network import ExistingNetwork, ExistingNetworkArgs, Network, NetworkArgs
from .neuron_addons import NeuronAddons, NeuronAddonsArgs
from .node_group import AcceleratorNodeGroup, AcceleratorNodeGroupArgs
from .training_namespace import TrainingNamespace, TrainingNamespaceArgs
from .training_stack import TrainingStack, default_tags, read_config
from .volcano_stack import VolcanoStack, VolcanoStackArgs

__all__ = [
    "AcceleratorNodeGroup",
    "AcceleratorNodeGroupArgs",
    "ArgumentError",
    "EncryptionKey",
    "EncryptionKeyArgs",
    "ExistingNetwork",
    "ExistingNetworkArgs",
    "FsxLustre",
    "FsxLustreArgs",
    "GpuAddons",
    "GpuAddonsArgs",
    "ImageRepository",
    "ImageRepositoryArgs",
    "LustreVolumes",
    "LustreVolumesArgs",
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
