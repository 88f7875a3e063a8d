"""Writes synthetic reviews in the Hub's layout: ``python -m trainium_workloads.text_classification.make_data DIR``.

With it ``trn stage DIR --to data/amazon-polarity`` and ``--data-dir`` can be tried without a network.
"""

import argparse
import sys
from pathlib import Path

from datasets import Dataset

from trainium_workloads.text_classification.synthetic import review
from trainium_workloads.training.refusal import Refusal, guarded


def main() -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--train", type=int, default=2000, help="reviews to train with; default: %(default)s")
    parser.add_argument("--test", type=int, default=400, help="reviews to test with; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--csv", action="store_true", help="train.csv and test.csv instead of Parquet")
    asked = parser.parse_args()
    if min(asked.train, asked.test) < 1:
        raise Refusal("--train and --test must be 1 or more")
    for split, first, count in (("train", 0, asked.train), ("test", asked.train, asked.test)):
        file = write(asked.directory, split, asked.seed, range(first, first + count), as_csv=asked.csv)
        print(f"{file}: {count} reviews")
    return 0


def write(directory: Path, split: str, seed: int, numbers: range, *, as_csv: bool = False) -> Path:
    """Write one split and return the file; the directory is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Dataset.from_list([review(seed, number) for number in numbers])
    file = directory / (f"{split}.csv" if as_csv else f"{split}-00000-of-00001.parquet")
    made.to_csv(file) if as_csv else made.to_parquet(file)
    return file


if __name__ == "__main__":
    sys.exit(guarded(main))
