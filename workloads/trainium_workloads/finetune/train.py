"""Fine-tuning of a causal language model of transformers, sharded over the ranks.

    torchrun --nproc-per-node 8 -m trainium_workloads.finetune.train --model Qwen/Qwen3-8B \\
        --data /data/texts --activation-checkpointing --export /data/tuned
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from trainium_workloads.finetune import models, text
from trainium_workloads.finetune.models import Lora, Reading
from trainium_workloads.finetune.text import Synthetic, TextSource, Tokens
from trainium_workloads.training import backends, sharding
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.layout import Layout, Replicated
from trainium_workloads.training.loop import train
from trainium_workloads.training.options import Options, add_options, options_of
from trainium_workloads.training.refusal import Refusal, guarded
from trainium_workloads.training.sharding import Sharded
from trainium_workloads.training.task import Batch, Fact, Loss

DEFAULTS = Options(
    steps=1000, batch_size=1, learning_rate=1e-5, warmup_steps=50, schedule="cosine", weight_decay=0.1, precision="bf16"
)
"""The rates that Llama 2 was tuned with are of this size (arXiv 2307.09288, section 3.1: 2e-5, cosine, decay 0.1)."""

_LENGTH = 2048
"""Tokens of an example, where the model takes so many."""
_SIGN_OF_LIFE_SECONDS = 60.0
"""While rank 0 works alone. A group that hears nothing for half an hour takes it for dead, and billions of tokens take
longer to make."""


@dataclass(frozen=True)
class FineTuning:
    """Training of a model to predict the next token."""

    name: str
    """Of the model, as it is shown."""
    directory: Path
    """Of the model."""
    configuration: Any
    """transformers' own."""
    data: Tokens | Synthetic
    length: int
    """Tokens of an example."""
    reading: Reading
    lora: Lora | None
    seed: int
    """Of adapters."""

    @property
    def identity(self) -> Mapping[str, Fact]:
        """See :class:`~trainium_workloads.training.task.Task`."""
        lora = {f"lora_{name}": value for name, value in vars(self.lora).items()} if self.lora else {}
        own = {"model": self.name, "sequence_length": self.length, "data": self.data.digest[:16]}
        return {**own, **models.facts(self.configuration), **lora}

    @property
    def tokens_per_example(self) -> int:
        """See :class:`~trainium_workloads.training.task.Task`."""
        return self.length

    def model(self) -> nn.Module:
        """See :class:`~trainium_workloads.training.task.Task`; a sharded model is on its devices already."""
        return models.load(self.directory, self.reading, self.lora, self.seed)

    def examples(self) -> Tokens | Synthetic:
        """See :class:`~trainium_workloads.training.task.Task`."""
        return self.data

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """See :class:`~trainium_workloads.training.task.Task`: the mean over all tokens."""
        tokens = batch["tokens"]
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        return Loss(functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten()))


def main() -> int:
    """Run the training and return the exit code."""
    asked = _parser().parse_args()
    options = options_of(asked)
    _check(asked, options)
    _prepare_libraries(options)
    backend = backends.start(options)
    task = _task(asked, options, backend)
    layout: Layout = Replicated()
    if task.reading.is_sharded:
        layout = Sharded(asked.tensor_parallel, asked.gradient_sync)
    outcome = train(task, options, backend, layout)
    if asked.export and outcome.is_complete:
        facts: dict[str, Fact] = {"model": asked.model, "step": outcome.step, "data": task.data.digest}
        if math.isfinite(outcome.loss):  # a run that only had to export made no step
            facts["loss"] = outcome.loss
        base = asked.model if task.lora else None
        is_first = backend.rank == 0
        models.export(
            outcome.model, asked.export, task.directory, facts, is_first=is_first, base=base, merged=asked.merge
        )
        if is_first:
            print(f"exported to {asked.export}", flush=True)
        backend.barrier()
    backend.close()
    return outcome.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="finetune", description=__doc__.partition("\n")[0])
    model = parser.add_argument_group("model")
    names = "directory, ORGANIZATION/NAME[@REVISION] on the Hugging Face Hub, or tiny"
    model.add_argument("--model", default="Qwen/Qwen3-8B", help=f"{names} (default: %(default)s)")
    model.add_argument("--export", type=Path, metavar="DIR", help="write the trained model there, as it is published")
    lora = parser.add_argument_group("LoRA")
    lora.add_argument("--lora", type=int, default=0, metavar="RANK", help="train adapters of this rank alone")
    lora.add_argument("--lora-alpha", type=int, metavar="N", help="default: twice the rank")
    lora.add_argument("--lora-targets", default="all-linear", metavar="NAMES", help="of layers (default: %(default)s)")
    lora.add_argument("--merge", action="store_true", help="export the model with the adapters added, not them alone")
    data = parser.add_argument_group("data")
    data.add_argument("--data", "--data-dir", "--data_dir", type=Path, metavar="PATH", help="texts or conversations")
    data.add_argument("--synthetic", type=int, default=0, metavar="N", help="so many examples made from the seed")
    data.add_argument("--column", help="of the texts or messages (default: text, messages or content)")
    data.add_argument("--tokenizer", type=Path, metavar="DIR", help="default: the model's")
    data.add_argument("--token-cache", type=Path, metavar="DIR", help="default: tokens, in the output directory")
    longest = "default: what the model takes, at most 2048"
    data.add_argument("--seq-len", "--seq_len", type=int, metavar="N", help=f"tokens of an example; {longest}")
    lying = parser.add_argument_group("parallelism")
    lying.add_argument("--sharding", choices=("full", "none"), default="full", help="none: a whole model in each rank")
    lying.add_argument("--tensor-parallel", "--tensor_parallel", type=int, default=1, metavar="N")
    lying.add_argument("--gradient-sync", choices=("last", "each"), default="last", help="micro-batches of a step")
    lying.add_argument("--activation-checkpointing", action=argparse.BooleanOptionalAction, default=False)
    add_options(parser, DEFAULTS)
    return parser


