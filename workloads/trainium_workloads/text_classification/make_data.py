"""Reviews made from a seed; a model can learn their labels. As a command, which writes the reviews in the Hub's layout:
``python -m trainium_workloads.text_classification.make_data DIR``.

With it ``trn stage DIR --to data/amazon-polarity`` and ``--data-dir`` can be tried without a network.
"""

import argparse
import random
import sys
from pathlib import Path

from datasets import Dataset

from trainium_workloads.training.refusal import RefusalError, guarded

_THINGS = ("book", "album", "camera", "kettle", "lamp", "novel", "game", "tripod", "charger", "blender")
_GOOD = ("wonderful", "excellent", "reliable", "charming", "superb", "delightful")
_BAD = ("awful", "broken", "useless", "boring", "disappointing", "flimsy")
_PRAISE = ("I would buy it again", "worth every penny", "my family loves it")
_BLAME = ("I sent it back", "a waste of money", "it failed within a week")
_NEUTRAL = (
    "It came in a brown box",
    "I ordered it on a Monday",
    "My sister has the older one",
    "The manual has forty pages",
    "It is a little heavier than it looks",
)


def main() -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(description="Writes synthetic reviews in the Hub's layout.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--train", type=int, default=2000, help="reviews to train with; default: %(default)s")
    parser.add_argument("--test", type=int, default=400, help="reviews to test with; default: %(default)s")
    asked = parser.parse_args()
    if min(asked.train, asked.test) < 1:
        raise RefusalError("--train and --test must be 1 or more")
    for split, first, count in (("train", 0, asked.train), ("test", asked.train, asked.test)):
        print(f"{write(asked.directory, split, 0, range(first, first + count))}: {count} reviews")
    return 0


def write(directory: Path, split: str, seed: int, numbers: range) -> Path:
    """Write one split and return the file; the directory is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{split}-00000-of-00001.parquet"
    reviews(seed, numbers).to_parquet(file)
    return file


def reviews(seed: int, numbers: range) -> Dataset:
    """Return the reviews of these numbers with the columns of Amazon Polarity: ``label`` (0 or 1), ``title`` and
    ``content``; a number's review is the same each time."""
    return Dataset.from_list([_review(random.Random(f"{seed}/{number}")) for number in numbers])


def _review(chance: random.Random) -> dict[str, int | str]:
    label = chance.randrange(2)
    thing, words, says = chance.choice(_THINGS), (_BAD, _GOOD)[label], (_BLAME, _PRAISE)[label]
    sentences = [
        f"This {thing} is {chance.choice(words)} and {chance.choice(words)}",
        chance.choice(says),
        *chance.sample(_NEUTRAL, chance.randrange(len(_NEUTRAL))),
    ]
    chance.shuffle(sentences)
    return {"label": label, "title": f"About this {thing}", "content": ". ".join(sentences) + "."}


if __name__ == "__main__":
    sys.exit(guarded(main))
