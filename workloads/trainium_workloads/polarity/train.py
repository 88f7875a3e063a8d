"""Fine-tunes BERT on Amazon Polarity: ``python -m trainium_workloads.polarity.train``, on a cluster or in SageMaker.

The settings are those with which AWS compared ml.trn1.32xlarge with ml.p4d.24xlarge (the sample beside "Maximize
performance and reduce your deep learning training cost with AWS Trainium and Amazon SageMaker"): BERT-base, text cut to
128 pieces, 8 reviews in each rank, AdamW at a constant 5e-5, two epochs, seed 100.

At the end it evaluates on the test reviews and writes, below its output, ``model`` (which transformers loads and
``trn serve`` serves) and ``result.json`` (accuracy, time, iterations a second).
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn import functional

from trainium_workloads.bert import weights
from trainium_workloads.bert.model import SIZES, Sizes
from trainium_workloads.polarity import evaluation, sagemaker, saved
from trainium_workloads.polarity.data import Data, ReviewSource
from trainium_workloads.polarity.encoded import Encoded
from trainium_workloads.polarity.model import Polarity
from trainium_workloads.training import backends, loop
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.options import Options, add_options, options_of
from trainium_workloads.training.progress import ONLY_COMPILES
from trainium_workloads.training.refusal import Refusal, guarded
from trainium_workloads.training.task import Batch, Fact, Loss

RESULT = "result.json"
"""Name of the file that says how a training went, in its output."""

_DEFAULTS = {
    "base": Options(
        steps=0, batch_size=8, learning_rate=5e-5, schedule="constant", clip=0.0, seed=100, log_every=10, workers=1
    ),
    "tiny": Options(steps=0, batch_size=16, learning_rate=2e-3, schedule="linear", warmup_steps=10, seed=100),
}
_BEGUN = time.monotonic()


class PolarityTask:
    """Good or bad, from the text of a review."""

    def __init__(self, data: Data, sizes: Sizes, weights_from: Path | None, warm_up: int) -> None:
        self.data = data
        self.sizes = sizes
        self.rate = _Rate(warm_up)
        self._weights_from = weights_from

    @property
    def identity(self) -> Mapping[str, Fact]:
        """See :class:`~trainium_workloads.training.task.Task`."""
        sizes = {name: getattr(self.sizes, name) for name in ("layers", "hidden", "heads", "vocabulary")}
        return {"model": "BERT for polarity", **sizes, "length": self.data.train.length}

    @property
    def tokens_per_example(self) -> int:
        """Padding included."""
        return self.data.train.length

    def model(self) -> nn.Module:
        """Return a model with the pre-trained weights, where they were given; the head is new."""
        model = Polarity(self.sizes)
        if self._weights_from is not None:
            weights.load(model, self._weights_from, only="bert.")
        return model

    def examples(self) -> Encoded:
        """Return the reviews to train with."""
        return self.data.train

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the cross entropy of the two classes."""
        self.rate.tick()
        logits = model(batch["input_ids"], batch["attention_mask"]).float()
        right = (logits.argmax(dim=1) == batch["labels"]).float().mean()
        return Loss(functional.cross_entropy(logits, batch["labels"]), {"accuracy": right})


class _Rate:
    """Rate of micro-batches, without the first ones: those compile, and fill caches."""

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up
        self.count = 0
        """Micro-batches so far."""
        self._first = self._last = 0.0

    def tick(self) -> None:
        """Count the beginning of a micro-batch."""
        self._last = time.monotonic()
        if self.count == self._warm_up:
            self._first = self._last
        self.count += 1

    @property
    def per_second(self) -> float | None:
        """Micro-batches a second; None where there were too few to tell."""
        counted = self.count - self._warm_up - 1
        return counted / (self._last - self._first) if counted > 0 else None


def main() -> int:
    """Run the command and return the exit code."""
    arguments = sagemaker.arguments(os.environ, sys.argv[1:])
    asked = _parser(_size(arguments)).parse_args(arguments)
    # Steps follow from the epochs once the reviews are counted.
    wanted, asked.steps = asked.steps, asked.steps or 1
    options = options_of(asked)
    source = _source(asked, options)
    _check(asked)
    backend = backends.start(options)
    try:
        data = source.prepared(backend)
        steps = wanted or _steps(asked.epochs, len(data.train), options, backend)
        return _train(asked, dataclasses.replace(options, steps=steps), data, backend)
    finally:
        backend.close()


def _train(asked: argparse.Namespace, options: Options, data: Data, backend: Backend) -> int:
    sizes = _sizes(asked, data)
    task = PolarityTask(data, sizes, asked.model_dir, asked.warm_up * options.accumulate)
    begun = time.monotonic()
    outcome = loop.train(task, options, backend)
    trained = time.monotonic()
    if not outcome.is_complete:
        return outcome.exit_code
    only_compiles = os.environ.get(ONLY_COMPILES) == "1"
    # Two batches in each rank have all the graphs.
    most = 2 * asked.eval_batch_size * backend.world_size if only_compiles else asked.evaluate
    right = evaluation.accuracy(outcome.model, data.test, backend, options, asked.eval_batch_size, most)
    if only_compiles:
        return 0
    rate = task.rate.per_second
    result = {
        "model": f"BERT {asked.size}",
        "accuracy": round(right, 5),
        "evaluated": min(asked.evaluate or len(data.test), len(data.test)),
        "reviews": len(data.train),
        "steps": options.steps,
        "steps_of_run": task.rate.count // options.accumulate,
        "iterations_per_second": round(rate / options.accumulate, 4) if rate else None,
        "warm_up_steps": asked.warm_up,
        "train_seconds": round(trained - begun, 2),
        "evaluate_seconds": round(time.monotonic() - trained, 2),
        "ranks": backend.world_size,
        "batch_size": options.batch_size * options.accumulate * backend.world_size,
        "backend": options.backend,
        "precision": options.precision,
    }
    state = backend.to_host(outcome.model.state_dict())
    if backend.rank == 0:
        saved.publish(state, sizes, data.pieces, data.train.length, _model_out(asked, options), result)
        result["seconds"] = round(time.monotonic() - _BEGUN, 2)
        _write(result, (asked.results or options.output) / RESULT)
        print(json.dumps({"polarity": "complete", **result}), flush=True)
    backend.barrier()
    return 0


