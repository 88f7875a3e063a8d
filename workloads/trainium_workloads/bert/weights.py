"""Weights in Hugging Face's format: published ones in, trained ones out."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from trainium_workloads.bert.model import PADDING, Sizes
from trainium_workloads.training.refusal import Refusal

FILE = "model.safetensors"
CONFIG = "config.json"

SIZES_THERE = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
}
"""The fields of :class:`Sizes`, and their names in ``transformers``' BertConfig."""

_ELSEWHERE = frozenset(
    {
        "cls.predictions.decoder.weight",  # the word embeddings
        "cls.predictions.decoder.bias",  # cls.predictions.bias
        "bert.embeddings.position_ids",  # 0, 1, 2, …
    }
)
"""Names that some files have as well, of nothing that the other names lack."""


def load(model: nn.Module, path: Path, *, only: str = "") -> None:
    """Load stored weights into a model.

    Args:
        model: with Hugging Face's names of parameters.
        path: a ``.safetensors`` file, or a directory with ``model.safetensors``.
        only: prefix of the wanted parameters' names (``"bert."``: the encoder without the heads); the model's other
            parameters stay unchanged.

    Raises:
        Refusal: there is no such file, or tensors are missing or have other shapes: all of them at once.
    """
    found = _read(path)
    wanted = {name: tensor for name, tensor in model.state_dict().items() if name.startswith(only)}
    problems = [f"{name} is not in it" for name in wanted if name not in found]
    problems += [
        f"{name} has the shape {list(found[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if not only:
        problems += [f"{name} is in it, and not in the model" for name in found if name not in wanted]
    if problems:
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise Refusal(f"{path} holds the weights of another model: {shown}. Choose its size with --size")
    model.load_state_dict({name: found[name] for name in wanted}, strict=False)


def _read(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise Refusal("the weights' format needs the package safetensors: add it to the image") from error
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise Refusal(f"{file} is not there: a training writes it once its last step is done")
    try:
        stored = load_file(file)
    except (OSError, SafetensorError) as error:
        raise Refusal(f"{file} cannot be read as safetensors: {error}") from error
    return {_today(name): tensor for name, tensor in stored.items() if name not in _ELSEWHERE}


def _today(name: str) -> str:
    """Return the present name of a parameter with TensorFlow's name, as in the first published weights."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def export(state: Mapping[str, Tensor], sizes: Sizes, directory: Path) -> Path:
    """Write a model as ``transformers``' ``BertForPreTraining`` reads it; earlier weights stay until the new ones are
    whole.

    Args:
        state: of the model, on the CPU.
        sizes: of the model.
        directory: is made if need be.
    """
    from safetensors.torch import save

    directory.mkdir(parents=True, exist_ok=True)
    # Copies, because safetensors refuses tensors that share memory, such as views of one buffer.
    tensors = {name: tensor.clone().contiguous() for name, tensor in state.items()}
    part = directory / f"{FILE}.part"
    part.write_bytes(save(tensors, metadata={"format": "pt"}))  # save_file makes files that only their owner reads
    (directory / CONFIG).write_text(json.dumps(_config(sizes), indent=2) + "\n")
    os.replace(part, directory / FILE)
    return directory / FILE


def _config(sizes: Sizes) -> dict[str, object]:
    """Return the form that ``transformers``' BertConfig reads."""
    return {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "pad_token_id": PADDING,
        **{theirs: getattr(sizes, ours) for ours, theirs in SIZES_THERE.items()},
        "attention_probs_dropout_prob": sizes.dropout,
    }
