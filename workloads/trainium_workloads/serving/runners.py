"""A classifier on its device. The Neuron backends have not run yet: so far only the CPU has."""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainium_workloads.training.refusal import Refusal

Runner = Callable[[Tensor, Tensor], Tensor]
"""From ``input_ids`` and ``attention_mask`` ``[texts, length]`` on the CPU, in one of the shapes, to logits there."""


class _Logits(torch.nn.Module):
    """Model with tensors for input and output, as tracing needs it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.model(input_ids=ids, attention_mask=mask).logits


def runner(model: Any, backend: str, shapes: Sequence[tuple[int, int]], graphs: Path, core: int = 0) -> Runner:
    """Return the runner of a model.

    Args:
        model: of ``AutoModelForSequenceClassification``, on the CPU.
        backend: ``cpu``, ``cuda``, ``xla`` (Inferentia2 and Trn1) or ``neuron`` (Trn2 and later).
        shapes: number of texts and of tokens, of all inputs.
        graphs: directory that keeps traced graphs.
        core: number of this process among those that serve the model; the first one traces.

    Raises:
        Refusal: the device or its packages are not here.
    """
    if backend in ("xla", "neuron"):
        try:
            import torch_neuronx
        except ImportError:
            raise Refusal(
                f"backend {backend} needs the package torch_neuronx, which AWS' Neuron images have: give --image"
            ) from None
    if backend == "xla":
        versions = f"{torch.__version__} {torch_neuronx.__version__}"
        return _traced(_Logits(model), shapes, graphs, core, torch_neuronx.trace, versions)
    if backend == "cuda" and not torch.cuda.is_available():
        raise Refusal("there is no GPU here; --backend cpu does without")
    device = torch.device(backend)
    called: Callable[..., Tensor] = _Logits(model).to(device)
    if backend == "neuron":
        # Static shapes: the backend has no others, and compiles again for each new one.
        called = torch.compile(called, backend="neuron", dynamic=False)

    def run(ids: Tensor, mask: Tensor) -> Tensor:
        with torch.inference_mode():
            return called(ids.to(device), mask.to(device)).float().cpu()

    return run


def _traced(
    model: _Logits,
    shapes: Sequence[tuple[int, int]],
    graphs: Path,
    core: int,
    trace: Callable[..., Any],
    versions: str,
) -> Runner:
    """Return a runner of graphs, one a shape, which are kept in files for the next pod."""
    digest = hashlib.sha256(f"{model.model.config.to_json_string()} {versions}".encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    graphs.mkdir(parents=True, exist_ok=True)
    loaded: dict[tuple[int, int], Any] = {}
    for shape in shapes:
        file = graphs / f"{digest.hexdigest()[:16]}-{shape[0]}x{shape[1]}.pt"
        if core == 0 and not file.is_file():
            mask = torch.ones(shape, dtype=torch.long)
            part = file.with_suffix(f".{time.time_ns()}")  # of pods that trace at once, each has its own
            torch.jit.save(trace(model, (mask.clone(), mask)), str(part))
            part.replace(file)
        while not file.is_file():
            time.sleep(1)
        loaded[shape] = torch.jit.load(str(file))
    return lambda ids, mask: loaded[ids.shape[0], ids.shape[1]](ids, mask).float()
