"""Fine-tuning of a published decoder, sharded over the ranks: Llama 2 7B, Qwen3, or any of their family.

    torchrun --nproc-per-node 8 -m trainium_workloads.decoder.finetune --model qwen3-8b --weights /data/qwen3-8b \\
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
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from trainium_workloads.decoder import configuration as configurations
from trainium_workloads.decoder import fetching, text, weights
from trainium_workloads.decoder.configuration import Configuration
from trainium_workloads.decoder.memory import Plan, gigabytes, needed
from trainium_workloads.decoder.model import Decoder
from trainium_workloads.decoder.text import Synthetic, TextSource, Tokens
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
    """Training of a decoder to predict the next token.

    Args:
        name: of the model, as it is shown.
        configuration: of the model.
        data: its examples.
        length: tokens of an example.
        seed: of weights that are not read.
        published: weights to begin with; None for random ones.
        is_sharded: whether the model is made without memory, for :class:`Sharded` to fill.
        recompute: see :class:`Decoder`.
    """

    name: str
    configuration: Configuration
    data: Tokens | Synthetic
    length: int
    seed: int
    published: weights.Published | None
    is_sharded: bool
    recompute: bool

    @property
    def identity(self) -> Mapping[str, Fact]:
        """See :class:`~trainium_workloads.training.task.Task`."""
        sizes = self.configuration.facts()
        return {"model": self.name, **sizes, "sequence_length": self.length, "data": self.data.digest[:16]}

    @property
    def tokens_per_example(self) -> int:
        """See :class:`~trainium_workloads.training.task.Task`."""
        return self.length

    def model(self) -> nn.Module:
        """See :class:`~trainium_workloads.training.task.Task`; on the device ``meta`` where it is to be sharded."""
        with torch.device("meta"):
            model = Decoder(self.configuration, recompute=self.recompute)
        if self.is_sharded:
            return model
        model.to_empty(device="cpu")
        with torch.no_grad():
            self.fill(model)
        return model

    def fill(self, model: nn.Module) -> None:
        """Set the first weights of the model's part in this rank."""
        if self.published is None:
            weights.initialize(model, self.seed)
        else:
            self.published.fill(model)

    def examples(self) -> Tokens | Synthetic:
        """See :class:`~trainium_workloads.training.task.Task`."""
        return self.data

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """See :class:`~trainium_workloads.training.task.Task`."""
        tokens = batch["tokens"]
        return Loss(model(tokens[:, :-1], tokens[:, 1:]))


def main() -> int:
    """Run the training and return the exit code."""
    asked = _parser().parse_args()
    options = options_of(asked)
    _check(asked, options)
    backend = backends.start(options)
    task = _task(asked, options, backend)
    layout: Layout = Replicated()
    if task.is_sharded:
        layout = Sharded(task.fill, asked.tensor_parallel, asked.gradient_sync)
    _weigh(task, asked, options, backend)
    outcome = train(task, options, backend, layout)
    if asked.export and outcome.is_complete:
        facts: dict[str, Fact] = {"model": task.name, "step": outcome.step, "data": task.data.digest}
        if math.isfinite(outcome.loss):  # a run that only had to export made no step
            facts["loss"] = outcome.loss
        weights.export(outcome.model, task.configuration, asked.export, _tokenizer(asked), facts)
        if backend.rank == 0:
            print(f"exported to {asked.export}", flush=True)
        backend.barrier()
    backend.close()
    return outcome.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="finetune", description=__doc__.partition("\n")[0])
    model = parser.add_argument_group("model")
    names = ", ".join(configurations.CONFIGURATIONS)
    model.add_argument("--model", default="qwen3-8b", help=f"{names}, or a directory (default: %(default)s)")
    model.add_argument("--weights", metavar="DIR", help="of safetensors files, or hf://ORGANIZATION/MODEL; else random")
    model.add_argument("--export", type=Path, metavar="DIR", help="write the trained model there, as it is published")
    data = parser.add_argument_group("data")
    data.add_argument("--data", "--data-dir", "--data_dir", type=Path, metavar="PATH", help="texts or conversations")
    data.add_argument("--synthetic", type=int, default=0, metavar="N", help="so many examples made from the seed")
    data.add_argument("--column", help="of the texts or messages (default: text, messages or content)")
    data.add_argument("--tokenizer", type=Path, metavar="DIR", help="default: beside the weights")
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
    if asked.synthetic < 0:
        wrong.append(f"--synthetic must be 1 or more, not {asked.synthetic}")
    if asked.seq_len is not None and asked.seq_len < 1:
        wrong.append(f"--seq-len must be 1 or more, not {asked.seq_len}")
    if asked.tensor_parallel < 1:
        wrong.append(f"--tensor-parallel must be 1 or more, not {asked.tensor_parallel}")
    if asked.tensor_parallel > 1 and asked.sharding == "none":
        wrong.append("--tensor-parallel is for --sharding full")
    if asked.sharding == "full" and options.optimizer == "lamb":
        wrong.append("--optimizer lamb is for --sharding none: use adamw")
    if wrong:
        raise Refusal("; ".join(wrong))
    if asked.sharding == "full":
        sharding.check(options)
    if asked.export:
        weights.check_export(asked.export)