def _check(asked: argparse.Namespace, options: Options) -> None:
    """Refuse all invalid options at once, before anything is read."""
    wrong = []
    if bool(asked.data) == bool(asked.synthetic):
        wrong.append("one of --data PATH and --synthetic N is needed")
    for name, least in (("synthetic", 0), ("lora", 0), ("tensor_parallel", 1)):
        if getattr(asked, name) < least:
            wrong.append(f"--{name.replace('_', '-')} must be {least} or more, not {getattr(asked, name)}")
    if asked.seq_len is not None and asked.seq_len < 1:
        wrong.append(f"--seq-len must be 1 or more, not {asked.seq_len}")
    if asked.tensor_parallel > 1 and asked.sharding == "none":
        wrong.append("--tensor-parallel is for --sharding full")
    if asked.tensor_parallel > 1 and asked.lora:
        wrong.append("--lora is for whole layers: leave --tensor-parallel out")
    if asked.merge and not (asked.lora and asked.export):
        wrong.append("--merge is for --lora with --export")
    if asked.sharding == "full" and options.optimizer == "lamb":
        wrong.append("--optimizer lamb is for --sharding none: use adamw")
    if wrong:
        raise Refusal("; ".join(wrong))
    if asked.sharding == "full":
        sharding.check(options)
    if asked.export:
        models.check_export(asked.export)


def _prepare_libraries(options: Options) -> None:
    """Import transformers as this training needs it."""
    # The backend brings its own client of XLA, and a second one takes the device.
    os.environ["USE_TORCH_XLA"] = "0"
    try:
        import transformers
        from transformers import masking_utils
    except ImportError:
        raise Refusal("models are read with the package transformers, which this image lacks") from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if options.backend == "xla":
        # It asks in each pass whether positions begin anew within an example, and waits for the device. They never do.
        masking_utils.find_packed_sequence_indices = lambda position_ids: None


def _task(asked: argparse.Namespace, options: Options, backend: Backend) -> FineTuning:
    directory = _first(backend, lambda: models.find(asked.model, options.output, options.seed))
    configuration = models.read_configuration(directory)
    takes = models.longest(configuration)
    length = asked.seq_len or min(_LENGTH, takes)
    if length > takes:
        raise Refusal(f"--seq-len {length} is longer than the {takes} tokens that {asked.model} takes")
    is_sharded = asked.sharding == "full"
    lora = None
    if asked.lora:
        lora = Lora(asked.lora, asked.lora_alpha or 2 * asked.lora, asked.lora_targets)
    is_mixed = options.precision == "bf16"
    return FineTuning(
        name=Path(asked.model).name,
        directory=directory,
        configuration=configuration,
        data=_data(asked, options, directory, configuration.get_text_config().vocab_size, length, backend),
        length=length,
        reading=Reading(
            device=backend.device,
            ranks=backend.world_size,
            is_sharded=is_sharded,
            tensor_parallel=asked.tensor_parallel,
            is_mixed=is_mixed,
            # Weights that are trained stay in FP32; frozen ones need no more than the computation.
            dtype=torch.bfloat16 if lora and is_mixed else torch.float32,
            recompute=asked.activation_checkpointing,
        ),
        lora=lora,
        seed=options.seed,
    )


def _data(
    asked: argparse.Namespace, options: Options, directory: Path, vocabulary: int, length: int, backend: Backend
) -> Tokens | Synthetic:
    if asked.synthetic:
        return Synthetic(asked.synthetic, length, options.seed)
    source = TextSource(asked.data, asked.tokenizer or directory, asked.column)
    cache = asked.token_cache or options.output / "tokens"
    return Tokens(_first(backend, lambda: text.prepare(source, vocabulary, cache)), length)


def _first(backend: Backend, make: Callable[[], Path]) -> Path:
    """Return rank 0's path in all ranks; its refusal, too, so that all of them end alike."""

    def told() -> str:
        try:
            return json.dumps({"path": str(make())})
        except Refusal as refusal:
            return json.dumps({"refusal": str(refusal)})

    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(told) if backend.rank == 0 else None
        said = ""
        while not said:
            if making is not None:
                with suppress(NotYet):
                    said = making.result(timeout=_SIGN_OF_LIFE_SECONDS)
            said = backend.share(said)
    found = json.loads(said)
    if "refusal" in found:
        raise Refusal(found["refusal"])
    return Path(found["path"])


if __name__ == "__main__":
    sys.exit(guarded(main))
