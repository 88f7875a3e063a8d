"""Predictions for a file: ``python -m trainium_workloads.serving.batch MODEL INPUT --to OUTPUT``.

INPUT is JSON lines, CSV or Parquet. OUTPUT is JSON lines or, if its name ends so, CSV: ``row`` (from 1), ``label``,
``score``. It appears only when it is complete.
"""

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trainium_workloads.serving import served_model
from trainium_workloads.training.refusal import RefusalError, guarded

FIELDS = ("content", "text")
"""Default names of the field with the text."""
SUFFIXES = (".jsonl", ".csv", ".parquet")


def main() -> int:
    """Run the command and return its exit code: 0; 78 where another try would end the same way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    served_model.add_options(parser)
    parser.add_argument("input", type=Path, help="file .jsonl, .csv or .parquet")
    parser.add_argument("--to", type=Path, required=True, metavar="OUTPUT", help="file .jsonl or .csv")
    parser.add_argument("--field", default="", help=f"column of the text; default: {' or '.join(FIELDS)}")
    parser.add_argument("--replace", action="store_true", help="write OUTPUT even if it is there")
    options = parser.parse_args()
    if options.to.suffix not in (".jsonl", ".csv"):
        raise RefusalError(f"--to must end with .jsonl or .csv, not {options.to.name}")
    if options.to.exists() and not options.replace:
        raise RefusalError(f"{options.to} is there already; --replace overwrites it")
    # A wrong input is refused before a model is loaded and compiled.
    next(texts(options.input, options.field))
    from trainium_workloads.serving.predictor import Predictor

    predictor, row, logged = Predictor(options), 0, time.monotonic()
    part = options.to.with_name(f".{options.to.name}.part")
    try:
        options.to.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8", newline="") as out:
            table = csv.DictWriter(out, ("row", "label", "score")) if options.to.suffix == ".csv" else None
            if table:
                table.writeheader()
            for some in texts(options.input, options.field):
                for found in predictor.predict(some):
                    row += 1
                    line = {"row": row, **found}
                    table.writerow(line) if table else out.write(json.dumps(line) + "\n")
                if time.monotonic() - logged >= 10:
                    logged = time.monotonic()
                    print(json.dumps({"predict": "running", "rows": row}), flush=True)
            out.flush()
            os.fsync(out.fileno())
        part.replace(options.to)
    except PermissionError as error:
        raise RefusalError(f"{options.to} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    print(json.dumps({"predict": "complete", "rows": row, "output": str(options.to)}), flush=True)
    return 0


def texts(file: Path, field: str = "") -> Iterator[list[str]]:
    """Yield the texts of a file (one of :data:`SUFFIXES`), up to 1,024 at a time, in order; refuse a file without them.
    ``field`` is the column or key with the text; empty for the first of :data:`FIELDS` that is there."""
    if file.suffix not in SUFFIXES:
        raise RefusalError(f"{file.name} must end with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not file.is_file():
        raise RefusalError(f"there is no {file}")
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
            raise RefusalError(f"{file} has no field {wanted}, only {there}; --field NAME says where the text is")
        # With a schema a text such as 5 stays a text.
        schema = pyarrow.schema([(name, pyarrow.string())])
        for batch in dataset.dataset(file, schema=schema, format=form).to_batches(batch_size=1024):
            found = batch.column(0).to_pylist()
            if None in found:
                raise RefusalError(f"{file}, row {rows + found.index(None) + 1}: there is no text in {name}")
            rows += len(found)
            if found:
                yield found
    except (pyarrow.ArrowException, OSError) as error:
        raise RefusalError(f"{file} cannot be read as {file.suffix[1:]} with texts: {error}") from None
    if not rows:
        raise RefusalError(f"{file} holds no rows")


if __name__ == "__main__":
    sys.exit(guarded(main))
