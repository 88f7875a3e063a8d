"""The reviews of a training: from files or from a seed, with their vocabulary, encoded once for all ranks."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainium_workloads.polarity import encoded, reviews, synthetic, wordpieces
from trainium_workloads.polarity.encoded import Encoded
from trainium_workloads.polarity.reviews import Chunk
from trainium_workloads.polarity.wordpieces import WordPieces
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.refusal import Refusal

LEARNT_PIECES = 512
"""Of a vocabulary that is learnt from the reviews; what BERT-tiny takes."""
_LEARNT_FROM = 20_000
"""Reviews that a vocabulary is learnt from."""
_CACHE = ".encoded"
"""Below the reviews' own directory: other trainings with the same settings find it."""

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Data:
    """Data of a training."""

    train: Encoded
    test: Encoded
    pieces: WordPieces


@dataclass(frozen=True)
class ReviewSource:
    """Source of the reviews."""

    train: Path | None
    """A file or a directory; see :func:`~.reviews.split_files`."""
    test: Path | None
    synthetic: int
    """How many are made up; 0 for those of the files. A fifth as many are made to test with."""
    seed: int
    """Seed of synthetic reviews."""
    length: int
    """Pieces of a review."""
    vocabulary: Path | None
    """Directory of a model; None to learn the vocabulary from the reviews."""
    cache: Path | None
    """Directory of encoded reviews; None for one beside the reviews."""
    each_node: bool
    """Whether the nodes share no directory, so that each encodes for itself."""
    output: Path
    """Of the training; keeps a vocabulary that is learnt."""

    def prepared(self, backend: Backend) -> Data:
        """Encode new reviews in one rank; the others wait, and map the files.

        Raises:
            Refusal: in all ranks, if the reviews or the vocabulary are not as they must be.
        """
        makes = backend.local_rank == 0 if self.each_node else backend.rank == 0
        pieces = _first(makes, backend, self._pieces)
        return _first(makes, backend, lambda: self._encoded(pieces))

    def _pieces(self) -> WordPieces:
        if self.vocabulary is not None:
            return wordpieces.load(self.vocabulary)
        directory = self.output / "vocabulary"
        if (directory / wordpieces.FILE).is_file():
            return wordpieces.load(directory)
        texts = (text for chunk in self._chunks("train") for text in chunk.texts)
        found = wordpieces.learn(itertools.islice(texts, _LEARNT_FROM), LEARNT_PIECES)
        directory.mkdir(parents=True, exist_ok=True)
        found.save(directory, self.length)
        return found

    def _encoded(self, pieces: WordPieces) -> Data:
        train, test = (
            encoded.encode(
                self._chunks(split),
                pieces,
                self.length,
                self._cache(split) / encoded.key(self._stamps(split), pieces, self.length),
            )
            for split in ("train", "test")
        )
        return Data(train, test, pieces)

    def _chunks(self, split: str) -> Iterator[Chunk]:
        if self.synthetic:
            first, count = (0, self.synthetic) if split == "train" else (self.synthetic, self._tested)
            return synthetic.chunks(self.seed, count, first)
        return reviews.read(self._files(split))

    def _stamps(self, split: str) -> list[object]:
        if self.synthetic:
            return ["synthetic", split, self.seed, self.synthetic]
        return list(encoded.stamps(self._files(split)))

    @property
    def _tested(self) -> int:
        return max(self.synthetic // 5, 1)

    def _files(self, split: str) -> tuple[Path, ...]:
        return reviews.split_files(self._path(split), split)

    def _path(self, split: str) -> Path:
        path = self.train if split == "train" else self.test
        if path is None:
            raise Refusal(
                f"there are no reviews to {split} with: give --data-dir (trn stage amazon-polarity brings them to "
                f"/data/amazon-polarity), --{split}-data, or --synthetic N to make some up"
            )
        return path

    def _cache(self, split: str) -> Path:
        if self.cache is not None:
            return self.cache
        if self.synthetic:
            return self.output / _CACHE
        path = self._path(split)
        return (path if path.is_dir() else path.parent) / _CACHE


def _first(makes: bool, backend: Backend, make: Callable[[], _Found]) -> _Found:
    """Return the result that some ranks make, and the others then find.

    Raises:
        Refusal: in all ranks, so that all end the same way.
    """
    found: _Found | None = None
    for turn in (True, False):
        refused = ""
        if makes is turn:
            try:
                found = make()
            except Refusal as refusal:
                refused = str(refusal)
        if backend.any(bool(refused)):
            said = backend.share(refused)
            raise Refusal(refused or said or "another rank was refused; its line says why")
    assert found is not None, "each rank has had its turn"
    return found
