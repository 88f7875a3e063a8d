"""Fine-tunes a classifier of texts: ``python -m trainium_workloads.text_classification.train``, on a cluster or in
SageMaker.

The settings are those with which AWS compared ml.trn1.32xlarge with ml.p4d.24xlarge on Amazon Polarity (the sample
beside "Maximize performance and reduce your deep learning training cost with AWS Trainium and Amazon SageMaker"):
BERT-base, text cut to 128 pieces, 8 reviews in each rank, AdamW at a constant 5e-5, two epochs, seed 100.

At the end it evaluates on the test reviews and writes, below its output, ``model`` (which transformers loads and
``trn serve`` serves) and ``result.json`` (accuracy, time, iterations a second).
"""

import argparse
import dataclasses
import functools
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
from transformers import AutoModelForSequenceClassification

from trainium_workloads.bert.config import config_of
from trainium_workloads.model_directory import NAME, model_in, prepared_mask, read_config, read_model, write_model
from trainium_workloads.text_classification import sagemaker
from trainium_workloads.text_classification.data import Data, ReviewSource
from trainium_workloads.tokenized import Rows
from trainium_workloads.training import backends, loop
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.evaluation import Evaluation
from trainium_workloads.training.options import ONLY_COMPILES, Options, add_option, add_options, options_of, too_small
from trainium_workloads.training.progress import say
from trainium_workloads.training.refusal import RefusalError, guarded
from trainium_workloads.training.task import IGNORED, Batch, Fact, Loss

RESULT = "result.json"
"""Name of the file with a training's result, in its output."""

_DEFAULTS = {
    "base": Options(
        steps=0, batch_size=8, learning_rate=5e-5, schedule="constant", clip=0.0, seed=100, log_every=10, workers=1
    ),
    "tiny": Options(steps=0, batch_size=16, learning_rate=2e-3, schedule="linear", warmup_steps=10, seed=100),
}
_BEGUN = time.monotonic()


class Classification:
    """Training of a classifier, with new weights or beginning with a model's directory."""

    def __init__(self, data: Data, config: Any, begin_with: Path | None, evaluated: Rows | None = None) -> None:
        self.data, self.config, self._begin_with = data, config, begin_with
        self.evaluated = evaluated
        self.begun: list[float] = []
        """Times at which micro-batches began."""

    @property
    def identity(self) -> Mapping[str, Fact]:
        names = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads"}
        sizes = {ours: getattr(self.config, theirs, 0) for ours, theirs in names.items()}
        labels, length = self.config.num_labels, self.tokens_per_example
        model, data = f"{self.config.model_type} for text classification", self.data.train.digest
        own = {"vocabulary": self.config.vocab_size, "labels": labels, "length": length, "data": data}
        return {"model": model, **sizes, **own}

    @property
    def tokens_per_example(self) -> int:
        return int(self.data.tokenizer.model_max_length)

    def model(self) -> nn.Module:
        """Return the pre-trained model with a new head, or a new model. Refusal: it is a decoder, and the backend needs
        the same graph for every batch."""
        if self._begin_with is None:
            model = AutoModelForSequenceClassification.from_config(self.config)
        else:
            model = read_model(AutoModelForSequenceClassification, self._begin_with, self.config)
        eager = model.config._attn_implementation == "eager"
        if eager and any(getattr(each, "is_causal", False) for each in model.modules()):
            raise RefusalError(f"{self.config.model_type} is a decoder: on Trainium an encoder is needed, such as BERT")
        return model

    def examples(self) -> Rows:
        return self.data.train

    def loss(self, model: Any, batch: Batch) -> Loss:
        """Return the cross entropy of the labels."""
        if model.training:
            self.begun.append(time.monotonic())
        mask = batch["attention_mask"]
        if model.config._attn_implementation == "eager":
            mask = prepared_mask(mask, model)
        found = model(input_ids=batch["input_ids"], attention_mask=mask).logits.float()
        labels = batch["labels"]
        right = (found.argmax(dim=1) == labels).float().mean()
        loss = functional.cross_entropy(found, labels, reduction="sum") / len(labels)
        return Loss(loss, {"accuracy": right}, None if model.training else (labels != IGNORED).float().mean())

    def rate(self, warm_up: int) -> float | None:
        """Return the micro-batches a second, without the first ones: those compile, and fill caches. None where there
        were too few to tell."""
        counted = len(self.begun) - warm_up - 1
        return counted / (self.begun[-1] - self.begun[warm_up]) if counted > 0 else None


def main() -> int:
    """Run the command and return the exit code."""
    in_sagemaker = sagemaker.is_here(os.environ)
    arguments = sagemaker.arguments(os.environ, sys.argv[1:])
    asked = _parser(arguments).parse_args(arguments)
    # Steps follow from the epochs once the reviews are counted.
    wanted, asked.steps = asked.steps, asked.steps or 1
    options = options_of(asked)
    _check(asked)
    source = ReviewSource(
        train=asked.train_data or asked.data_dir,
        test=asked.test_data or asked.data_dir,
        synthetic=asked.synthetic,
        seed=options.seed,
        length=asked.length,
        vocabulary=asked.vocabulary or (model_in(asked.model_dir) if asked.model_dir else None),
        # SageMaker's hosts share no directory, and all of the output is copied to S3.
        cache=asked.cache_dir or (Path(tempfile.gettempdir(), "trainium-workloads") if in_sagemaker else None),
        each_node=in_sagemaker,
        output=options.output,
    )
    backend = backends.start(options)
    try:
        data = source.prepared(backend)
        batch = options.batch_size * options.accumulate * backend.world_size
        steps = wanted or max(int(asked.epochs * len(data.train) / batch), 1)
        return _train(asked, dataclasses.replace(options, steps=steps), data, backend)
    finally:
        backend.close()


