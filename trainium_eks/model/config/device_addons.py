"""The sections for the accelerators' Kubernetes add-ons."""

from typing import Any, Literal

import pydantic

from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool
from trainium_eks.model.validation.problems import Problem


class NeuronAddonsConfig(ConfigModel):
    """Neuron device plugin, EFA device plugin, neuron-monitor."""

    scheduler_extension: StrictBool = False
    """Neuron's scheduler extension: only for pods that take part of a node, and never with Volcano's scheduler."""
    monitor: StrictBool = True
    """neuron-monitor on every Trainium node (metrics on port 8000)."""
    neuron_values: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Further values for the neuron-helm-chart, merged over the stack's."""


class GpuAddonsConfig(ConfigModel):
    """NVIDIA device plugin, EFA device plugin, DCGM exporter, Kubeflow's controllers for training jobs."""

    trainers: tuple[Literal["v1", "v2"], ...] = ("v1",)
    """Kubeflow's controllers. ``v1``: Training Operator v1.9.3 (PyTorchJob, MPIJob); its jobs run as Volcano gangs and
    name their queue in ``runPolicy.schedulingPolicy.queue``. ``v2``: Kubeflow Trainer 2.3 (TrainJob over JobSet) with
    its runtimes, for new work; a runtime for a team's namespace names Volcano in ``podGroupPolicy``. Both side by side
    while jobs move over; empty for neither."""
    dcgm_exporter: StrictBool = True
    """GPU metrics on port 9400."""
    nvidia_values: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Further values for the nvidia-device-plugin chart, merged over the stack's."""


def neuron_problems(addons: NeuronAddonsConfig) -> list[Problem]:
    """Return the problems of the Neuron add-ons. Paths are relative to the section."""
    if not addons.scheduler_extension:
        return []
    # The extension acts in a separate scheduler (my-scheduler), which pods must name.
    reason = "pods that Volcano schedules bypass the extension, so their devices may not be adjacent"
    return [formats.warn("scheduler_extension", reason, "leave it off where jobs take whole nodes")]
