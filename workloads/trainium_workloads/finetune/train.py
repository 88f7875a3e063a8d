"""Fine-tuning of a causal language model of transformers, sharded over the ranks.

    torchrun --nproc-per-node 8 -m trainium_workloads.finetune.train --model Qwen/Qwen3-8B \\
        --data /data/texts --activation-checkpointing
"""

import argparse
import functools
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainium_workloads.causality import mixes_documents
from trainium_workloads.finetune import models, text
from trainium_workloads.finetune.packing import Packing
from trainium_workloads.finetune.targets import LossOn
from trainium_workloads.finetune.text import Form
from trainium_workloads.tokenized import Rows
from trainium_workloads.training import backends, sharding
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.first_rank import made_by, made_by_first
from trainium_workloads.training.layout import Layout
from trainium_workloads.training.loop import train
from trainium_workloads.training.options import (
    ONLY_COMPILES,
    Options,
    add_option,
    add_options,
    alone,
    options_of,
    too_small,
)
from trainium_workloads.training.refusal import RefusalError, guarded
from trainium_workloads.training.sharding import ShardedLayout
from trainium_workloads.training.task import IGNORED, Batch, Fact, Loss

DEFAULTS = Options(
    steps=1000, batch_size=1, learning_rate=1e-5, warmup_steps=50, schedule="cosine", weight_decay=0.1, precision="bf16"
)
"""The rates that Llama 2 was tuned with are of this size (arXiv 2307.09288, section 3.1: 2e-5, cosine, decay 0.1)."""

NEEDS = (
    *((name, None, "data", None) for name in ("eval_data", "column", "loss_on", "packing", "chat_template")),
    ("merge", False, "lora", None),
    ("lora_alpha", None, "lora", None),
    ("lora_targets", "all-linear", "lora", None),
    ("tensor_parallel", 1, "sharding", "full"),
    ("gradient_sync", "last", "sharding", "full"),
)
"""Options that do nothing without another one: see :func:`~trainium_workloads.training.options.alone`."""

_LENGTH = 2048
"""Tokens of an example, where the model takes so many."""
_SIZES = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
_LOSS_POSITIONS = 1024
"""Positions whose logits are in memory in FP32 at a time: for all 4,096 of one of Qwen3's sequences, with its 151,936
tokens, they and their gradient take 5 GB."""


@dataclass(frozen=True)
class FineTuning:
    """Training of a model to predict the next token."""

    asked: argparse.Namespace
    options: Options
    backend: Backend
    directory: Path
    """Of the model."""
    sizes: Mapping[str, Fact]
    """Of the model: those on which a checkpoint must agree."""
    data: Rows
    tokens_per_example: int
    evaluated: Rows | None = None
    perplexity_of = "loss"

    @property
    def identity(self) -> Mapping[str, Fact]:
        asked = self.asked
        lora = {"lora": asked.lora, "alpha": asked.lora_alpha, "targets": asked.lora_targets} if asked.lora else {}
        own = {"sequence_length": self.tokens_per_example, "data": self.data.digest}
        return {"model": Path(asked.model).name, **self.sizes, **own, **lora}

    def model(self) -> nn.Module:
        """See :class:`~trainium_workloads.training.task.Task`; a sharded model is on its devices already."""
        return models.load(self.directory, self.asked, self.options, self.backend)

    def examples(self) -> Rows:
        return self.data

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """See :class:`~trainium_workloads.training.task.Task`: the mean over all tokens that are learnt."""
        tokens, labels = batch["tokens"], batch.get("labels")
        positions = {"position_ids": batch["positions"][:, :-1]} if "positions" in batch else {}
        logits = model(input_ids=tokens[:, :-1], use_cache=False, **positions).logits.flatten(0, 1)
        targets = (tokens if labels is None else labels)[:, 1:].flatten()
        # Over the positions, of which a micro-batch always has as many; the update divides by the learnt share.
        mean = self._sum(logits, targets) / len(targets)
        return Loss(mean, share=None if labels is None else (targets != IGNORED).float().mean())

    @functools.cached_property
    def _sum(self) -> Callable[[Tensor, Tensor], Tensor]:
        if self.options.compile and self.options.backend != "neuron":
            return torch.compile(_sum_at_once)
        return _sum_at_once if self.options.backend == "xla" else _CrossEntropy.apply


