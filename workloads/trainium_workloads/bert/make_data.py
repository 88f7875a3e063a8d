"""Examples made from a seed instead of text: of the form of the real ones, and learnable, so that a loss goes down.
As a command, which writes them as a data set for trials of staging and reading:

python -m trainium_workloads.bert.make_data --to my-wikicorpus --examples 20000 --seq-len 32 --vocab-size 256
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from trainium_workloads.bert import wikicorpus
from trainium_workloads.training.options import add_option, too_small
from trainium_workloads.training.refusal import RefusalError, guarded

_SHARDS = 4
PADDING, CLASSIFY, SEPARATE, MASK = 0, 101, 102, 103
"""Special tokens, numbered as in the published uncased vocabulary."""
_FIRST_WORD = 104
_TOPICS = 8
_MASKED_PART = 0.15

SMALLEST_VOCABULARY = _FIRST_WORD + 2 * _TOPICS
"""For the special tokens and two words of each topic."""
SHORTEST = 16
"""Tokens of an example, at least."""


def predictions_of(sequence: int) -> int:
    """Return the number of hidden words of an example: 15 % and a little, 20 of 128 and 80 of 512 as published."""
    return {128: 20, 512: 80}.get(sequence, max(sequence * 5 // 32, 1))


def make(count: int, *, sequence: int, predictions: int, vocabulary: int, seed: int) -> dict[str, Any]:
    """Return examples for pre-training: arrays by the columns of the data set (see :mod:`.wikicorpus`). The same seed
    gives the same examples.

    A text is words of one topic, each said twice, so that a hidden word is next to its copy; the second sentence
    follows the first when its topic is the same. Words and masks are the paper's: 15 % are to be predicted, and of
    these 80 % are hidden by ``[MASK]``, 10 % replaced by another word and 10 % left. ``sequence`` counts padding and is
    at least :data:`SHORTEST`; ``predictions`` are places for words to predict, of which unused ones are 0;
    ``vocabulary`` is at least :data:`SMALLEST_VOCABULARY`.
    """
    random = np.random.default_rng([seed, count, sequence, vocabulary])
    labels = random.integers(0, 2, count)
    first_topics = random.integers(0, _TOPICS, count)
    second_topics = (first_topics + labels * random.integers(1, _TOPICS, count)) % _TOPICS
    lengths = random.integers(sequence * 3 // 4, sequence + 1, count)
    middles = lengths // 2

    places = np.arange(sequence)[None, :]
    in_second = (places > middles[:, None]) & (places < lengths[:, None])
    tokens = _words(random, np.where(in_second, second_topics[:, None], first_topics[:, None]), vocabulary)
    tokens[:, 0] = CLASSIFY
    rows = np.arange(count)
    tokens[rows, middles] = SEPARATE
    tokens[rows, lengths - 1] = SEPARATE
    tokens[places >= lengths[:, None]] = PADDING

    positions, answers = _hide(random, tokens, lengths, predictions, vocabulary)
    return {
        "input_ids": tokens,
        "input_mask": (places < lengths[:, None]).astype(np.int8),
        "segment_ids": in_second.astype(np.int8),
        "masked_lm_positions": positions,
        "masked_lm_ids": answers,
        "next_sentence_labels": labels.astype(np.int8),
    }


def _words(random: Any, topics: Any, vocabulary: int) -> Any:
    """Return a word of its topic for each place, the same at each two neighbours of one topic; low numbers are
    more frequent."""
    per_topic = (vocabulary - _FIRST_WORD) // _TOPICS
    pairs = np.repeat(random.random(((topics.shape[0]), (topics.shape[1] + 1) // 2)) ** 3, 2, axis=1)
    chosen = (pairs[:, : topics.shape[1]] * per_topic).astype(np.int32)
    return (_FIRST_WORD + topics * per_topic + chosen).astype(np.int32)


def _hide(random: Any, tokens: Any, lengths: Any, predictions: int, vocabulary: int) -> tuple[Any, Any]:
    """Hide words in ``tokens``; return their positions, in ascending order, and the words."""
    count, sequence = tokens.shape
    wanted = np.clip(np.round(lengths * _MASKED_PART).astype(np.int32), 1, predictions)
    order = np.where(tokens >= _FIRST_WORD, random.random(tokens.shape), 2.0).argsort(axis=1)[:, :predictions]
    # Ascending, and then 0 for the places that are not needed: 0 is [CLS], which is never hidden.
    taken = np.where(np.arange(order.shape[1])[None, :] < wanted[:, None], order, sequence)
    taken.sort(axis=1)
    used = taken < sequence
    positions = np.zeros((count, predictions), np.int32)
    positions[:, : order.shape[1]] = np.where(used, taken, 0)
    rows = np.arange(count)[:, None]
    answers = np.where(positions > 0, tokens[rows, positions], 0).astype(np.int32)

    fate = random.random(positions.shape)
    other = random.integers(_FIRST_WORD, vocabulary, positions.shape)
    shown = np.where(fate < 0.8, MASK, np.where(fate < 0.9, other, answers))
    in_row, at = np.nonzero(positions)
    tokens[in_row, positions[in_row, at]] = shown[in_row, at]
    return positions, answers


def main() -> int:
    """Write the shards of a data set."""
    parser = argparse.ArgumentParser(prog="make_data", description="Writes a data set of made-up examples.")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="folder, made if need be")
    add_option(parser, "examples", 20_000, "number of all")
    add_option(parser, "seq-len", 128, "tokens of an example")
    add_option(parser, "vocab-size", 30522, "tokens are below it")
    asked = parser.parse_args()
    least = {"examples": _SHARDS, "seq_len": SHORTEST, "vocab_size": SMALLEST_VOCABULARY}
    if wrong := too_small(asked, least):
        raise RefusalError("; ".join(wrong))
    asked.to.mkdir(parents=True, exist_ok=True)
    sizes = {"sequence": asked.seq_len, "predictions": predictions_of(asked.seq_len), "vocabulary": asked.vocab_size}
    for shard in range(_SHARDS):
        count = len(range(shard, asked.examples, _SHARDS))
        wikicorpus.write_shard(asked.to / f"synthetic_training_{shard}.hdf5", make(count, seed=shard, **sizes))
    print(f"{asked.examples} examples of {asked.seq_len} tokens in {_SHARDS} shards below {asked.to}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
