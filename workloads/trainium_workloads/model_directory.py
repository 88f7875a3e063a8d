"""Directories of models in the format of ``transformers``: a model that does not fit is refused, and a directory is
written whole or not at all."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from trainium_workloads.atomic_write import take_place
from trainium_workloads.training.refusal import RefusalError

NAME = "model"
"""Name of the directory, below a training's output."""

_CONFIG = "config.json"

# The report of each weight is for a terminal; a refusal has what matters of it.
logging.set_verbosity_error()
logging.disable_progress_bar()


def attention_of(backend: str) -> str:
    """Return the implementation of attention: PyTorch has kernels for CPUs and GPUs; compilers fuse the plain form."""
    return "sdpa" if backend in ("cpu", "cuda") else "eager"


def prepared_mask(mask: Tensor, model: PreTrainedModel) -> Tensor:
    """Return an encoder's attention mask, [batch, 1, 1, sequence], in the form that its layers take, from [batch,
    sequence], 1 for tokens, 0 for padding.

    ``transformers`` would look whether a mask hides anything, for which a device has to be waited for, and make another
    graph where it does not.
    """
    seen = mask[:, None, None, :].bool()
    if model.config._attn_implementation == "sdpa":
        return seen
    # Not -inf: a sequence of nothing but padding would give NaN.
    return torch.zeros_like(seen, dtype=model.dtype).masked_fill(~seen, torch.finfo(model.dtype).min)


def model_in(directory: Path) -> Path:
    """Return the directory of a model: the given one, or ``model`` in the output of a training; refuse another."""
    for each in (directory, directory / NAME):
        if (each / _CONFIG).is_file():
            return each
    raise RefusalError(
        f"{directory} holds no model ({_CONFIG}): give a directory that trn stage brings, or the output of a training, "
        "which writes its model once its last step is done"
    )


def read_config(directory: Path, backend: str) -> Any:
    """Return the configuration of a model, for a backend; refuse an unreadable one."""
    found = model_in(directory)
    try:
        return AutoConfig.from_pretrained(found, attn_implementation=attention_of(backend), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise RefusalError(f"{found / _CONFIG} cannot be read: {error}") from None


def read_model(kind: Any, directory: Path, config: Any) -> Any:
    """Return a model of a class or auto class of ``transformers`` on the CPU in FP32; a head or a pooler that the
    directory lacks is new. ``config`` has ``attn_implementation``. Refusal: files are missing or damaged, or they are
    of another model."""
    found = model_in(directory)
    attention = config._attn_implementation
    how = {"config": config, "attn_implementation": attention, "dtype": torch.float32, "local_files_only": True}
    try:
        model, told = kind.from_pretrained(found, **how, ignore_mismatched_sizes=True, output_loading_info=True)
    except Exception as error:  # noqa: BLE001 - safetensors and transformers raise errors of their own
        raise RefusalError(f"{found} cannot be read as a model: {error}") from None
    wrong = {name: "is not in it" for name in told["missing_keys"] if ".pooler." not in name}
    shapes = "has the shape {}, not {}"
    wrong |= {name: shapes.format([*there], [*wanted]) for name, there, wanted in told["mismatched_keys"]}
    # A new head is no fault.
    encoder = sorted(
        f"{name} {fault}" for name, fault in wrong.items() if name.startswith(f"{model.base_model_prefix}.")
    )
    if encoder:
        more = f"; and {len(encoder) - 3} more" if len(encoder) > 3 else ""
        raise RefusalError(f"{found} is of another model: {'; '.join(encoder[:3])}{more}; give its own --size")
    return model


def write_model(
    model: PreTrainedModel,
    state: Mapping[str, Tensor],
    directory: Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write a model's directory; an earlier one goes once the new one is whole. In a directory that exists and is no
    model's (SageMaker's ``/opt/ml/model``) the files are put one by one, ``config.json`` last.

    The model gives class and configuration, and may be on a device; the weights in ``state`` are on the CPU in any
    type, and are written in FP32. Facts of the training go into ``training.json``.
    """
    stays = directory.is_dir() and (os.path.ismount(directory) or not (directory / _CONFIG).is_file())
    above = directory if stays else directory.parent
    above.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=above))
    try:
        copy = type(model)(model.config)
        copy.load_state_dict(state)
        copy.save_pretrained(part)
        if tokenizer is not None:
            tokenizer.save_pretrained(part)
        if facts is not None:
            (part / "training.json").write_text(json.dumps(dict(facts), indent=2) + "\n", encoding="utf-8")
        for file in part.iterdir():
            file.chmod(0o644)  # safetensors makes files that only their owner reads
        if stays:
            for file in sorted(part.iterdir(), key=lambda each: each.name == _CONFIG):
                os.replace(file, directory / file.name)
        else:
            part.chmod(0o755)
            take_place(part, directory)
    finally:
        shutil.rmtree(part, ignore_errors=True)
