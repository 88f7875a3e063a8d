"""Models of transformers: found on a volume or the Hub, read by parts, adapted by LoRA, and written as published."""

import hashlib
import json
import os
import shutil
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Shard, _StridedShard

from trainium_workloads.atomic_write import take_place
from trainium_workloads.causality import sees_future
from trainium_workloads.finetune.make_data import configuration as tiny
from trainium_workloads.finetune.text import ForServers
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.options import Options
from trainium_workloads.training.refusal import RefusalError, first_line

EXPORTED: Final = "trained.json"
"""File of an export with the facts of its training."""

_WANTED: Final = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
"""Files of a repository; the others are mostly the same weights in other formats."""
_TWICE: Final = ("consolidated*", "*/*.safetensors", "*.fp16.safetensors")
"""Files with the same weights once more: Mistral's own form, ``original/`` and ``metal/`` of others, halved ones."""
_TOKENIZER: Final = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.jinja")
_STYLES: Final = {"colwise", "rowwise", "colwise_gather_output", "embedding_rowwise", "replicated_with_grad_allreduce"}
"""Styles of transformers' plans for tensor parallelism with which trainings are exact. Those for experts, and for
several weights in one, fail in the backward pass or cannot be saved by PyTorch 2.9."""

_SMALL: Final = 2**27
"""Most bytes of files of a model whose blocks are gathered together over gloo, for both passes. An exchange for each
takes longer than its bytes do, and the memory for it is at most 16 bytes a parameter. It depends on the model alone, so
that all ranks, and a training that resumes, add up in the same order."""


def find(model: str, output: Path, seed: int) -> Path:
    """Return the directory of a model with its weights; for one process. The model is a directory,
    ``ORGANIZATION/NAME[@REVISION]`` on the Hugging Face Hub, or ``tiny``.

    Random weights, by the seed where the model is a directory with a ``config.json`` alone, are put into the training's
    output, as is a download where ``HF_HOME`` is not set. Refusal: there is no such model, no right to it, or it has no
    weights that can be read; or it sees the future.
    """
    directory = _found(model, output, seed)
    configuration = read_configuration(directory)
    sees = sees_future(configuration)
    if sees:
        what = f"{model} is a {configuration.model_type} whose positions see the tokens after them"
        raise RefusalError(f"{what}: it would learn to copy them. Name a causal language model, such as Qwen/Qwen3-8B")
    if sees is None:
        print(f"{model}: whether a {configuration.model_type} sees the future was not tried: no small one can be made")
    return directory


def _found(model: str, output: Path, seed: int) -> Path:
    if model == "tiny":
        return _random_weights(tiny("qwen3"), None, output, seed)
    directory = Path(model)
    if not directory.is_dir():
        if model.count("/") != 1 or model.startswith((".", "/")):
            raise RefusalError(f"--model {model} is not a directory; names on Hugging Face Hub are ORGANIZATION/NAME")
        return _download(model, output)
    if any(directory.glob("*.safetensors")):
        return directory
    if any(directory.glob("*.bin")):
        raise RefusalError(
            f"{directory} holds weights in .bin files; loading one runs its content: take .safetensors files"
        )
    return _random_weights(read_configuration(directory), directory, output, seed)