def _sum_at_once(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the cross-entropy, for compilers: they fuse it, and no logits in FP32 reach the memory."""
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")


class _CrossEntropy(torch.autograd.Function):
    """The sum over all positions, with its gradient, by parts: no part is computed again in the backward pass."""

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor) -> Tensor:
        gradient, sums = torch.empty_like(logits), []
        parts = (each.split(_LOSS_POSITIONS) for each in (logits, targets, gradient))
        for some, following, into in zip(*parts, strict=True):
            learnt, at = (following != IGNORED).unsqueeze(1), following.clamp(min=0).unsqueeze(1)
            chances = functional.log_softmax(some, 1, dtype=torch.float32)
            sums.append(-(chances.gather(1, at) * learnt).sum())
            chances.exp_()
            into.copy_(chances.scatter_(1, at, chances.gather(1, at) - 1).mul_(learnt))
        context.save_for_backward(gradient)
        return torch.stack(sums).sum()

    @staticmethod
    def backward(context: Any, of_sum: Tensor) -> tuple[Tensor, None]:
        (gradient,) = context.saved_tensors
        return gradient.mul_(of_sum), None  # a backward pass runs once


def main() -> int:
    """Run the training and return the exit code."""
    asked = _parser().parse_args()
    options = options_of(asked)
    asked.export = asked.export or options.output / "model"  # where `trn serve JOB` looks
    _check(asked, options)
    _prepare_libraries()
    backend = backends.start(options)
    task = _task(asked, options, backend)
    layout = ShardedLayout(asked.tensor_parallel, asked.gradient_sync) if asked.sharding == "full" else Layout()
    outcome = train(task, options, backend, layout)
    if outcome.is_complete and os.environ.get(ONLY_COMPILES) != "1":
        facts: dict[str, Fact] = {"model": asked.model, "step": outcome.step, "data": task.data.digest}
        if math.isfinite(outcome.loss):  # a run that only had to export made no step
            facts["loss"] = outcome.loss
        adapter_of = asked.model if asked.lora and not asked.merge else None
        is_first = backend.rank == 0
        tells = text.ForServers(asked.tokenizer or task.directory)
        if is_first and asked.data:
            tells = text.for_servers(tells.tokenizer, asked.chat_template, task.data)
        models.export(
            outcome.model, asked.export, task.directory, facts, tells, is_first=is_first, adapter_of=adapter_of
        )
        if is_first:
            print(f"exported to {asked.export}", flush=True)
        backend.barrier()
    backend.close()
    return outcome.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="finetune", description=__doc__.partition("\n")[0])
    add = functools.partial(add_option, parser)
    names = "directory, ORGANIZATION/NAME[@REVISION] on the Hugging Face Hub, or tiny"
    add("model", "Qwen/Qwen3-8B", names)
    add("export", Path, "directory of the trained model; default: OUTPUT/model")
    add("lora", 0, "train adapters of this rank alone")
    add("lora-alpha", int, "default: twice the rank")
    add("lora-targets", "all-linear", "names of layers, divided by commas")
    parser.add_argument("--merge", action="store_true", help="export the model with adapters, not adapters alone")
    add("data", Path, "texts or conversations", "--data-dir", "--data_dir")
    add("eval-data", Path, "texts or conversations to evaluate with")
    add("synthetic", 0, "train on so many examples made from the seed instead")
    add("column", str, "of the texts or messages, or PROMPT,COMPLETION; default: messages, prompt and completion, …")
    learnt = "tokens that are learnt; default: the assistant's of conversations, completions of prompts, all of texts"
    parser.add_argument("--loss-on", "--loss_on", choices=get_args(LossOn), help=learnt)
    packs = "documents: several in an example, apart; cut: all in a row; default: cut for texts, documents for others"
    parser.add_argument("--packing", choices=get_args(Packing), help=packs)
    add("chat-template", Path, "file with the template of conversations; default: the tokenizer's")
    add("tokenizer", Path, "default: the model's")
    add("token-cache", Path, "default: tokens, in the output directory")
    add("seq-len", int, "tokens of an example; default: what the model takes, at most 2048")
    sharding = "none: a whole model in each rank (default: %(default)s)"
    parser.add_argument("--sharding", choices=("full", "none"), default="full", help=sharding)
    add("tensor-parallel", 1, "ranks that divide each layer")
    syncs = "micro-batches after which gradients travel (default: %(default)s)"
    parser.add_argument("--gradient-sync", choices=("last", "each"), default="last", help=syncs)
    parser.add_argument("--activation-checkpointing", action=argparse.BooleanOptionalAction, default=False)
    add_options(parser, DEFAULTS)
    return parser


def _check(asked: argparse.Namespace, options: Options) -> None:
    """Refuse all invalid options at once, before anything is read."""
    tensor, full = asked.tensor_parallel, asked.sharding == "full"
    wrong = too_small(asked, {"synthetic": 0, "seq_len": 1, "lora": 0, "tensor_parallel": 1}) + alone(asked, NEEDS)
    asked.lora_alpha = asked.lora_alpha or 2 * asked.lora
    faults = (
        (bool(asked.data) == bool(asked.synthetic), "one of --data PATH and --synthetic N is needed"),
        (
            asked.packing == "cut" and asked.loss_on not in (None, "all"),
            f"--packing cut learns all tokens: --loss-on {asked.loss_on} needs --packing documents or none",
        ),
        (asked.eval_data and options.eval_fraction, "--eval-data and --eval-fraction: give one of them"),
        (tensor > 1 and asked.lora, "--lora is for whole layers: leave --tensor-parallel out"),
        (full and options.optimizer == "lamb", "--optimizer lamb is for --sharding none: use adamw"),
        (asked.activation_checkpointing and options.backend == "xla", "--activation-checkpointing is not for XLA"),
    )
    if wrong := [*wrong, *(said for is_wrong, said in faults if is_wrong)]:
        raise RefusalError("; ".join(wrong))
    if full:
        sharding.check(options)
    models.check_export(asked.export)


def _prepare_libraries() -> None:
    try:
        import transformers
    except ImportError:
        raise RefusalError("models are read with the package transformers, which this image lacks") from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def _check_apart(name: str, directory: Path) -> None:
    """Refuse a model whose documents do not stay apart in an example."""
    mixes = mixes_documents(models.read_configuration(directory))
    if mixes is not False:
        fault = "lets a document see the document before" if mixes else "cannot be tried with several documents"
        raise RefusalError(f"--packing documents: {name} {fault}. Take --packing none")


def _tell_whether_packed(data: Rows) -> bool:
    """Tell transformers whether positions begin anew within an example, and return it: transformers would look in each
    pass, and wait for the device."""
    from transformers import masking_utils

    is_packed = "positions" in data.table.column_names
    masking_utils.find_packed_sequence_indices = _document_of_each if is_packed else lambda _: None
    return is_packed


def _document_of_each(positions: Tensor) -> Tensor:
    """Return the number of each token's document within its example."""
    return (positions.diff(prepend=positions[:, :1] - 1, dim=-1) != 1).cumsum(-1)


def _task(asked: argparse.Namespace, options: Options, backend: Backend) -> FineTuning:
    directory = made_by_first(backend, lambda: models.find(asked.model, options.output, options.seed))
    sizes = models.read_configuration(directory).get_text_config()
    takes = getattr(sizes, "max_position_embeddings", None) or _LENGTH
    length = asked.seq_len or min(_LENGTH, takes)
    if length > takes:
        raise RefusalError(f"--seq-len {length} is longer than the {takes} tokens that {asked.model} takes")
    cache = asked.token_cache or options.output / "tokens"

    tokenizer = asked.tokenizer or directory
    form = Form(length, sizes.vocab_size, asked.column, asked.loss_on, asked.packing, asked.chat_template)

    def make() -> Path:
        if asked.synthetic:
            return text.prepare_synthetic(asked.synthetic, length, options.seed, cache)
        return text.prepare(asked.data, tokenizer, cache, form)

    def make_evaluated() -> Path:
        return text.prepare(asked.eval_data, tokenizer, cache, form, "test")

    data = Rows(made_by_first(backend, make))
    if _tell_whether_packed(data):
        made_by(backend, backend.rank == 0, lambda: _check_apart(asked.model, directory))
    held_out = Rows(made_by_first(backend, make_evaluated)) if asked.eval_data else None
    facts = {name: getattr(sizes, name) for name in _SIZES if hasattr(sizes, name)}
    return FineTuning(asked, options, backend, directory, facts, data, length, held_out)


if __name__ == "__main__":
    sys.exit(guarded(main))
