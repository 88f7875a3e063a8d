"""Number formats of a training.

========  =======================================  ======================================================
option    CPU, GPU                                 Trainium
========  =======================================  ======================================================
fp32      FP32                                     FP32; the compiler may not cast (``--auto-cast none``)
tf32      GPU: matrix products in TF32             PyTorch/XLA: matrix products in TF32
bf16      autocast, parameters in FP32             parameters in BF16, rounded stochastically
fp16      GPU: autocast, scaled loss               PyTorch/XLA: matrix products in FP16
fp8       none                                     PyTorch/XLA: matrix products in FP8 (``fp8_e4m3``)
========  =======================================  ======================================================

Optimizers compute in FP32. With ``--stochastic-rounding`` parameters are in BF16 everywhere; where the hardware does
not round by chance, :func:`~.optimizing.round_stochastically` does.
"""

from contextlib import AbstractContextManager, nullcontext

import torch

from trainium_workloads.training.options import Options


def parameter_type(options: Options) -> torch.dtype:
    """Return the type of the parameters."""
    in_hardware = options.backend in ("xla", "neuron")
    is_bf16 = options.precision == "bf16" and (in_hardware or options.stochastic_rounding)
    return torch.bfloat16 if is_bf16 else torch.float32


def autocast(options: Options, device: torch.device) -> AbstractContextManager[object]:
    """Return a context for a forward pass."""
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision)
    if kind is None or options.backend in ("xla", "neuron") or parameter_type(options) is torch.bfloat16:
        return nullcontext()
    return torch.autocast(device.type, dtype=kind)


def scaler(options: Options) -> torch.amp.GradScaler:
    """Return a scaler of losses in FP16, where gradients would vanish otherwise; without effect in other numbers."""
    return torch.amp.GradScaler(options.backend, enabled=options.precision == "fp16" and options.backend == "cuda")
