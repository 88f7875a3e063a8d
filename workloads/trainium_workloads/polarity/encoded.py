"""Reviews as numbers, kept in files that all ranks of a node map into their memory.

3.6 million reviews of 128 pieces are 0.9 GB so; as Python's lists in each of 32 ranks they would not fit.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
import torch

from trainium_workloads.polarity.reviews import Chunk
from trainium_workloads.polarity.wordpieces import WordPieces
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.task import Batch, Position

_IDS, _LABELS, _FACTS = "ids", "labels", "facts.json"
_FOR_GOOD = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR, errno.EEXIST)
"""Errors that another try would meet again."""
_SMALL_IDS = 2**16
"""Vocabularies below that size take two bytes a piece."""


@dataclass(frozen=True)
class Encoded:
    """Encoded reviews; the examples of a training."""

    directory: Path
    count: int
    length: int
    """Pieces of each, padding included."""
    pad_id: int
    kind: str
    """NumPy's name of the ids' type: ``uint16`` or ``uint32``."""

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, positions: Sequence[Position]) -> Batch:
        """Return ``input_ids`` and ``attention_mask`` ``[reviews, length]``, ``labels`` ``[reviews]``; all int64."""
        return self.rows([each.index for each in positions])

    def rows(self, indices: Sequence[int]) -> Batch:
        """Return the reviews of these numbers, as :meth:`__getitems__` gives them."""
        ids = torch.from_numpy(self._ids[list(indices)].astype(numpy.int64))
        labels = torch.from_numpy(self._labels[list(indices)].astype(numpy.int64))
        return {"input_ids": ids, "attention_mask": (ids != self.pad_id).long(), "labels": labels}

    # A worker of a DataLoader gets the paths, and maps the files itself.
    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @cached_property
    def _ids(self) -> Any:
        return numpy.memmap(self.directory / _IDS, self.kind, "r", shape=(self.count, self.length))

    @cached_property
    def _labels(self) -> Any:
        return numpy.memmap(self.directory / _LABELS, "uint8", "r", shape=(self.count,))


def key(sources: Sequence[object], pieces: WordPieces, length: int) -> str:
    """Return a name for encoded reviews: the same for the same reviews, vocabulary and length.

    Args:
        sources: identity of the reviews; for files their names, sizes and times (:func:`stamps`).
        pieces: the vocabulary.
        length: pieces of a review.
    """
    text = json.dumps([list(sources), pieces.as_json, length])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stamps(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Return names, sizes and times, which tell one state of the files from another."""
    return [(each.name, (found := each.stat()).st_size, found.st_mtime_ns) for each in files]


def find(directory: Path) -> Encoded | None:
    """Return the reviews that :func:`encode` has made there; None without a whole set."""
    try:
        facts = json.loads((directory / _FACTS).read_text(encoding="utf-8"))
        found = Encoded(directory, facts["count"], facts["length"], facts["pad_id"], facts["kind"])
        size = (directory / _IDS).stat().st_size
    except (OSError, ValueError, KeyError):
        return None
    return found if size == found.count * found.length * numpy.dtype(found.kind).itemsize else None


def encode(chunks: Iterable[Chunk], pieces: WordPieces, length: int, directory: Path) -> Encoded:
    """Encode reviews into a directory, whole or not at all; return at once where they are encoded already.

    Args:
        chunks: the reviews.
        pieces: the vocabulary.
        length: pieces of a review.
        directory: named after :func:`key`; several processes may make it at once.

    Raises:
        Refusal: the reviews have not the right shape, or the disk is full.
    """
    there = find(directory)
    if there is not None:
        return there
    with _room_for(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            kind = "uint16" if pieces.size <= _SMALL_IDS else "uint32"
            count = _write(chunks, pieces, length, part, kind)
            found = Encoded(directory, count, length, pieces.pad_id, kind)
            facts = {name: getattr(found, name) for name in ("count", "length", "pad_id", "kind")}
            (part / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
            _put(part, directory)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return found


def _write(chunks: Iterable[Chunk], pieces: WordPieces, length: int, part: Path, kind: str) -> int:
    count = 0
    with (part / _IDS).open("wb") as ids, (part / _LABELS).open("wb") as labels:
        for chunk in chunks:
            ids.write(pieces.encode(chunk.texts, length).astype(kind).tobytes())
            labels.write(bytes(chunk.labels))
            count += len(chunk.labels)
        for each in (ids, labels):
            each.flush()
            os.fsync(each.fileno())
    return count


def _put(part: Path, directory: Path) -> None:
    """Give the directory its name; a later process finds the same there already."""
    if find(directory) is None:
        shutil.rmtree(directory, ignore_errors=True)  # not whole: its disk was full, or it was meddled with
        with contextlib.suppress(FileExistsError):
            try:
                part.rename(directory)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise


@contextlib.contextmanager
def _room_for(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _FOR_GOOD:
            raise
        raise Refusal(f"{directory.parent} takes no encoded reviews: {error.strerror}; give --cache-dir") from None
