"""Models of transformers: found on a volume or the Hub, read by parts, adapted by LoRA, and written as published."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Shard, _StridedShard

from trainium_workloads.atomic_write import take_place
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.task import Fact

EXPORTED: Final = "trained.json"
"""File of an export with the facts of its training."""

TINY: Final = "tiny"
"""Name of a model that is made on the spot, with random weights."""

_WANTED: Final = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
"""Files of a repository; the others are mostly the same weights in other formats."""
_SIZES: Final = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
_UNDIVIDED: Final = ("packed_colwise", "packed_rowwise", "moe_tp_experts", "local_params")
"""Styles of transformers' plans for tensor parallelism with which no training is exact on PyTorch 2.9: weights of
several layers in one, and experts."""
_FILE_SIZE: Final = "5GB"


@dataclass(frozen=True)
class Lora:
    """Adapters of low rank beside frozen weights (arXiv 2106.09685)."""

    rank: int
    alpha: int
    """Numerator of the factor of an adapter's output; the rank is the denominator."""
    targets: str
    """Names of layers, divided by commas; ``all-linear`` for all but the output layer."""


@dataclass(frozen=True)
class Reading:
    """Manner in which a model is read into the ranks."""

    device: torch.device
    ranks: int
    is_sharded: bool
    tensor_parallel: int
    is_mixed: bool
    """Whether a sharded model computes in BF16."""
    dtype: torch.dtype
    recompute: bool
    """Whether activations are computed again in the backward pass."""


def find(model: str, output: Path, seed: int) -> Path:
    """Return the directory of a model with its weights; for one process.

    Args:
        model: a directory, ``ORGANIZATION/NAME[@REVISION]`` on the Hugging Face Hub, or ``tiny``.
        output: of the training; random weights are put there, and a download where ``HF_HOME`` is not set.
        seed: of random weights, where ``model`` is a directory with a ``config.json`` alone.

    Raises:
        Refusal: there is no such model, no right to it, or it has no weights that can be read.
    """
    if model == TINY:
        from trainium_workloads.finetune.make_data import configuration

        return _random_weights(configuration("qwen3"), None, output, seed)
    directory = Path(model)
    if not directory.is_dir():
        if model.count("/") != 1 or model.startswith((".", "/")):
            raise Refusal(f"--model {model} is no directory; a name on the Hugging Face Hub is ORGANIZATION/NAME")
        return _download(model, output)
    if not (directory / "config.json").is_file():
        raise Refusal(f"--model {directory} has no config.json")
    if any(directory.glob("*.safetensors")):
        return directory
    if any(directory.glob("*.bin")):
        raise Refusal(f"{directory} holds weights in .bin files; loading one runs its content: take .safetensors files")
    return _random_weights(read_configuration(directory), directory, output, seed)


def read_configuration(directory: Path) -> Any:
    """Return transformers' configuration of a model.

    Raises:
        Refusal: it is damaged, of a model that cannot be trained here, or of one unknown to this transformers.
    """
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    try:
        found = AutoConfig.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise Refusal(f"{directory}/config.json cannot be read: {_first_line(error)}") from None
    if type(found) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise Refusal(f"{directory} holds a {found.model_type}, which is no causal language model of transformers")
    if getattr(found, "quantization_config", None):
        raise Refusal(f"the weights in {directory} are quantized: take the model's version in BF16")
    return found


def facts(configuration: Any) -> dict[str, Fact]:
    """Return the sizes on which a checkpoint must agree."""
    text = configuration.get_text_config()
    return {name: getattr(text, name) for name in _SIZES if getattr(text, name, None) is not None}


def longest(configuration: Any) -> int:
    """Return the longest sequence in tokens for which a model was made; 2048 where it does not say."""
    return int(getattr(configuration.get_text_config(), "max_position_embeddings", None) or 2048)


def load(directory: Path, reading: Reading, lora: Lora | None, seed: int) -> nn.Module:
    """Return the model. Each rank of a sharded one reads its part of each tensor from the files.

    Args:
        directory: of :func:`find`.
        reading: see there.
        lora: adapters to add; None to train all weights.
        seed: of the adapters.

    Raises:
        Refusal: the files are damaged or of another model, or the model cannot be divided so.
    """
    from transformers import AutoModelForCausalLM

    configuration = read_configuration(directory)
    settings: dict[str, Any] = {"experts_implementation": "batched_mm"} if reading.device.type == "xla" else {}
    if reading.is_sharded:
        settings["distributed_config"] = _division(configuration, reading)
    try:
        model, told = AutoModelForCausalLM.from_pretrained(
            directory,
            config=configuration,
            dtype=reading.dtype,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            **settings,
        )
    except (OSError, ValueError, RuntimeError, _damage()) as error:
        raise Refusal(f"{directory} cannot be read: {_first_line(error)}") from None
    if wrong := {name: sorted(map(str, told[name])) for name in ("missing_keys", "mismatched_keys") if told[name]}:
        shown = "; ".join(f"{name.replace('_', ' ')} {', '.join(keys[:3])}" for name, keys in wrong.items())
        raise Refusal(f"{directory} holds another model's weights than its config.json says: {shown}")
    if reading.is_sharded and reading.ranks == reading.tensor_parallel:
        _shard_alone(model, reading)
    if lora is not None:
        _adapt(model, lora, seed)
    if reading.recompute:
        _recompute(model, reading)
    return model