def _task(asked: argparse.Namespace, options: Options, backend: Backend) -> FineTuning:
    directory = _weights(asked, options, backend)
    sizes = configurations.named(asked.model)
    length = asked.seq_len or min(_LENGTH, sizes.positions)
    if length > sizes.positions:
        raise Refusal(f"--seq-len {length} is longer than the {sizes.positions} tokens that {asked.model} takes")
    beside = weights.configuration_beside(directory) if directory else None
    if beside and _structure(beside) != _structure(sizes):
        raise Refusal(f"--weights {directory} are of another model than --model {asked.model}, by their config.json")
    published = weights.Published(directory, sizes) if directory else None
    return FineTuning(
        name=Path(asked.model).name,
        configuration=sizes,
        data=_data(asked, options, sizes, length, backend),
        length=length,
        seed=options.seed,
        published=published,
        is_sharded=asked.sharding == "full",
        recompute=asked.activation_checkpointing,
    )


def _weights(asked: argparse.Namespace, options: Options, backend: Backend) -> Path | None:
    """Return the directory of the weights; rank 0 fetches weights of the Hub."""
    if not asked.weights:
        return Path(asked.model) if Path(asked.model).is_dir() else None
    if not asked.weights.startswith(fetching.SCHEME):
        return Path(asked.weights)
    home = Path(os.environ.get("HF_HOME") or options.output)
    asked.weights = _first(backend, lambda: fetching.fetch(asked.weights, home))
    return Path(asked.weights)


def _data(
    asked: argparse.Namespace, options: Options, sizes: Configuration, length: int, backend: Backend
) -> Tokens | Synthetic:
    if asked.synthetic:
        return Synthetic(asked.synthetic, length, options.seed)
    tokenizer = _tokenizer(asked)
    if tokenizer is None:
        raise Refusal("--data needs a tokenizer: --tokenizer DIRECTORY, or --weights of a model that has one")
    source = TextSource(asked.data, tokenizer, asked.column)
    cache = asked.token_cache or options.output / "tokens"
    return Tokens(_first(backend, lambda: text.prepare(source, sizes, cache)), length)


def _tokenizer(asked: argparse.Namespace) -> Path | None:
    """Return the directory of the tokenizer."""
    for each in (asked.tokenizer, asked.weights, asked.model):
        if each and (each is asked.tokenizer or (Path(each) / "tokenizer.json").is_file()):
            return Path(each)
    return None


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


def _structure(sizes: Configuration) -> Configuration:
    """Return the sizes that must be the same in weights and model; texts may begin and end otherwise."""
    return replace(sizes, positions=0, begin=None, end=0)


def _weigh(task: FineTuning, asked: argparse.Namespace, options: Options, backend: Backend) -> None:
    """Print the memory that a device needs.

    Raises:
        Refusal: a GPU has not even room for parameters, gradients and the optimizer's state.
    """
    plan = Plan(
        ranks=backend.world_size,
        tensor_parallel=asked.tensor_parallel,
        is_sharded=task.is_sharded,
        keeps_gradients=asked.gradient_sync == "last" and options.accumulate > 1,
        recompute=task.recompute,
        batch_size=options.batch_size,
        length=task.length,
        compute_bytes=2 if options.precision == "bf16" else 4,
    )
    memory = needed(task.configuration, plan)
    if backend.rank == 0:
        began = "random weights" if task.published is None else f"weights of {task.published.directory}"
        print(
            f"{began}; a device needs about {gigabytes(memory.total)}: parameters, gradients and optimizer "
            f"{gigabytes(memory.states)}, gathered {gigabytes(memory.gathered)}, "
            f"activations {gigabytes(memory.activations)}",
            flush=True,
        )
    if options.backend == "cuda":
        room = torch.cuda.get_device_properties(backend.device).total_memory
        if memory.states + memory.gathered > room:
            raise Refusal(
                f"{gigabytes(memory.states + memory.gathered)} for parameters, gradients and the optimizer do not fit "
                f"into the GPU's {gigabytes(room)}: more nodes, --gradient-sync each, or a smaller --model"
            )


if __name__ == "__main__":
    sys.exit(guarded(main))
