"""Reviews that nobody wrote: made from a seed, so that training can be tried without data, and the labels be learnt."""

import random
from collections.abc import Iterator

from trainium_workloads.polarity.reviews import CHUNK, Chunk

THINGS = ("book", "album", "camera", "kettle", "lamp", "novel", "game", "tripod", "charger", "blender")
GOOD = ("wonderful", "excellent", "reliable", "charming", "superb", "delightful")
BAD = ("awful", "broken", "useless", "boring", "disappointing", "flimsy")
PRAISE = ("I would buy it again", "worth every penny", "my family loves it")
BLAME = ("I sent it back", "a waste of money", "it failed within a week")
NEUTRAL = (
    "It came in a brown box",
    "I ordered it on a Monday",
    "My sister has the older one",
    "The manual has forty pages",
    "It is a little heavier than it looks",
)


def review(seed: int, number: int) -> tuple[int, str, str]:
    """Return label, title and content of one review; the same for the same seed and number."""
    chosen = random.Random(f"{seed}/{number}")
    label = chosen.randrange(2)
    thing, words, says = chosen.choice(THINGS), (BAD, GOOD)[label], (BLAME, PRAISE)[label]
    sentences = [
        f"This {thing} is {chosen.choice(words)} and {chosen.choice(words)}",
        chosen.choice(says),
        *chosen.sample(NEUTRAL, chosen.randrange(len(NEUTRAL))),
    ]
    chosen.shuffle(sentences)
    return label, f"About this {thing}", ". ".join(sentences) + "."


def chunks(seed: int, count: int, first: int = 0) -> Iterator[Chunk]:
    """Yield reviews as :func:`~.reviews.read` gives them.

    Args:
        seed: of the reviews.
        count: how many.
        first: number of the first; reviews for tests begin after those for training.
    """
    for begin in range(first, first + count, CHUNK):
        made = [review(seed, number) for number in range(begin, min(begin + CHUNK, first + count))]
        yield Chunk([content for _, _, content in made], [label for label, _, _ in made])