def _train(asked: argparse.Namespace, options: Options, data: Data, backend: Backend) -> int:
    test = data.test.first(asked.evaluate)
    evaluates = bool(options.eval_every or options.patience)
    during = test if evaluates and not options.eval_fraction else None
    task = Classification(data, _config(asked, options, data), asked.model_dir, during)
    begun = time.monotonic()
    outcome = loop.train(task, options, backend)
    trained = time.monotonic()
    if not outcome.is_complete:
        return outcome.exit_code
    evaluation = Evaluation(task, test, options, backend, (backend.rank, backend.world_size))
    right = evaluation.of(outcome.model, outcome.step)["eval_accuracy"]
    if os.environ.get(ONLY_COMPILES) == "1":
        return 0
    rate = task.rate(asked.warm_up * options.accumulate)
    result = {
        "model": asked.model_dir.name if asked.model_dir else f"BERT {asked.size}",
        "accuracy": round(right, 5),
        "evaluated": len(test),
        "reviews": len(data.train),
        "steps": options.steps,
        "steps_of_run": len(task.begun) // options.accumulate,
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
        write_model(outcome.model, state, asked.model_out or options.output / NAME, data.tokenizer, result)
        result["seconds"] = round(time.monotonic() - _BEGUN, 2)
        file = (asked.results or options.output) / RESULT
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{RESULT}.part")
        part.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        part.replace(file)
        say(json.dumps({"text-classification": "complete", **result}))
    backend.barrier()
    return 0


def _config(asked: argparse.Namespace, options: Options, data: Data) -> Any:
    """Return the configuration of the model. Refusal: the model does not take the vocabulary, or the length of the
    reviews."""
    if asked.model_dir is None:
        config: Any = config_of(asked.size, options.backend, vocabulary=len(data.tokenizer))
    else:
        config = read_config(asked.model_dir, options.backend)
    # By it a decoder finds a review's last piece, and RoBERTa the positions.
    config.pad_token_id = data.tokenizer.pad_token_id
    names = dict(enumerate(data.labels))
    config.num_labels = len(names)
    config.id2label, config.label2id = names, {name: number for number, name in names.items()}
    config.problem_type = "single_label_classification"
    if len(data.tokenizer) > config.vocab_size:
        raise RefusalError(f"the vocabulary has {len(data.tokenizer)} pieces, and the model takes {config.vocab_size}")
    longest = getattr(config, "max_position_embeddings", asked.length)
    if asked.length > longest:
        raise RefusalError(f"--length {asked.length} is more than the model takes: {longest} at most")
    return config


def _check(asked: argparse.Namespace) -> None:
    """Refuse invalid options that need no other rank and no data to be known."""
    wrong = too_small(asked, {"length": 8, "evaluate": 0, "warm_up": 0, "synthetic": 0})
    if not asked.epochs > 0:
        wrong.append(f"--epochs must be more than 0, not {asked.epochs}")
    if asked.data_dir and asked.data_dir.is_file():
        wrong.append(f"--data-dir {asked.data_dir} is one file: give --train-data and --test-data")
    if asked.size == "base" and asked.model_dir is None:
        wrong.append(
            "BERT-base is fine-tuned, not trained from nothing: give --model-dir, a directory with its weights "
            "(trn stage bert-base-uncased brings it to /data/models/bert-base-uncased; in SageMaker a channel `model`)"
        )
    if wrong:
        raise RefusalError("; ".join(wrong))


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the script's parser; defaults depend on the given ``--size``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--size", choices=tuple(_DEFAULTS), default="base", help="default: %(default)s")
    size = parser.parse_known_args([each for each in arguments if each not in ("-h", "--help")])[0].size
    add = functools.partial(add_option, parser)
    add("model-dir", Path, "weights and vocabulary to begin with, of any encoder")
    add("vocabulary", Path, "default: the one in --model-dir")
    add("data-dir", Path, "train and test files, Parquet or CSV")
    add("train-data", Path, "instead: those to train with")
    add("test-data", Path, "instead: those to test with")
    add("synthetic", 0, "make N reviews to train with instead")
    add("length", 128, "pieces of a review; longer ones are cut off", "--max-length", "--max_length")
    add("epochs", 2.0, "how often all reviews are seen, where no --steps are given", "--num_train_epochs")
    add("evaluate", 0, "test with so many; 0: all")
    add("cache-dir", Path, "of tokenized reviews")
    add("model-out", Path, f"default: OUTPUT/{NAME}")
    add("results", Path, f"directory of {RESULT}; default: OUTPUT")
    add("warm-up", 10, "steps that the rate leaves out")
    aliases = {"batch_size": "--per_device_train_batch_size", "steps": "--max_train_steps"}
    add_options(parser, _DEFAULTS[size], aliases)
    return parser


if __name__ == "__main__":
    sys.exit(guarded(main))
