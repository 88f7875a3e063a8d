"""A model on its device, ready to compute: one :class:`Runner` for each core that is used.

On Inferentia2 and Trn1 the model is traced for each shape by ``torch_neuronx.trace`` and the graphs are kept in files;
on Trn2 and later TorchNeuron's ``torch.compile`` compiles them (AWS Neuron documentation, "PyTorch Neuron Tracing API
for Inference", "torch.compile on Neuron"). Neither has run yet: so far only the CPU has.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from trainium_workloads.polarity.saved import Saved
from trainium_workloads.serving.shapes import Shapes
from trainium_workloads.training.refusal import Refusal

Backend = Literal["cpu", "cuda", "xla", "neuron"]
BACKENDS: tuple[Backend, ...] = ("cpu", "cuda", "xla", "neuron")

Runner = Callable[[Tensor, Tensor], Tensor]
"""From ``input_ids`` and ``attention_mask`` ``[texts, length]`` on the CPU, in one of the shapes, to logits there."""


def runners(saved: Saved, backend: Backend, shapes: Shapes, *, copies: int, graphs: Path) -> list[Runner]:
    """Return one runner for each copy of the model on the device.

    Args:
        saved: the model.
        backend: of the device: ``xla`` for Inferentia2 and Trn1, ``neuron`` for Trn2 and later.
        shapes: all shapes of its inputs.
        copies: cores that are used at once; more than one on ``xla`` alone.
        graphs: directory that keeps traced graphs.

    Raises:
        Refusal: the device or its packages are not here.
    """
    if backend == "xla":
        return _traced(saved, shapes, copies, graphs)
    device = _device(backend)
    model = saved.model.to(device)
    called: Callable[..., Tensor] = model
    if backend == "neuron":
        # Static shapes: the backend has no others, and compiles again for each new one.
        called = torch.compile(model, backend="neuron", dynamic=False)

    def run(ids: Tensor, mask: Tensor) -> Tensor:
        with torch.inference_mode():
            return called(ids.to(device), mask.to(device)).float().cpu()

    return [run]


def _device(backend: Backend) -> torch.device:
    if backend == "cuda" and not torch.cuda.is_available():
        raise Refusal("there is no GPU here; --backend cpu does without")
    if backend == "neuron":
        try:
            import torch_neuronx  # noqa: F401 - registers the device
        except ImportError:
            raise Refusal("backend neuron needs the package torch_neuronx, which this image lacks") from None
    return torch.device(backend)


def _traced(saved: Saved, shapes: Shapes, copies: int, graphs: Path) -> list[Runner]:
    """Return runners of traced graphs, each loaded once for each core.

    The runtime gives each loaded graph the next core in turn ("Default Core Allocation & Placement"), so the copies of
    a shape follow each other, and there is one for each core.
    """
    try:
        import torch_neuronx
    except ImportError:
        raise Refusal("backend xla needs the package torch_neuronx, which AWS' Neuron images have") from None
    versions = f"{torch.__version__} {torch_neuronx.__version__}"
    files = {shape: _graph(saved, shape, graphs, versions, torch_neuronx.trace) for shape in shapes.all}
    loaded: list[dict[tuple[int, int], Any]] = [{} for _ in range(copies)]
    for shape, file in files.items():
        for copy in loaded:
            copy[shape] = torch.jit.load(str(file))

    def runner(copy: dict[tuple[int, int], Any]) -> Runner:
        return lambda ids, mask: copy[(ids.shape[0], ids.shape[1])](ids, mask).float()

    return [runner(copy) for copy in loaded]


def _graph(saved: Saved, shape: tuple[int, int], graphs: Path, versions: str, trace: Callable[..., Any]) -> Path:
    """Return the file of one traced graph; make a missing one under another name until it is whole."""
    batch, length = shape
    file = graphs / f"{_digest(saved, versions)}-{batch}x{length}.pt"
    if file.is_file():
        return file
    graphs.mkdir(parents=True, exist_ok=True)
    mask = torch.ones(shape, dtype=torch.long)
    made = trace(saved.model, (mask.clone(), mask))
    handle, part = tempfile.mkstemp(prefix=f".{file.name}.", dir=graphs)
    os.close(handle)
    torch.jit.save(made, part)
    os.replace(part, file)
    return file


def _digest(saved: Saved, versions: str) -> str:
    """Return a digest of all parts of a graph: the weights are in it."""
    found = hashlib.sha256(json.dumps([asdict(saved.model.sizes), versions]).encode())
    for name, tensor in saved.model.state_dict().items():
        found.update(name.encode())
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]
