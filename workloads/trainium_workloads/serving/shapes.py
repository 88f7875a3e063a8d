"""Shapes in which a served model computes: few, because an accelerator compiles a graph for each."""

from collections.abc import Sequence
from dataclasses import dataclass

_SHORTEST = 32


@dataclass(frozen=True)
class Shapes:
    """Lengths and numbers of texts; smaller inputs are filled up with padding."""

    lengths: tuple[int, ...]
    """Pieces of a text, rising; the last is the longest that the model takes."""
    batches: tuple[int, ...]
    """Texts that are computed at once, rising."""

    @staticmethod
    def up_to(length: int, batches: Sequence[int]) -> "Shapes":
        """Return shapes with lengths that double, up to the model's own.

        Args:
            length: the model's own.
            batches: numbers of texts.
        """
        lengths, each = [], _SHORTEST
        while each < length:
            lengths.append(each)
            each *= 2
        return Shapes((*lengths, length), tuple(sorted(set(batches))))

    @property
    def all(self) -> tuple[tuple[int, int], ...]:
        """Each number of texts with each length."""
        return tuple((batch, length) for batch in self.batches for length in self.lengths)

    def length(self, pieces: int) -> int:
        """Return the shortest length for texts with this number of pieces; longer texts are cut off."""
        return next((each for each in self.lengths if each >= pieces), self.lengths[-1])

    def batch(self, texts: int) -> int:
        """Return the smallest batch for this number of texts, at most :attr:`most`."""
        return next(each for each in self.batches if each >= texts)

    @property
    def most(self) -> int:
        """Texts that are computed at once."""
        return self.batches[-1]
