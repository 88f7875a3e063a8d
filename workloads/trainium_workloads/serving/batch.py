"""Predictions for a file: ``python -m trainium_workloads.serving.batch MODEL INPUT --to OUTPUT``.

INPUT is JSON lines, CSV or Parquet. OUTPUT is JSON lines or, if its name says so, CSV: ``row`` (from 1), ``label``,
``score``. It appears only when it is complete.

Exit code: 0; 78 where another try would end the same way; another one where it may help.
"""

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from trainium_workloads.serving import inputs, loading
from trainium_workloads.serving.predictor import Prediction, Predictor
from trainium_workloads.training.refusal import Refusal, guarded

NAMES = ("row", "label", "score")
_TOLD_SECONDS = 10.0


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    loading.add_options(parser)
    parser.add_argument("input", type=Path, help="ends with .jsonl, .csv or .parquet")
    parser.add_argument("--to", type=Path, required=True, metavar="OUTPUT", help="ends with .jsonl or .csv")
    parser.add_argument("--field", default="", help=f"with the text; default: {' or '.join(inputs.FIELDS)}")
    parser.add_argument("--replace", action="store_true", help="even if OUTPUT is there")
    asked = parser.parse_args()
    if asked.to.suffix not in (".jsonl", ".csv"):
        raise Refusal(f"--to must end with .jsonl or .csv, not {asked.to.name}")
    if asked.to.exists() and not asked.replace:
        raise Refusal(f"{asked.to} is there already; --replace overwrites it")
    # A wrong input is refused before a model is loaded and compiled.
    next(inputs.texts(asked.input, asked.field, at_once=1))
    predictor = loading.predictor(asked)
    begun = time.monotonic()
    count = _write(asked.to, _predictions(predictor, asked.input, asked.field))
    seconds = time.monotonic() - begun
    told = {"predict": "complete", "rows": count, "seconds": round(seconds, 2), "output": str(asked.to)}
    print(json.dumps(told), flush=True)
    return 0


def _predictions(predictor: Predictor, file: Path, field: str) -> Iterator[Prediction]:
    count, told = 0, time.monotonic()
    for some in inputs.texts(file, field):
        yield from predictor.predict(some)
        count += len(some)
        if time.monotonic() - told >= _TOLD_SECONDS:
            told = time.monotonic()
            print(json.dumps({"predict": "running", "rows": count}), flush=True)


def _write(output: Path, predictions: Iterable[Prediction]) -> int:
    """Write all predictions beside the output, rename the file once it is on disk, and return their number."""
    part = output.with_name(f".{output.name}.part")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8", newline="") as text:
            count = (_csv if output.suffix == ".csv" else _json_lines)(text, predictions)
            text.flush()
            os.fsync(text.fileno())
        part.replace(output)
    except PermissionError as error:
        raise Refusal(f"{output} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return count


def _json_lines(text: TextIO, predictions: Iterable[Prediction]) -> int:
    row = 0
    for row, each in enumerate(predictions, 1):
        text.write(json.dumps({"row": row, "label": each.label, "score": each.score}) + "\n")
    return row


def _csv(text: TextIO, predictions: Iterable[Prediction]) -> int:
    writer, row = csv.writer(text), 0
    writer.writerow(NAMES)
    for row, each in enumerate(predictions, 1):
        writer.writerow((row, each.label, each.score))
    return row


if __name__ == "__main__":
    sys.exit(guarded(main))
