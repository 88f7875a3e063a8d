"""PyTorch/XLA: Trn1 by torch-neuronx, or one process on the CPU. Operations are traced and compiled."""

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from trainium_workloads.training.backends.backend import Backend, needs
from trainium_workloads.training.options import Options
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import Batch

_COMPILER_FLAGS = {
    # neuronx-cc casts FP32 matrix products to BF16 unless it is told otherwise (Neuron documentation, "Mixed precision
    # and performance-accuracy tuning (neuronx-cc)").
    "fp32": "--auto-cast none",
    "tf32": "--auto-cast matmult --auto-cast-type tf32",
    "fp16": "--auto-cast matmult --auto-cast-type fp16",
    "fp8": "--auto-cast matmult --auto-cast-type fp8_e4m3",
    # The parameters are in BF16 themselves.
    "bf16": "--auto-cast none",
}


class XlaBackend(Backend):
    """A NeuronCore for each rank. On the CPU only one rank: XLA:CPU has no working collectives between processes
    (pytorch/xla #9089, #9496)."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.device = self._xla.device()  # after the group, which sets the runtime up

    def _open(self, options: Options) -> dict[str, Any]:
        on = os.environ.setdefault("PJRT_DEVICE", "NEURON")
        if on == "CPU" and self.world_size > 1:
            raise RefusalError("backend xla has one rank on the CPU: use --backend cpu for more")
        flags = os.environ.get("NEURON_CC_FLAGS", "")
        if on == "NEURON" and "--auto-cast" not in flags:
            os.environ["NEURON_CC_FLAGS"] = f"{flags} {_COMPILER_FLAGS[options.precision]}".strip()
        try:
            import torch_xla
            import torch_xla.core.xla_model as xla_model
            import torch_xla.distributed.xla_backend
        except ImportError:
            raise needs("torch_xla", "xla", "AWS' image of PyTorch NeuronX") from None
        if options.eager:
            from torch_xla import experimental

            experimental.eager_mode(True)
        self._xla, self._model = torch_xla, xla_model
        return {"backend": "xla", "init_method": "xla://"} if self.world_size > 1 else {"backend": "gloo"}

    def seed(self, value: int) -> None:
        torch.manual_seed(value)
        # An input of the graph, so another number is no other graph; 31 bits.
        self._model.set_rng_state(random.Random(value).getrandbits(31), str(self.device))

    def feed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        from torch_xla.distributed.parallel_loader import MpDeviceLoader

        # Brings batches to the device in a thread, and ends the traced graph (mark_step) before each.
        yield from MpDeviceLoader(batches, self.device)

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        if self.world_size > 1:
            self._model.all_reduce(self._model.REDUCE_SUM, list(tensors), scale=1.0 / self.world_size)

    def end_update(self) -> None:
        self._xla.sync()  # what was called mark_step

    def to_host(self, state: Any) -> Any:
        self._xla.sync()
        return super().to_host(state)
