"""HDF5 files of tokenized Wikipedia for BERT's training.

A directory of shards, each a file with six columns and the examples in their first dimension, as NVIDIA's
DeepLearningExamples write them and AWS offers them (``trn stage wikicorpus-bert-128``)::

    input_ids             [examples, sequence]     tokens, 0 is padding
    input_mask            [examples, sequence]     1 for tokens, 0 for padding
    segment_ids           [examples, sequence]     0 for the first sentence, 1 for the second
    masked_lm_positions   [examples, predictions]  positions of masked tokens, ascending; 0 is padding
    masked_lm_ids         [examples, predictions]  the masked tokens
    next_sentence_labels  [examples]               0: the second sentence followed the first; 1: it did not

Columns are compressed in chunks that cut rows into many pieces: to read one example takes 17 ms, a whole shard of
40,000 takes 0.4 s. So shards are read whole, a few at a time, and examples are shuffled among those in memory.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import torch

from trainium_workloads.data_files import files_of
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import Batch, Position

Columns = dict[str, Any]
"""Arrays by column; the first dimension is the examples."""

COLUMNS = {
    "input_ids": ("tokens", "sequence"),
    "input_mask": ("mask", "sequence"),
    "segment_ids": ("segments", "sequence"),
    "masked_lm_positions": ("positions", "predictions"),
    "masked_lm_ids": ("answers", "predictions"),
    "next_sentence_labels": ("labels", ""),
}
"""By the column's name: its name in a batch, and its second dimension."""

_TOGETHER = 200_000
"""Examples that are shuffled among each other, at least: some global batches of 32,768. 120 MB with 128 tokens each,
twice that with what is read ahead."""
_SHOWN = 5
"""Problems that a refusal lists."""


class _Turn(NamedTuple):
    """Group of shards with examples that are shuffled among each other, and their places in the epoch."""

    epoch: int
    places: range
    shards: Sequence[int]


