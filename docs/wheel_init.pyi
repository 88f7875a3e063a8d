# The package as the wheel has it. Written by docs/typed_dicts.py (make docs).

from .components import AcceleratorNodeGroup as AcceleratorNodeGroup
from .components import AcceleratorNodeGroupArgs as AcceleratorNodeGroupArgs
from .components import ArgumentError as ArgumentError
from .components import ClusterAutoscaler as ClusterAutoscaler
from .components import ClusterAutoscalerArgs as ClusterAutoscalerArgs
from .components import EncryptionKey as EncryptionKey
from .components import EncryptionKeyArgs as EncryptionKeyArgs
from .components import ExistingNetwork as ExistingNetwork
from .components import ExistingNetworkArgs as ExistingNetworkArgs
from .components import FsxLustre as FsxLustre
from .components import FsxLustreArgs as FsxLustreArgs
from .components import GpuAddons as GpuAddons
from .components import GpuAddonsArgs as GpuAddonsArgs
from .components import IdleGuard as IdleGuard
from .components import IdleGuardArgs as IdleGuardArgs
from .components import ImageRepository as ImageRepository
from .components import ImageRepositoryArgs as ImageRepositoryArgs
from .components import Karpenter as Karpenter
from .components import KarpenterArgs as KarpenterArgs
from .components import LogShipping as LogShipping
from .components import LogShippingArgs as LogShippingArgs
from .components import LustreVolumes as LustreVolumes
from .components import LustreVolumesArgs as LustreVolumesArgs
from .components import ManagedGrafana as ManagedGrafana
from .components import ManagedGrafanaArgs as ManagedGrafanaArgs
from .components import MetricsStack as MetricsStack
from .components import MetricsStackArgs as MetricsStackArgs
from .components import Network as Network
from .components import NetworkArgs as NetworkArgs
from .components import NeuronAddons as NeuronAddons
from .components import NeuronAddonsArgs as NeuronAddonsArgs
from .components import TrainingNamespace as TrainingNamespace
from .components import TrainingNamespaceArgs as TrainingNamespaceArgs
from .components import TrainingStack as TrainingStack
from .components import TrainiumCluster as TrainiumCluster
from .components import TrainiumClusterArgs as TrainiumClusterArgs
from .components import VolcanoStack as VolcanoStack
from .components import VolcanoStackArgs as VolcanoStackArgs
from .components import default_tags as default_tags
from .components import read_config as read_config

__version__: str
