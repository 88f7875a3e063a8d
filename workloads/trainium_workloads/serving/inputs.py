"""Input of predictions: the texts of a JSON lines, CSV or Parquet file."""

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainium_workloads.training.refusal import Refusal

FIELDS = ("content", "text")
"""Default names of the field with the text."""
SUFFIXES = (".jsonl", ".csv", ".parquet")

_LONGEST_FIELD = 2**24


def texts(file: Path, field: str = "", *, at_once: int = 1024) -> Iterator[list[str]]:
    """Yield the texts, some at a time, in order.

    Args:
        file: its name ends with one of :data:`SUFFIXES`.
        field: column or key with the text; empty for the first of :data:`FIELDS` that is there.
        at_once: how many.

    Raises:
        Refusal: the file is not there, has another shape, or holds something that is no text.
    """
    readers = {".jsonl": _json_lines, ".csv": _csv_rows, ".parquet": _parquet_rows}
    if file.suffix not in readers:
        raise Refusal(f"{file.name} must end with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not file.is_file():
        raise Refusal(f"there is no {file}")
    rows = _texts(file, readers[file.suffix](file), field)
    while some := list(itertools.islice(rows, at_once)):
        yield some


def _texts(file: Path, rows: Iterable[Mapping[str, Any]], field: str) -> Iterator[str]:
    name = field
    number = 0
    for number, row in enumerate(rows, 1):
        name = name or next((each for each in FIELDS if each in row), "")
        if not name or name not in row:
            there = ", ".join(map(str, row))[:120] or "none"
            wanted = name or " or ".join(FIELDS)
            raise Refusal(
                f"{file}, row {number}: there is no {wanted}, only {there}; --field NAME says where the text is"
            )
        if not isinstance(row[name], str):
            raise Refusal(f"{file}, row {number}: {name} is {row[name]!r}, no text")
        yield row[name]
    if number == 0:
        raise Refusal(f"{file} holds no rows")


def _json_lines(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise Refusal(f"{file}, line {number} is no JSON: {error}") from None
            if not isinstance(row, dict):
                raise Refusal(f"{file}, line {number} must be a JSON object, not {type(row).__name__}")
            yield row


def _csv_rows(file: Path) -> Iterator[Mapping[str, Any]]:
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            yield from csv.DictReader(lines)
    except (csv.Error, UnicodeDecodeError) as error:
        raise Refusal(f"{file} cannot be read as CSV in UTF-8: {error}") from None


def _parquet_rows(file: Path) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise Refusal(f"{file.name} needs the Python package pyarrow in the image, or give JSON lines") from None
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(1024):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise Refusal(f"{file} cannot be read as Parquet: {error}") from None
