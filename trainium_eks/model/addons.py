"""The sections for the accelerators' Kubernetes add-ons."""

from typing import Any

from trainium_eks.model.shape import Flag, Shape


class NeuronAddonsConfig(Shape):
    """Neuron device plugin, EFA device plugin, neuron-monitor."""

    scheduler_extension: Flag = False
    """Neuron's scheduler extension: only for pods that take part of a node, and never with Volcano's scheduler."""
    monitor: Flag = True
    """neuron-monitor on every Trainium node (metrics on port 8000)."""
    neuron_values: dict[str, Any] = {}
    """Further values for the neuron-helm-chart, laid over the stack's."""


class GpuAddonsConfig(Shape):
    """NVIDIA device plugin, EFA device plugin, DCGM exporter, Kubeflow Training Operator."""

    training_operator: Flag = True
    """Kubeflow Training Operator v1.9.3 (PyTorchJob, MPIJob)."""
    dcgm_exporter: Flag = True
    """GPU metrics on port 9400."""
    nvidia_values: dict[str, Any] = {}
    """Further values for the nvidia-device-plugin chart, laid over the stack's."""
