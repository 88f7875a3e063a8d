"""Predictions for a file: ``python -m trainium_workloads.serving.batch MODEL INPUT --to OUTPUT``.

INPUT is JSON lines, CSV or Parquet. OUTPUT is JSON lines or, if its name says so, CSV: ``row`` (from 1), ``label``,
``score``. It appears only when it is complete.
"""

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from trainium_workloads.serving import model_directory
from trainium_workloads.training.refusal import Refusal, guarded

FIELDS = ("content", "text")
"""Default names of the field with the text."""
SUFFIXES = (".jsonl", ".csv", ".parquet")
_LOG_SECONDS = 10.0


def main() -> int:
    """Run the command and return its exit code: 0; 78 where another try would end the same way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    model_directory.add_options(parser)
    parser.add_argument("input", type=Path, help="ends with .jsonl, .csv or .parquet")
    parser.add_argument("--to", type=Path, required=True, metavar="OUTPUT", help="ends with .jsonl or .csv")
    parser.add_argument("--field", default="", help=f"with the text; default: {' or '.join(FIELDS)}")
    parser.add_argument("--replace", action="store_true", help="even if OUTPUT is there")
    options = parser.parse_args()
    if options.to.suffix not in (".jsonl", ".csv"):
        raise Refusal(f"--to must end with .jsonl or .csv, not {options.to.name}")
    if options.to.exists() and not options.replace:
        raise Refusal(f"{options.to} is there already; --replace overwrites it")
    # A wrong input is refused before a model is loaded and compiled.
    next(texts(options.input, options.field))
    from trainium_workloads.serving import predictor

    predict, begun = predictor.load(options).predict, time.monotonic()
    count = _write(options.to, _predictions(predict, texts(options.input, options.field)))
    found = {"rows": count, "seconds": round(time.monotonic() - begun, 2), "output": str(options.to)}
    print(json.dumps({"predict": "complete", **found}), flush=True)
    return 0


def texts(file: Path, field: str = "", at_once: int = 1024) -> Iterator[list[str]]:
    """Yield the texts of a file, some at a time, in order.

    Args:
        file: its name ends with one of :data:`SUFFIXES`.
        field: column or key with the text; empty for the first of :data:`FIELDS` that is there.
        at_once: how many at most.

    Raises:
        Refusal: the file is not there, has another shape, or holds a value that is no text.
    """
    if file.suffix not in SUFFIXES:
        raise Refusal(f"{file.name} must end with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not file.is_file():
        raise Refusal(f"there is no {file}")
    import pyarrow
    from pyarrow import csv as arrow_csv
    from pyarrow import dataset

    of_csv = dataset.CsvFileFormat(parse_options=arrow_csv.ParseOptions(newlines_in_values=True))
    form = {".jsonl": "json", ".csv": of_csv, ".parquet": "parquet"}[file.suffix]
    rows = 0
    try:
        names = dataset.dataset(file, format=form).schema.names
        name = field or next((each for each in FIELDS if each in names), "")
        if name not in names:
            wanted, there = name or " or ".join(FIELDS), ", ".join(names)[:120] or "none"
            raise Refusal(f"{file} has no field {wanted}, only {there}; --field NAME says where the text is")
        # With a schema a text such as 5 stays a text.
        schema = pyarrow.schema([(name, pyarrow.string())])
        for batch in dataset.dataset(file, schema=schema, format=form).to_batches(batch_size=at_once):
            found = batch.column(0).to_pylist()
            if None in found:
                raise Refusal(f"{file}, row {rows + found.index(None) + 1}: there is no text in {name}")
            rows += len(found)
            if found:
                yield found
    except (pyarrow.ArrowException, OSError) as error:
        raise Refusal(f"{file} cannot be read as {file.suffix[1:]} with texts: {error}") from None
    if not rows:
        raise Refusal(f"{file} holds no rows")


def _predictions(
    predict: Callable[[list[str]], list[dict[str, Any]]], inputs: Iterable[list[str]]
) -> Iterator[dict[str, Any]]:
    row, logged = 0, time.monotonic()
    for some in inputs:
        for row, each in enumerate(predict(some), row + 1):
            yield {"row": row, **each}
        if time.monotonic() - logged >= _LOG_SECONDS:
            logged = time.monotonic()
            print(json.dumps({"predict": "running", "rows": row}), flush=True)


def _write(output: Path, predictions: Iterable[dict[str, Any]]) -> int:
    """Write all predictions beside the output, rename the file once it is on disk, and return their number."""
    part, row = output.with_name(f".{output.name}.part"), 0
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8", newline="") as text:
            write = _csv(text) if output.suffix == ".csv" else lambda each: text.write(json.dumps(each) + "\n")
            for row, each in enumerate(predictions, 1):
                write(each)
            text.flush()
            os.fsync(text.fileno())
        part.replace(output)
    except PermissionError as error:
        raise Refusal(f"{output} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return row


def _csv(text: TextIO) -> Callable[[dict[str, Any]], Any]:
    writer = csv.DictWriter(text, ("row", "label", "score"))
    writer.writeheader()
    return writer.writerow


if __name__ == "__main__":
    sys.exit(guarded(main))
