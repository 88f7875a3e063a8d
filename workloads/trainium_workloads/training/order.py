"""Order of the examples: the same for any number of ranks, and from any step on, with nothing to remember.

The examples form an endless stream, a new permutation in each epoch. A step takes the next ``global_batch`` of them,
and each rank its part. The position of a training therefore follows from the number of the step, so nothing of it is in
a checkpoint, and another number of ranks with the same global batch sees the same examples.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from trainium_workloads.training.task import Position

_ROUNDS = 4


@dataclass(frozen=True)
class Order:
    """The order of a training's examples, by permutations of a seed, for the ``ranks`` that see different data.
    ``is_arranged``: the examples shuffle themselves in each epoch, and are taken one after the other."""

    examples: int
    seed: int
    batch_size: int
    accumulate: int
    rank: int
    ranks: int
    is_arranged: bool = False

    @property
    def global_batch(self) -> int:
        """Examples of a step, over all ranks."""
        return self.batch_size * self.accumulate * self.ranks

    def batches(self, first: int, last: int) -> Iterator[list[Position]]:
        """Yield this rank's micro-batches from one step (from 1) to another, both included, in order."""
        for step in range(first, last + 1):
            start = (step - 1) * self.global_batch + self.rank * self.accumulate * self.batch_size
            for micro in range(self.accumulate):
                at = start + micro * self.batch_size
                yield [self.position(number) for number in range(at, at + self.batch_size)]

    def position(self, number: int) -> Position:
        """Return the example at a place of the stream, from 0."""
        epoch, place = divmod(number, self.examples)
        return Position(epoch, place if self.is_arranged else permuted(place, self.examples, f"{self.seed} {epoch}"))


def permuted(place: int, size: int, key: str) -> int:
    """Return the place of a number in a permutation of the numbers below ``size`` that the key chooses.

    A Feistel network on the next power of four, walked until it comes back below ``size``: no table of all examples,
    which 64 ranks would each hold and build anew in each epoch.
    """
    half = max((size - 1).bit_length() + 1, 2) // 2
    mask = (1 << half) - 1
    while True:
        left, right = place >> half, place & mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (_mixed(right, turn, key) & mask)
        place = left << half | right
        if place < size:
            return place


def _mixed(value: int, turn: int, key: str) -> int:
    digest = hashlib.blake2b(f"{key} {turn} {value}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return a seed for the random numbers of a step (dropout), 63 bits: they depend on nothing before the step,
    so a training that resumes continues as if it had not stopped."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