def export(
    model: Any, to: Path, origin: Path, told: Mapping[str, Any], *, is_first: bool, base: str | None, merged: bool
) -> None:
    """Write the trained model, or its adapter, as published; all ranks call it. The directory appears when it is whole.

    Args:
        model: trained, with any division.
        to: the directory; an earlier export there is replaced.
        origin: directory of the tokenizer.
        told: facts of the training, for ``trained.json``.
        is_first: whether this rank writes. It then holds the whole model on its host, in the type of its published
            weights.
        base: name of the model that an adapter belongs to; None without adapters.
        merged: whether adapters are added to the weights.

    Raises:
        OSError: it cannot be written, as on a full disk; an earlier export stays.
    """
    part = to.with_name(f"{to.name}.part")
    if is_first:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    if base is not None and not merged:
        if is_first:
            _write_adapter(model, part, base)
    else:
        kind = read_configuration(origin).dtype or torch.bfloat16
        tensors = {name: tensor for name, tensor in _whole(model, kind) if is_first}
        if is_first:
            _write_model(tensors, part, origin, kind)
    if is_first:
        _copy_tokenizer(origin, part)
        (part / EXPORTED).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        for each in part.iterdir():
            each.chmod(0o664)  # the package lets nobody else read weights, and a team shares a volume
        take_place(part, to)


def check_export(to: Path) -> None:
    """Check before hours of training that its export can be written.

    Raises:
        Refusal: something else is there.
    """
    if to.exists() and not (to.is_dir() and ((to / EXPORTED).is_file() or not any(to.iterdir()))):
        raise Refusal(f"--export {to} exists, and was not exported by this; name a directory that is not there")


def _download(model: str, output: Path) -> Path:
    """Return the directory of a model of the Hub: complete, or not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    name, _, revision = model.partition("@")
    cache = Path(os.environ.get("HF_HOME") or output) / "hub"
    try:
        return Path(snapshot_download(name, revision=revision or None, cache_dir=cache, allow_patterns=list(_WANTED)))
    except GatedRepoError:
        raise Refusal(
            f"{name} is gated: accept its licence at https://huggingface.co/{name}, put a token of that account into "
            "the namespace (trn secret) and name it (trn train --hf-secret hugging-face; in a container of yours "
            "HF_TOKEN, or a file that HF_TOKEN_PATH names)"
        ) from None
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise Refusal(
            f"--model {model} is neither a directory nor on the Hugging Face Hub, or its token (HF_TOKEN, "
            f"HF_TOKEN_PATH) may not read it: {_first_line(error)}"
        ) from None


def _random_weights(configuration: Any, origin: Path | None, output: Path, seed: int) -> Path:
    """Return a directory with random weights, which one process makes, the same for any number of ranks."""
    from transformers import AutoModelForCausalLM

    directory = output / f"random-weights-{seed}"
    if directory.is_dir():
        return directory
    part = directory.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(configuration, dtype=torch.float32).save_pretrained(part)
    if origin is not None:
        _copy_tokenizer(origin, part)
    part.rename(directory)
    return directory


def _division(configuration: Any, reading: Reading) -> Any:
    """Return transformers' description of the ranks."""
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig, sharding_utils

    ranks = reading.tensor_parallel
    if ranks > 1:
        with torch.device("meta"):
            plan: Mapping[str, str] = AutoModelForCausalLM.from_config(configuration).tp_plan
        if not plan or set(plan.values()) & set(_UNDIVIDED):
            raise Refusal(f"--tensor-parallel {ranks}: transformers cannot train a {configuration.model_type} so")
        text = configuration.get_text_config()
        heads = [getattr(text, name, None) or ranks for name in ("num_attention_heads", "num_key_value_heads")]
        if wrong := [each for each in heads if each % ranks]:
            raise Refusal(f"--tensor-parallel {ranks} does not divide the model's {wrong[0]} heads")
        if issubclass(_StridedShard, Shard):
            _read_strided(sharding_utils.DtensorShardOperation)
    return DistributedConfig(
        tp_size=ranks, fsdp_size=reading.ranks // ranks, fsdp_mixed_precision=reading.is_mixed
    )