def read_configuration(directory: Path) -> Any:
    """Return transformers' configuration of a model. Refusal: it is damaged, of a model that cannot be trained here, or
    of one unknown to this transformers."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    try:
        found = AutoConfig.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise RefusalError(f"{directory}/config.json cannot be read: {first_line(error)}") from None
    if type(found) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise RefusalError(f"{directory} holds a {found.model_type}, which is not a causal model of transformers")
    if found.is_encoder_decoder:
        reason = "whose decoder alone, without what it reads, would be trained"
        raise RefusalError(f"{directory} holds a {found.model_type}, {reason}: take a causal language model")
    if getattr(found, "quantization_config", None):
        raise RefusalError(f"the weights in {directory} are quantized: take the model's version in BF16")
    return found


def load(directory: Path, asked: Namespace, options: Options, backend: Backend) -> nn.Module:
    """Return the model. Each rank of a sharded one reads its part of each tensor from the files. Refusal: the files are
    damaged or of another model, or the model cannot be divided so."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    configuration = read_configuration(directory)
    settings: dict[str, Any] = {"experts_implementation": "batched_mm"} if options.backend == "xla" else {}
    is_mixed = options.precision == "bf16"
    if asked.sharding == "full":
        settings["distributed_config"] = _division(configuration, asked.tensor_parallel, backend.world_size, is_mixed)
        if options.backend == "cpu" and sum(each.stat().st_size for each in directory.glob("*.safetensors")) <= _SMALL:
            # All blocks at once, and the ends of the model as its plan has them: sums are made in the same order.
            plan = configuration.base_model_fsdp_plan or {}
            configuration.base_model_fsdp_plan = {name: how for name, how in plan.items() if how == "keep_full_weight"}
    try:
        model, told = AutoModelForCausalLM.from_pretrained(
            directory,
            config=configuration,
            # Weights that are trained stay in FP32; frozen ones need no more than the computation.
            dtype=torch.bfloat16 if asked.lora and is_mixed else torch.float32,
            local_files_only=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # they are reported, as missing ones are
            output_loading_info=True,
            **settings,
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise RefusalError(f"{directory} cannot be read: {first_line(error)}") from None
    if backend.rank == 0 and (others := sorted(map(str, told["unexpected_keys"]))):
        shown = f"{', '.join(others[:3])}{' …' if len(others) > 3 else ''}"
        print(f"not in the trained model, nor in its export: {len(others):,} weights of {directory} ({shown})")
    if wrong := sorted(str(each) for name in ("missing_keys", "mismatched_keys") for each in told[name]):
        raise RefusalError(f"{directory} holds no weights, or others, for its config.json's {', '.join(wrong[:3])}")
    if asked.sharding == "full" and backend.world_size == asked.tensor_parallel:
        # A single rank has it whole, with the same checkpoints. In BF16 the activations of a sharded one are smaller,
        # where a compiler does not fuse the casts; and TorchNeuron has no autocast.
        casts_itself = options.backend == "neuron" or not (asked.lora or options.compile)
        if asked.tensor_parallel > 1 or (is_mixed and casts_itself):
            _shard_alone(model, backend.device, is_mixed=is_mixed)
        model.to(backend.device)
    if asked.lora:
        _adapt(model, asked, options.seed)
    if asked.activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    return model


def export(
    model: Any,
    to: Path,
    origin: Path,
    told: Mapping[str, Any],
    tells: ForServers,
    *,
    is_first: bool,
    adapter_of: str | None,
) -> None:
    """Write the trained model, or the adapter of the base model ``adapter_of``, as published; all ranks call it. The
    directory appears when it is whole, in place of an earlier export, which stays after an OSError.

    The model may have any division; adapters are added to its weights. ``origin`` is the directory of the model that
    was read; ``told`` are facts of the training, for ``trained.json``; ``tells`` goes into tokenizer and
    ``generation_config.json``. The host of the first rank, which writes, then
    holds the whole model, in the type of the published weights.
    """
    from transformers import AutoModelForCausalLM, GenerationConfig

    part = to.with_name(f"{to.name}.part")
    kind = read_configuration(origin).dtype or torch.bfloat16
    tensors = {} if adapter_of else {name: tensor for name, tensor in _whole(model, kind) if is_first}
    if not is_first:
        return
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    configuration = read_configuration(origin)
    has_settings = (origin / "generation_config.json").is_file()
    settings = (
        GenerationConfig.from_pretrained(origin) if has_settings else GenerationConfig.from_model_config(configuration)
    )
    if tells.end is not None:
        known = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
        settings.eos_token_id = [*(each for each in known if each not in (None, tells.end)), tells.end]
        print(f"answers end with token {tells.end}: it is an end token in the export's generation_config.json")
    if adapter_of:
        model.config.distributed_config = None  # nothing is gathered: each rank has the adapters whole
        model.peft_config["default"].base_model_name_or_path = adapter_of
        tensors = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items() if ".lora_" in name}
    else:
        # A description alone. Weights that transformers merged when it read them, as experts, are divided again.
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(configuration, dtype=kind)
        model.generation_config = settings
    model.save_pretrained(part, state_dict=tensors, max_shard_size="5GB")
    settings.save_pretrained(part)  # of an adapter, too
    _copy_tokenizer(tells.tokenizer, part)
    if tells.chat_template:
        (part / "chat_template.jinja").write_text(tells.chat_template, encoding="utf-8")
    (part / EXPORTED).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    for each in part.iterdir():
        each.chmod(0o664)  # the package lets no other user read weights, and a team shares a volume
    take_place(part, to)


def check_export(to: Path) -> None:
    """Raise a refusal before hours of training, if something else is where its export is to be written."""
    if to.exists() and not (to.is_dir() and ((to / EXPORTED).is_file() or not any(to.iterdir()))):
        raise RefusalError(f"--export {to} exists, and was not exported by this; name a directory that is not there")