class Corpus:
    """The examples of a data set, in an order by the seed. ``shards`` are the numbers of examples of each file;
    ``predictions`` the masked words taken of each example: further ones are not."""

    arranged = True
    """The index is a turn in the epoch, whose order is ours: an order by chance over all shards would read all of
    them again and again."""

    def __init__(
        self, shards: Mapping[Path, int], *, sequence: int, predictions: int, vocabulary: int, seed: int
    ) -> None:
        self._shards = tuple(sorted(shards.items()))
        self._length = sum(shards.values())
        self.sequence, self.predictions = sequence, predictions
        self._vocabulary, self._seed = vocabulary, seed
        self._turn = self._next = _Turn(-1, range(0), ())
        self._rows: Any = None
        self._read: OrderedDict[int, Columns] = OrderedDict()

    @property
    def digest(self) -> str:
        """First digits of the SHA-256 of the files' names and numbers of examples: reading terabytes only to know them
        would take longer than a restart should."""
        told = [(path.name, count) for path, count in self._shards]
        return hashlib.sha256(f"{told} {self.predictions}".encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return self._length

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for DataLoader's workers, without the shards in memory."""
        return self.__dict__ | {"_read": OrderedDict()}

    def __getitems__(self, positions: Sequence[Position]) -> Batch:
        """Return a micro-batch. Refusal: a shard cannot be read, or holds invalid values."""
        rows = [self._where(each) for each in positions]
        batch = batch_of([(self.columns(shard), row) for shard, row in rows], self.predictions)
        self._read_ahead(positions[-1])
        return batch

    def _where(self, position: Position) -> tuple[int, int]:
        """Return shard and row of an example."""
        if position.epoch != self._turn.epoch or position.index not in self._turn.places:
            turns = [*self._turns(position.epoch), self._turns(position.epoch + 1)[0]]
            self._turn, self._next = next(pair for pair in pairwise(turns) if position.index in pair[0].places)
            seed = [self._seed, position.epoch, self._turn.places.start]
            self._rows = np.random.default_rng(seed).permutation(len(self._turn.places))
        row = int(self._rows[position.index - self._turn.places.start])
        for shard in self._turn.shards:
            if row < self._shards[shard][1]:
                return shard, row
            row -= self._shards[shard][1]
        raise AssertionError("a turn has as many places as its shards have examples")

    def _turns(self, epoch: int) -> list[_Turn]:
        """Return the turns of an epoch: all shards in an order by chance, in groups that are in memory together."""
        turns: list[_Turn] = []
        first, count, shards = 0, 0, []
        for shard in np.random.default_rng([self._seed, epoch]).permutation(len(self._shards)).tolist():
            shards.append(shard)
            count += self._shards[shard][1]
            if count >= _TOGETHER or first + count == len(self):
                turns.append(_Turn(epoch, range(first, first + count), shards))
                first, count, shards = first + count, 0, []
        return turns

    def _read_ahead(self, position: Position) -> None:
        """Read a shard of the next turn, if it is time: one after the other, spread over this turn, so that no
        micro-batch waits for all of them."""
        done = (position.index - self._turn.places.start) / len(self._turn.places)
        due = self._next.shards[: int(done * (len(self._next.shards) + 1))]
        if missing := [shard for shard in due if shard not in self._read]:
            self.columns(missing[0])

    def columns(self, shard: int) -> Columns:
        """Return a shard's columns; the shards of this turn and of the next stay in memory. Refusal: the shard cannot
        be read, or holds invalid values, such as tokens beyond the vocabulary."""
        if shard in self._read:
            self._read.move_to_end(shard)
        else:
            while len(self._read) >= max(len({*self._turn.shards, *self._next.shards}), 1):
                self._read.popitem(last=False)
            self._read[shard] = _content(self._shards[shard][0], self._vocabulary)
        return self._read[shard]


def batch_of(rows: Sequence[tuple[Columns, int]], predictions: int) -> Batch:
    """Return a micro-batch of rows of columns, as the model takes them."""
    found: Batch = {}
    for name, (ours, kind) in COLUMNS.items():
        values = np.stack([columns[name][row] for columns, row in rows]).astype(np.int64)
        found[ours] = torch.from_numpy(values[:, :predictions] if kind == "predictions" else values)
    return found


def open_corpus(
    directory: Path,
    split: str = "train",
    *,
    sequence: int | None,
    predictions: int | None,
    vocabulary: int,
    seed: int,
) -> Corpus:
    """Return a complete data set, with the form of all shards and the content of the first one checked; the Refusal has
    all problems.

    The directory's shards are at any depth; those of other splits are left out. ``sequence`` (tokens that an example
    must have) and ``predictions`` (masked words taken of each) are the first shard's where None.
    """
    stage = f"trn stage wikicorpus-bert-{sequence if sequence == 512 else 128}"
    if not directory.is_dir():
        raise RefusalError(
            f"{directory} is not a directory. '{stage}' brings the data; --synthetic 10000 trains on made-up examples"
        )
    if not any(directory.rglob("*.hdf5")):
        raise RefusalError(f"{directory} holds no .hdf5 files to train from. '{stage}' brings them")
    paths = files_of(directory, split, (".hdf5",), is_alone=True)
    problems: list[str] = []
    shards: dict[Path, int] = {}
    for path in paths:
        try:
            shards[path], tokens, masked = _form(path)
        except RefusalError as refusal:
            problems.append(str(refusal))
            continue
        sequence, predictions = sequence or tokens, predictions or masked
        has = f"{path}: its examples have"
        if tokens != sequence:
            problems.append(f"{has} {tokens} tokens, not {sequence} (--seq-len)")
        if masked < predictions:
            problems.append(f"{has} {masked} masked words, not {predictions}: give --max-pred-len {masked}")
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise RefusalError("; ".join(problems[:_SHOWN]) + more)
    assert sequence
    assert predictions
    corpus = Corpus(shards, sequence=sequence, predictions=predictions, vocabulary=vocabulary, seed=seed)
    corpus.columns(0)
    return corpus


def _form(path: Path) -> tuple[int, int, int]:
    """Return the number of a file's examples, of their tokens and of their masked words."""
    with _opened(path) as file:
        missing = [name for name in COLUMNS if not hasattr(file.get(name), "dtype")]
        if missing:
            raise RefusalError(f"{path}: has no {', '.join(missing)}")
        sizes: dict[str, set[int]] = {}
        for name, (_, kind) in COLUMNS.items():
            column, dimensions = file[name], ["examples", kind] if kind else ["examples"]
            if column.dtype.kind not in "iu" or column.ndim != len(dimensions):
                shape = f"{column.dtype}{list(column.shape)}"
                raise RefusalError(f"{path}: {name} is {shape}, not integers [{', '.join(dimensions)}]")
            for dimension, size in zip(dimensions, column.shape, strict=True):
                sizes.setdefault(dimension, set()).add(size)
    for dimension, found in sizes.items():
        if len(found) != 1 or 0 in found:
            raise RefusalError(f"{path}: its columns have {' and '.join(map(str, sorted(found)))} {dimension}")
    return sizes["examples"].pop(), sizes["sequence"].pop(), sizes["predictions"].pop()


def _content(path: Path, vocabulary: int) -> Columns:
    """Return a file's columns, in the smallest types that hold them."""
    with _opened(path) as file:
        columns = {name: file[name][:] for name in COLUMNS}
    sequence = columns["input_ids"].shape[1]
    limits = {"input_ids": vocabulary, "masked_lm_ids": vocabulary, "masked_lm_positions": sequence}
    wrong = [
        f"{name} has {values.min()} to {values.max()}, where 0 to {limits.get(name, 2) - 1} is allowed"
        for name, values in columns.items()
        if values.min() < 0 or values.max() >= limits.get(name, 2)
    ]
    if wrong:
        raise RefusalError(f"{path} is not a data set for this model: {'; '.join(wrong)}")
    return {name: values.astype(np.min_scalar_type(limits.get(name, 2) - 1)) for name, values in columns.items()}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with h5py.File(path, "r") as file:
            yield file
    except OSError as error:
        raise RefusalError(f"{path}: cannot be read ({error}): stage it again") from error


def write_shard(path: Path, columns: Columns) -> None:
    """Write a shard as NVIDIA's preparation does: tokens and positions of 32 bits, the others of 8, compressed."""
    wide = ("input_ids", "masked_lm_positions", "masked_lm_ids")
    with h5py.File(path, "w") as file:
        for name in COLUMNS:
            file.create_dataset(name, data=columns[name], dtype="i4" if name in wide else "i1", compression="gzip")
