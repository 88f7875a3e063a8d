# The public names for type checkers. Written by docs/typed_dicts.py (make docs).

from ._args import ArgumentError as ArgumentError
from ._kubeconfig import eks_kubeconfig as eks_kubeconfig
from ._stack_config import default_tags as default_tags
from ._stack_config import read_config as read_config
from ._stack_config import read_output as read_output
from .cluster import TrainiumCluster as TrainiumCluster
from .cluster import TrainiumClusterArgs as TrainiumClusterArgs
from .cluster_autoscaler import ClusterAutoscaler as ClusterAutoscaler
from .cluster_autoscaler import ClusterAutoscalerArgs as ClusterAutoscalerArgs
from .encryption_key import EncryptionKey as EncryptionKey
from .encryption_key import EncryptionKeyArgs as EncryptionKeyArgs
from .fsx_lustre import FsxLustre as FsxLustre
from .fsx_lustre import FsxLustreArgs as FsxLustreArgs
from .gpu_addons import GpuAddons as GpuAddons
from .gpu_addons import GpuAddonsArgs as GpuAddonsArgs
from .idle_guard import IdleGuard as IdleGuard
from .idle_guard import IdleGuardArgs as IdleGuardArgs
from .image_cache import ImageCache as ImageCache
from .image_cache import ImageCacheArgs as ImageCacheArgs
from .image_repository import ImageRepository as ImageRepository
from .image_repository import ImageRepositoryArgs as ImageRepositoryArgs
from .karpenter import Karpenter as Karpenter
from .karpenter import KarpenterArgs as KarpenterArgs
from .log_shipping import LogShipping as LogShipping
from .log_shipping import LogShippingArgs as LogShippingArgs
from .lustre_volumes import LustreVolumes as LustreVolumes
from .lustre_volumes import LustreVolumesArgs as LustreVolumesArgs
from .managed_grafana import ManagedGrafana as ManagedGrafana
from .managed_grafana import ManagedGrafanaArgs as ManagedGrafanaArgs
from .metrics_stack import MetricsStack as MetricsStack
from .metrics_stack import MetricsStackArgs as MetricsStackArgs
from .network import ExistingNetwork as ExistingNetwork
from .network import ExistingNetworkArgs as ExistingNetworkArgs
from .network import Network as Network
from .network import NetworkArgs as NetworkArgs
from .neuron_addons import NeuronAddons as NeuronAddons
from .neuron_addons import NeuronAddonsArgs as NeuronAddonsArgs
from .node_group import AcceleratorNodeGroup as AcceleratorNodeGroup
from .node_group import AcceleratorNodeGroupArgs as AcceleratorNodeGroupArgs
from .sagemaker_endpoint import SageMakerEndpoint as SageMakerEndpoint
from .sagemaker_endpoint import SageMakerEndpointArgs as SageMakerEndpointArgs
from .sagemaker_training import SageMakerTraining as SageMakerTraining
from .sagemaker_training import SageMakerTrainingArgs as SageMakerTrainingArgs
from .training_namespace import TrainingNamespace as TrainingNamespace
from .training_namespace import TrainingNamespaceArgs as TrainingNamespaceArgs
from .training_stack import TrainingStack as TrainingStack
from .volcano_stack import VolcanoStack as VolcanoStack
from .volcano_stack import VolcanoStackArgs as VolcanoStackArgs

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
    "ImageCache",
    "ImageCacheArgs",
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
    "SageMakerEndpoint",
    "SageMakerEndpointArgs",
    "SageMakerTraining",
    "SageMakerTrainingArgs",
    "TrainingNamespace",
    "TrainingNamespaceArgs",
    "TrainingStack",
    "TrainiumCluster",
    "TrainiumClusterArgs",
    "VolcanoStack",
    "VolcanoStackArgs",
    "default_tags",
    "eks_kubeconfig",
    "read_config",
    "read_output",
]
