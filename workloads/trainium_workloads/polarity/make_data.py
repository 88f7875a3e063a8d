"""Writes synthetic reviews as Amazon Polarity lies on the Hub: ``python -m trainium_workloads.polarity.make_data DIR``.

With it ``trn stage DIR --to data/amazon-polarity`` and ``--data-dir`` can be tried without a network.
"""

import argparse
import csv
import sys
from pathlib import Path

from trainium_workloads.polarity.synthetic import review
from trainium_workloads.training.refusal import Refusal, guarded

NAMES = ("label", "title", "content")


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
    asked.directory.mkdir(parents=True, exist_ok=True)
    for split, count, first in (("train", asked.train, 0), ("test", asked.test, asked.train)):
        file = write(asked.directory, split, asked.seed, range(first, first + count), as_csv=asked.csv)
        print(f"{file}: {count} reviews")
    return 0


def write(directory: Path, split: str, seed: int, numbers: range, *, as_csv: bool = False) -> Path:
    """Write one split and return the file.

    Raises:
        Refusal: Parquet is asked for, and the package pyarrow is not there.
    """
    rows = [review(seed, number) for number in numbers]
    if as_csv:
        file = directory / f"{split}.csv"
        with file.open("w", encoding="utf-8", newline="") as text:
            csv.writer(text).writerows([NAMES, *rows])
        return file
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise Refusal("Parquet needs the Python package pyarrow; --csv does without") from None
    file = directory / f"{split}-00000-of-00001.parquet"
    kinds = (pyarrow.int64(), pyarrow.string(), pyarrow.string())
    columns = [pyarrow.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    parquet.write_table(pyarrow.table(columns, names=list(NAMES)), file)
    return file


if __name__ == "__main__":
    sys.exit(guarded(main))
