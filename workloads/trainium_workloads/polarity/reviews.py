"""Amazon Polarity as it lies on the Hub: Parquet or CSV files with the columns ``label``, ``title`` and ``content``.

``label`` is 0 for a bad review and 1 for a good one (data set card of fancyzhx/amazon_polarity; 3.6 million reviews to
train on and 400,000 to test with). The title is not used, as in AWS' own fine-tuning of BERT-base on these reviews.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_workloads.training.refusal import Refusal

COLUMNS = ("label", "content")
"""Columns that are read."""

LABELS = ("negative", "positive")
"""Meaning of a label, by its number."""

SUFFIXES = (".parquet", ".csv")

CHUNK = 4096
"""Reviews that are read at once."""

_LONGEST_FIELD = 2**24
"""Of a CSV file; Python's own limit is 128 KiB."""


@dataclass(frozen=True)
class Chunk:
    """Some reviews."""

    texts: Sequence[str]
    labels: Sequence[int]
    """0 or 1, one a text."""


def split_files(data: Path, split: str) -> tuple[Path, ...]:
    """Return the files of one split, by name.

    Args:
        data: a file; or a directory with ``train-….parquet`` and ``test-….parquet`` as on the Hub, with ``train.csv``
            and ``test.csv``, or with a directory for each split; or the directory of a SageMaker channel, with files of
            the split alone.
        split: ``train`` or ``test``.

    Raises:
        Refusal: there are none.
    """
    if data.is_file():
        return (data,)
    if not data.is_dir():
        raise Refusal(f"there is no {data}; bring the reviews: trn stage amazon-polarity, and give --data-dir")
    below = data / split
    found = _data_files(below if below.is_dir() else data)
    named = tuple(each for each in found if each.name.startswith(split))
    # A channel's files may have any name; where other splits lie beside, the name has to tell.
    if not named and not any(each.name.startswith(("train", "test")) for each in found):
        named = found
    if not named:
        raise Refusal(
            f"{data} has no {split} reviews: {split}*.parquet, {split}*.csv or a directory {split} with such files"
        )
    return named


def _data_files(directory: Path) -> tuple[Path, ...]:
    return tuple(
        each
        for each in sorted(directory.iterdir())
        if each.suffix in SUFFIXES and each.is_file() and not each.name.startswith(".")
    )


def read(files: Iterable[Path], most: int | None = None) -> Iterator[Chunk]:
    """Yield the reviews of some files, in order.

    Args:
        files: Parquet or CSV.
        most: how many at most; None for all.

    Raises:
        Refusal: a file lacks a column, holds a label that is neither 0 nor 1, or cannot be read; or all are empty.
    """
    names, left, begun = [], most, False
    for file in files:
        names.append(file.name)
        for rows, first in _rows(file):
            wanted = rows if left is None else rows[:left]
            if wanted:
                begun = True
                yield _chunk(wanted, first, file)
            if left is not None:
                left -= len(wanted)
                if left == 0:
                    return
    if not begun:
        raise Refusal(f"{', '.join(names)}: no reviews in there")


_Row = tuple[Any, Any]
"""Label and content."""


def _rows(file: Path) -> Iterator[tuple[list[_Row], int]]:
    """Yield rows, and the number of the first of them, from 1."""
    yield from _parquet_rows(file) if file.suffix == ".parquet" else _csv_rows(file)


def _parquet_rows(file: Path) -> Iterator[tuple[list[_Row], int]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise Refusal(f"{file.name} needs the Python package pyarrow in the image; CSV does without") from None
    try:
        with parquet.ParquetFile(file) as table:
            _check_columns(file, table.schema_arrow.names)
            first = 1
            for batch in table.iter_batches(CHUNK, columns=list(COLUMNS)):
                label, content = (batch.column(batch.schema.get_field_index(name)).to_pylist() for name in COLUMNS)
                yield list(zip(label, content, strict=True)), first
                first += len(batch)
    except (pyarrow.ArrowException, OSError) as error:
        raise Refusal(f"{file} cannot be read as Parquet: {error}; stage it again: trn stage … --replace") from None


def _csv_rows(file: Path) -> Iterator[tuple[list[_Row], int]]:
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        with file.open(encoding="utf-8", newline="") as text:
            reader = csv.DictReader(text)
            _check_columns(file, reader.fieldnames or ())
            rows: list[_Row] = []
            first = 1
            for row in reader:
                rows.append((row["label"], row["content"]))
                if len(rows) == CHUNK:
                    yield rows, first
                    first, rows = first + len(rows), []
            yield rows, first
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise Refusal(f"{file} cannot be read as CSV in UTF-8: {error}") from None


def _check_columns(file: Path, names: Iterable[str]) -> None:
    there = list(names)
    missing = [name for name in COLUMNS if name not in there]
    if missing:
        shown = ", ".join(there)[:120] or "none"
        raise Refusal(f"{file} has no column {' and no column '.join(missing)}; its columns: {shown}")


def _chunk(rows: list[_Row], first: int, file: Path) -> Chunk:
    labels, texts = [], []
    for number, (label, text) in enumerate(rows, first):
        value = label.strip() if isinstance(label, str) else label
        if value not in (0, 1, "0", "1"):
            raise Refusal(
                f"{file}, review {number}: label {label!r} is neither 0 (negative) nor 1 (positive); "
                "files that count 1 and 2 need 1 taken off"
            )
        if not isinstance(text, str):
            raise Refusal(f"{file}, review {number}: content is {text!r}, no text")
        labels.append(int(value))
        texts.append(text)
    return Chunk(texts, labels)
