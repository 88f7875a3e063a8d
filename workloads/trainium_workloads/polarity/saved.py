"""A trained model as a directory, which transformers reads, too: its sizes, its weights, its vocabulary.

:func:`publish` writes it, whole or not at all; :func:`load` reads it.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from trainium_workloads.atomic_write import take_place
from trainium_workloads.bert import weights
from trainium_workloads.bert.model import Sizes
from trainium_workloads.bert.weights import CONFIG, SIZES_THERE
from trainium_workloads.polarity import wordpieces
from trainium_workloads.polarity.model import Polarity
from trainium_workloads.polarity.reviews import LABELS
from trainium_workloads.polarity.wordpieces import WordPieces
from trainium_workloads.training.refusal import Refusal

ARCHITECTURE = "BertForSequenceClassification"
DIRECTORY = "model"
"""Name of the directory, below a training's output."""

_LENGTH = "trained_length"
"""Our own entry of ``config.json``; transformers keeps it and does nothing with it."""


@dataclass(frozen=True)
class Saved:
    """A model to predict with."""

    model: Polarity
    """On the CPU, in FP32; its dropout is off."""
    pieces: WordPieces
    length: int
    """Pieces that it was trained with; longer texts are cut off there."""
    labels: tuple[str, ...]
    """Names of its classes."""


def publish(
    state: Mapping[str, Tensor],
    sizes: Sizes,
    pieces: WordPieces,
    length: int,
    directory: Path,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write a model's directory; an earlier one goes once the new one is whole.

    Args:
        state: of a :class:`Polarity`, on the CPU.
        sizes: of the model.
        pieces: its vocabulary.
        length: pieces of a text that it was trained with.
        directory: target. In a directory that exists and is no model's (SageMaker's ``/opt/ml/model``) the files are
            put one by one, ``config.json`` last.
        facts: of its training; they go into ``training.json``.
    """
    # A directory that is there and no model's is a mount, beside which there may be no room.
    stays = directory.is_dir() and (os.path.ismount(directory) or not (directory / CONFIG).is_file())
    above = directory if stays else directory.parent
    above.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=above))
    try:
        # A server computes in its own precision.
        weights.export({name: tensor.float() for name, tensor in state.items()}, sizes, part)
        config = json.loads((part / CONFIG).read_text(encoding="utf-8"))
        names = {str(number): name for number, name in enumerate(LABELS)}
        config |= {
            "architectures": [ARCHITECTURE],
            "num_labels": len(LABELS),
            "id2label": names,
            "label2id": {name: int(number) for number, name in names.items()},
            "problem_type": "single_label_classification",
            _LENGTH: length,
        }
        (part / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        pieces.save(part, length)
        (part / "training.json").write_text(json.dumps(dict(facts or {}), indent=2) + "\n", encoding="utf-8")
        if stays:
            for file in sorted(part.iterdir(), key=lambda each: each.name == CONFIG):
                os.replace(file, directory / file.name)
        else:
            part.chmod(0o755)
            take_place(part, directory)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_sizes(directory: Path) -> Sizes:
    """Return the sizes of the BERT in a directory, from its ``config.json``.

    Raises:
        Refusal: there is none, or it is not BERT's.
    """
    return _sizes(_config(directory), directory)


def load(directory: Path) -> Saved:
    """Return a model that :func:`publish` wrote, or transformers.

    Raises:
        Refusal: it is not there, not whole, or another kind of model.
    """
    config = _config(directory)
    if ARCHITECTURE not in (config.get("architectures") or ()):
        found = ", ".join(config.get("architectures") or ("none",))
        raise Refusal(f"{directory} holds {found}, and only {ARCHITECTURE} can predict: train one by polarity.train")
    model = Polarity(_sizes(config, directory))
    weights.load(model, directory)
    pieces = wordpieces.load(directory)
    if pieces.size > model.sizes.vocabulary:
        raise Refusal(f"{directory}: the vocabulary has {pieces.size} pieces, the model {model.sizes.vocabulary}")
    labels = config.get("id2label") or {}
    names = tuple(str(labels.get(str(number), name)) for number, name in enumerate(LABELS))
    return Saved(model.eval(), pieces, int(config.get(_LENGTH, min(128, model.sizes.positions))), names)


def _config(directory: Path) -> dict[str, Any]:
    file = directory / CONFIG
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"{directory} is no model's directory: {CONFIG}: {error.strerror or error}") from None
    except ValueError as error:
        raise Refusal(f"{file} is no JSON: {error}") from None
    if not isinstance(found, dict) or found.get("model_type") != "bert":
        kind = found.get("model_type") if isinstance(found, dict) else None
        raise Refusal(f"{file} is of a model of the type {kind}, not bert")
    return found


def _sizes(config: Mapping[str, Any], directory: Path) -> Sizes:
    try:
        return Sizes(**{ours: config[theirs] for ours, theirs in SIZES_THERE.items()})
    except KeyError as error:
        raise Refusal(f"{directory / CONFIG} lacks {error.args[0]}") from None
