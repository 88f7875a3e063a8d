"""Pulumi components that make an AWS account ready for distributed training with Amazon EKS.

Each loads on first use: a program with one component does not wait for the SDK modules of all others (1 s).
"""

from collections.abc import Mapping
from importlib import import_module

_NAMES: Mapping[str, tuple[str, ...]] = {
    "_args": ("ArgumentError",),
    "_stack_config": (
        "default_tags",
        "read_config",
    ),
    "cluster": (
        "TrainiumCluster",
        "TrainiumClusterArgs",
    ),
    "cluster_autoscaler": (
        "ClusterAutoscaler",
        "ClusterAutoscalerArgs",
    ),
    "encryption_key": (
        "EncryptionKey",
        "EncryptionKeyArgs",
    ),
    "fsx_lustre": (
        "FsxLustre",
        "FsxLustreArgs",
    ),
    "gpu_addons": (
        "GpuAddons",
        "GpuAddonsArgs",
    ),
    "idle_guard": (
        "IdleGuard",
        "IdleGuardArgs",
    ),
    "image_repository": (
        "ImageRepository",
        "ImageRepositoryArgs",
    ),
    "karpenter": (
        "Karpenter",
        "KarpenterArgs",
    ),
    "log_shipping": (
        "LogShipping",
        "LogShippingArgs",
    ),
    "lustre_volumes": (
        "LustreVolumes",
        "LustreVolumesArgs",
    ),
    "managed_grafana": (
        "ManagedGrafana",
        "ManagedGrafanaArgs",
    ),
    "metrics_stack": (
        "MetricsStack",
        "MetricsStackArgs",
    ),
    "network": (
        "ExistingNetwork",
        "ExistingNetworkArgs",
        "Network",
        "NetworkArgs",
    ),
    "neuron_addons": (
        "NeuronAddons",
        "NeuronAddonsArgs",
    ),
    "node_group": (
        "AcceleratorNodeGroup",
        "AcceleratorNodeGroupArgs",
    ),
    "training_namespace": (
        "TrainingNamespace",
        "TrainingNamespaceArgs",
    ),
    "training_stack": ("TrainingStack",),
    "volcano_stack": (
        "VolcanoStack",
        "VolcanoStackArgs",
    ),
}
"""Module to its public names. ``__init__.pyi``, which type checkers read, and the wheel's stub follow (make docs)."""

_MODULE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULE)  # noqa: PLE0605 - type checkers read it in the stub


def __getattr__(name: str) -> object:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
