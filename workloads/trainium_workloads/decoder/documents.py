"""Texts and conversations as they lie on a volume: ``.txt``, ``.jsonl``, ``.json`` and ``.parquet`` files."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trainium_workloads.training.refusal import Refusal

SUFFIXES: Final = (".txt", ".jsonl", ".json", ".parquet")
COLUMNS: Final = ("text", "messages", "content")
"""Looked for in this order where no column is named."""

Document = str | list[Mapping[str, str]]
"""A text, or the messages of a conversation: each with ``role`` and ``content``."""


def found(path: Path) -> list[Path]:
    """Return the files of a data set: itself, or all below a directory, by name. Hidden files are left out, such as the
    notes of ``trn stage``.

    Raises:
        Refusal: there are none.
    """
    if path.is_file():
        files = [path]
    elif path.is_dir():
        inside = (each for each in path.rglob("*") if each.is_file())
        files = sorted(each for each in inside if not any(x.startswith(".") for x in each.relative_to(path).parts))
    else:
        raise Refusal(f"--data {path} is not there; trn stage SOURCE --to {path} puts it there")
    chosen = [each for each in files if each.suffix in SUFFIXES]
    if not chosen:
        held = sorted({each.suffix or each.name for each in files})
        raise Refusal(f"--data {path} must hold {', '.join(SUFFIXES)} files; it holds {', '.join(held[:5]) or 'none'}")
    return chosen


def read(files: Iterable[Path], column: str | None) -> Iterator[Document]:
    """Yield the texts and conversations of the files, one after the other.

    Args:
        files: of :data:`SUFFIXES`.
        column: field of a row; None for the first of :data:`COLUMNS` that it has. A ``.txt`` file is one text.

    Raises:
        Refusal: a file is damaged, has no such column, or something else than texts or conversations in it.
    """
    for path in files:
        if path.suffix == ".txt":
            try:
                yield path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise Refusal(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
            continue
        rows = _of_parquet(path, column) if path.suffix == ".parquet" else _of_json(path)
        for place, row in rows:
            yield _document(row, column, place)


def _document(row: object, column: str | None, place: str) -> Document:
    if not isinstance(row, Mapping):
        raise Refusal(f"{place} must be an object with a field {' or '.join(COLUMNS[:2])}, not {_shown(row)}")
    value = row.get(_column(row, column, place))
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(_is_message(each) for each in value):
        return value
    raise Refusal(f"{place}: must be a text, or a list of messages with role and content, not {_shown(value)}")


def _column(names: Iterable[str], column: str | None, place: str) -> str:
    held = list(names)
    wanted = [column] if column else list(COLUMNS)
    for each in wanted:
        if each in held:
            return each
    raise Refusal(f"{place} has no column {' or '.join(wanted)}; --column is to be one of {', '.join(held) or 'none'}")


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(value.get(name), str) for name in ("role", "content"))


def _of_json(path: Path) -> Iterator[tuple[str, object]]:
    """Yield rows of a file with an object on each line, or with an array; each with its place."""
    beginning = ""
    with path.open(encoding="utf-8") as file:
        try:
            beginning = file.read(1)
            file.seek(0)
            if beginning == "[":
                yield from ((f"{path}, row {number}", row) for number, row in enumerate(json.load(file), start=1))
                return
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}, line {number}", json.loads(line)
        except UnicodeDecodeError as error:
            raise Refusal(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}" if beginning == "[" else f"line {number}"
            raise Refusal(f"{path}, {where} is no JSON: {error.msg}") from None


def _of_parquet(path: Path, column: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise Refusal(f"{path} is read with the package pyarrow, which this image lacks; use .jsonl files") from None
    try:
        with parquet.ParquetFile(path) as file:
            name = _column(file.schema_arrow.names, column, str(path))
            row = 0
            for batch in file.iter_batches(batch_size=1024, columns=[name]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    yield f"{path}, row {row}", {name: value}
    except (pyarrow.ArrowException, OSError) as error:
        raise Refusal(f"{path} is damaged, or no Parquet file: {str(error).splitlines()[0]}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
