"""Backends of a training: CPUs, NVIDIA GPUs, PyTorch/XLA on Trn1, TorchNeuron on Trn2 and later."""

from trainium_workloads.training.backends.backend import Backend
from trainium_workloads.training.options import Options

__all__ = ["Backend", "start"]


def start(options: Options) -> Backend:
    """Return the backend of the options. Ranks come from ``torchrun`` or :mod:`trainium_workloads.gang` (``RANK``,
    ``WORLD_SIZE``, …); without their variables this process is the only one.

    Raises:
        RefusalError: its device or its packages are not here.
    """
    if options.backend == "xla":
        from trainium_workloads.training.backends.xla import XlaBackend

        return XlaBackend(options)
    return Backend(options)