def _download(model: str, output: Path) -> Path:
    """Return the directory of a model of the Hub: complete, or not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    name, _, revision = model.partition("@")
    where = {"cache_dir": Path(os.environ.get("HF_HOME") or output) / "hub", "endpoint": os.environ.get("HF_ENDPOINT")}
    try:
        return Path(
            snapshot_download(
                name, revision=revision or None, allow_patterns=list(_WANTED), ignore_patterns=list(_TWICE), **where
            )
        )
    except GatedRepoError:
        mends = "put a token of that account into the namespace (trn secret) and name it (trn train --hf-secret"
        mends += " hugging-face; in a container of yours HF_TOKEN, or a file that HF_TOKEN_PATH names)"
        raise RefusalError(f"{name} is gated: accept its licence at https://huggingface.co/{name}, {mends}") from None
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        there = f"--model {model} is neither a directory nor on the Hugging Face Hub"
        raise RefusalError(f"{there}, or HF_TOKEN may not read it: {first_line(error)}") from None


def _random_weights(configuration: Any, origin: Path | None, output: Path, seed: int) -> Path:
    """Return a directory with random weights, which one process makes, the same for any number of ranks."""
    from transformers import AutoModelForCausalLM

    digest = hashlib.sha256(f"{seed} {configuration.to_json_string()}".encode()).hexdigest()
    directory = output / f"random-weights-{digest[:12]}"
    if directory.is_dir():
        return directory
    part = directory.with_suffix(".part")
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(configuration, dtype=torch.float32).save_pretrained(part)
    if origin is not None:
        _copy_tokenizer(origin, part)
    part.rename(directory)
    return directory


def _division(configuration: Any, tensor_parallel: int, ranks: int, is_mixed: bool) -> Any:
    """Return transformers' description of the ranks."""
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig, sharding_utils

    if tensor_parallel > 1:
        with torch.device("meta"):
            plan: Mapping[str, str] = AutoModelForCausalLM.from_config(configuration).tp_plan
        if "colwise" not in plan.values() or set(plan.values()) - _STYLES:
            raise RefusalError(f"--tensor-parallel {tensor_parallel}: no {configuration.model_type} is trained so")
        for name in ("num_attention_heads", "num_key_value_heads"):
            if (heads := getattr(configuration, name, None) or 0) % tensor_parallel:
                raise RefusalError(f"--tensor-parallel {tensor_parallel} does not divide the model's {heads} {name}")
        if issubclass(_StridedShard, Shard):
            _read_strided(sharding_utils.DtensorShardOperation)
    return DistributedConfig(tp_size=tensor_parallel, fsdp_size=ranks // tensor_parallel, fsdp_mixed_precision=is_mixed)


def _read_strided(operation: Any) -> None:
    """Make transformers read the right rows on PyTorch up to 2.9. It asks ``is_shard()`` to tell two placements apart;
    there both say yes, and with both kinds of parallelism each rank silently gets other ranks' rows."""
    made = operation.__init__

    def make(self: Any, param: DTensor) -> None:
        made(self, param)
        self.placements = tuple(
            SimpleNamespace(dim=each.dim, split_factor=each.split_factor, is_shard=bool)  # bool() is False
            if isinstance(each, _StridedShard)
            else each
            for each in self.placements
        )

    operation.__init__ = make


def _shard_alone(model: Any, device: torch.device, *, is_mixed: bool) -> None:
    """Shard a model over a single data rank, which transformers leaves as it is, for the same precision and
    checkpoints."""
    manager = model._mesh_manager
    mesh = manager.get_mesh("fsdp") if manager else init_device_mesh(device.type, (1,))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
    layers = set(model._no_split_modules or ())
    for module in [*(each for each in model.to(device).modules() if type(each).__name__ in layers), model]:
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=False)


def _adapt(model: Any, asked: Namespace, seed: int) -> None:
    """Freeze the weights and add adapters (arXiv 2106.09685). Those are small, so each rank has all of them."""
    from peft import LoraConfig

    names = asked.lora_targets if asked.lora_targets == "all-linear" else asked.lora_targets.split(",")
    sizes = {"r": asked.lora, "lora_alpha": asked.lora_alpha}
    torch.manual_seed(seed)
    try:
        model.add_adapter(LoraConfig(target_modules=names, task_type="CAUSAL_LM", **sizes))
    except ValueError as error:
        raise RefusalError(f"--lora-targets {asked.lora_targets}: {first_line(error)}") from None
    for each in filter(lambda parameter: parameter.requires_grad, model.parameters()):
        each.data = each.data.float()


def _whole(model: Any, kind: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield each weight, gathered in the exported precision, with adapters added; a tied weight once."""
    adapted = {f"{name}.base_layer.weight": each for name, each in model.named_modules() if hasattr(each, "lora_A")}
    seen = set()
    for name, held in model.state_dict(keep_vars=True).items():
        if id(held) in seen or ".lora_" in name:
            continue
        seen.add(id(held))
        layer = adapted.get(name)
        tensor = held.detach() if layer else held.detach().to(kind)  # before it travels
        tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if layer:
            tensor = tensor.float() + layer.get_delta_weight("default").detach().float()
        yield name.replace(".base_layer.", "."), tensor.to(kind).cpu().contiguous()


def _copy_tokenizer(origin: Path, to: Path) -> None:
    for pattern in _TOKENIZER:
        for each in origin.glob(pattern):
            shutil.copyfile(each, to / each.name)