def _write(result: Mapping[str, Any], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.write_text(json.dumps(dict(result), indent=2) + "\n", encoding="utf-8")
    part.replace(file)


def _steps(epochs: float, reviews: int, options: Options, backend: Backend) -> int:
    """Return the number of updates in the epochs."""
    return max(int(epochs * reviews / (options.batch_size * options.accumulate * backend.world_size)), 1)


def _model_out(asked: argparse.Namespace, options: Options) -> Path:
    return asked.model_out or options.output / saved.DIRECTORY


def _size(arguments: Sequence[str]) -> str:
    """Return the model's size, which other defaults depend on."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--size", choices=tuple(_DEFAULTS), default="base")
    return str(first.parse_known_args(arguments)[0].size)


def _sizes(asked: argparse.Namespace, data: Data) -> Sizes:
    sizes = saved.read_sizes(asked.model_dir) if asked.model_dir else SIZES[asked.size]
    if data.pieces.size > sizes.vocabulary:
        raise Refusal(f"the vocabulary has {data.pieces.size} pieces, and the model takes {sizes.vocabulary}")
    if data.train.length > sizes.positions:
        raise Refusal(f"--length {data.train.length} is more than the model takes: {sizes.positions} at most")
    return sizes


def _check(asked: argparse.Namespace) -> None:
    """Refuse invalid options that need no other rank and no data to be known."""
    wrong = [
        f"--{name.replace('_', '-')} must be {least} or more, not {getattr(asked, name)}"
        for name, least in (("length", 8), ("eval_batch_size", 1), ("evaluate", 0), ("warm_up", 0), ("synthetic", 0))
        if getattr(asked, name) < least
    ]
    if not asked.epochs > 0:
        wrong.append(f"--epochs must be more than 0, not {asked.epochs}")
    if asked.size == "base" and asked.model_dir is None:
        wrong.append(
            "BERT-base is fine-tuned, not trained from nothing: give --model-dir, a directory with its weights "
            "(trn stage bert-base-uncased brings it to /data/models/bert-base-uncased; in SageMaker a channel `model`)"
        )
    if wrong:
        raise Refusal("; ".join(wrong))


def _source(asked: argparse.Namespace, options: Options) -> ReviewSource:
    own = sagemaker.is_here(os.environ)
    return ReviewSource(
        train=asked.train_data or asked.data_dir,
        test=asked.test_data or asked.data_dir,
        synthetic=asked.synthetic,
        seed=options.seed,
        length=asked.length,
        vocabulary=asked.vocabulary or asked.model_dir,
        # SageMaker's hosts share no directory, and what lies in the output is copied to S3.
        cache=asked.cache_dir or (Path(tempfile.gettempdir(), "trainium-workloads") if own else None),
        each_node=own,
        output=options.output,
    )


def _parser(size: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    group = parser.add_argument_group("model and reviews")
    group.add_argument("--size", choices=tuple(_DEFAULTS), default="base", help="default: %(default)s")
    group.add_argument(
        *("--model-dir", "--model_dir"), type=Path, metavar="DIR", help="weights and vocabulary to begin with"
    )
    group.add_argument("--vocabulary", type=Path, metavar="DIR", help="default: the one in --model-dir")
    group.add_argument(
        *("--data-dir", "--data_dir"), type=Path, metavar="DIR", help="train and test files, Parquet or CSV"
    )
    group.add_argument("--train-data", "--train_data", type=Path, metavar="PATH", help="instead: those to train with")
    group.add_argument("--test-data", "--test_data", type=Path, metavar="PATH", help="instead: those to test with")
    group.add_argument("--synthetic", type=int, default=0, metavar="N", help="make N reviews to train with instead")
    length = "pieces of a review; longer ones are cut off (default: %(default)s)"
    group.add_argument("--length", "--max-length", "--max_length", type=int, default=128, metavar="N", help=length)
    epochs = "how often all reviews are seen, where no --steps are given (default: %(default)s)"
    group.add_argument("--epochs", "--num_train_epochs", type=float, default=2.0, metavar="X", help=epochs)
    group.add_argument(
        *("--eval-batch-size", "--eval_batch_size", "--per_device_eval_batch_size"),
        type=int,
        default=8 if size == "base" else 64,
        metavar="N",
        help="reviews of a rank that are tested at once (default: %(default)s)",
    )
    group.add_argument("--evaluate", type=int, default=0, metavar="N", help="test with so many; default: all")
    group.add_argument("--cache-dir", "--cache_dir", type=Path, metavar="DIR", help="of encoded reviews")
    group.add_argument("--model-out", "--model_out", type=Path, metavar="DIR", help="default: OUTPUT/model")
    group.add_argument("--results", type=Path, metavar="DIR", help=f"of {RESULT}; default: OUTPUT")
    warm_up = "steps that the rate leaves out (default: %(default)s)"
    group.add_argument("--warm-up", "--warm_up", type=int, default=10, metavar="N", help=warm_up)
    aliases = {"batch_size": "--per_device_train_batch_size", "steps": "--max_train_steps"}
    add_options(parser, _DEFAULTS[size], aliases)
    return parser


if __name__ == "__main__":
    sys.exit(guarded(main))