@dataclass(frozen=True)
class _Strided:
    """Rows of a tensor that FSDP divides after tensor parallelism did."""

    dim: int
    split_factor: int

    def is_shard(self) -> bool:
        """Return false, as PyTorch from 2.10 on does."""
        return False


def _read_strided(operation: Any) -> None:
    """Make transformers read the right rows on PyTorch up to 2.9.

    Its reader of files asks ``is_shard()`` to tell the two placements apart. There both say yes, and with both kinds of
    parallelism each rank silently gets other ranks' rows.
    """
    if hasattr(operation, "trn_reads_strided"):
        return
    made = operation.__init__

    def make(self: Any, param: DTensor) -> None:
        made(self, param)
        self.placements = tuple(
            _Strided(each.dim, each.split_factor) if isinstance(each, _StridedShard) else each
            for each in self.placements
        )

    operation.__init__, operation.trn_reads_strided = make, True


def _shard_alone(model: Any, reading: Reading) -> None:
    """Shard a model over a single data rank, which transformers leaves as it is: precision and checkpoints are then
    those of more."""
    manager = getattr(model, "_mesh_manager", None)
    mesh = manager.get_mesh("fsdp") if manager else init_device_mesh(reading.device.type, (1,))
    kind = torch.bfloat16 if reading.is_mixed else None
    policy = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32 if kind else None)
    layers = set(model._no_split_modules or ())
    model.to(reading.device)
    for module in [each for each in model.modules() if type(each).__name__ in layers]:
        fully_shard(module, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def _adapt(model: Any, lora: Lora, seed: int) -> None:
    """Freeze the weights and add adapters. Those are small, so each rank has all of them."""
    from peft import LoraConfig

    targets = lora.targets if lora.targets == "all-linear" else lora.targets.split(",")
    torch.manual_seed(seed)
    try:
        model.add_adapter(
            LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, task_type="CAUSAL_LM")
        )
    except ValueError as error:
        raise Refusal(f"--lora-targets {lora.targets}: {_first_line(error)}") from None
    for each in model.parameters():
        if each.requires_grad:
            each.data = each.data.float()


def _recompute(model: Any, reading: Reading) -> None:
    if reading.device.type == "xla":
        raise Refusal("--activation-checkpointing: PyTorch's checkpoints of activations do not know XLA; leave it out")
    model.activation_checkpointing_enable({"use_reentrant": False})


def _whole(model: Any, kind: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield each weight, gathered in the exported precision, with adapters added; a tied weight once."""
    adapted = {f"{name}.base_layer.weight": each for name, each in model.named_modules() if hasattr(each, "lora_A")}
    seen = set()
    for name, held in model.state_dict(keep_vars=True).items():
        if id(held) in seen or ".lora_" in name:
            continue
        seen.add(id(held))
        tensor = held.detach()
        layer = adapted.get(name)
        if layer is None:
            tensor = tensor.to(kind)  # before it travels
        tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if layer is not None:
            tensor = tensor.float() + layer.get_delta_weight("default").detach().float()
        yield name.replace(".base_layer.", "."), tensor.to(kind).cpu().contiguous()


def _write_model(tensors: dict[str, Tensor], part: Path, origin: Path, kind: torch.dtype) -> None:
    from transformers import AutoModelForCausalLM, GenerationConfig

    with torch.device("meta"):
        described = AutoModelForCausalLM.from_config(read_configuration(origin), dtype=kind)
    if (origin / "generation_config.json").is_file():
        described.generation_config = GenerationConfig.from_pretrained(origin)
    # Weights that transformers merges when it reads them, as experts, are divided again here.
    described.save_pretrained(part, state_dict=tensors, max_shard_size=_FILE_SIZE)


def _write_adapter(model: Any, part: Path, base: str) -> None:
    model.config.distributed_config = None  # nothing is gathered: each rank has the adapters whole
    model.peft_config["default"].base_model_name_or_path = base
    held = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items() if ".lora_" in name}
    model.save_pretrained(part, state_dict=held)


def _copy_tokenizer(origin: Path, to: Path) -> None:
    for each in origin.iterdir():
        is_of_tokenizer = each.suffix in (".json", ".jinja", ".model", ".txt") and "config" not in each.stem
        is_of_tokenizer = is_of_tokenizer and not each.name.endswith("index.json") and each.name != EXPORTED
        if each.is_file() and (is_of_tokenizer or each.name == "tokenizer_config.json"):
            shutil.copyfile(each, to / each.name)


def _damage() -> type[Exception]:
    from safetensors import SafetensorError

    return SafetensorError


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
