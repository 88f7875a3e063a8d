"""Examples of a fixed length out of texts: all tokens in one row, cut into equal pieces.

The texts are turned into tokens once, by rank 0, and kept in a file that every rank maps into memory. A text ends with
the tokenizer's end token, and the next follows in the same example; no computation is spent on padding. Attention does
reach over that end, as in GPT-3's training (arXiv 2005.14165, appendix B).
"""

import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy
import torch

from trainium_workloads.checkpoint import sha256
from trainium_workloads.training.refusal import Refusal, first_line
from trainium_workloads.training.task import Batch, Position

COLUMNS: Final = ("text", "messages", "content")
"""Looked for in this order where no column is named."""
_READERS: Final[Mapping[str, Mapping[str, str]]] = {
    ".txt": {"path": "text", "sample_by": "document"},
    ".jsonl": {"path": "json"},
    ".json": {"path": "json"},
    ".parquet": {"path": "parquet"},
}
"""What ``datasets`` calls a kind of file."""
_TOKENS, _FACTS = "tokens.bin", "tokens.json"
_TOGETHER: Final = 1000
"""Texts that the tokenizer gets at a time: it has a thread for each core."""
_SYNTHETIC_VOCABULARY, _SYNTHETIC_NOISE = 64, 0.1

_Document = str | list[Mapping[str, Any]]
"""A text, or the messages of a conversation: each with ``role`` and ``content``."""


class Tokens:
    """Examples in a file of tokens.

    Args:
        directory: of :func:`prepare`.
        length: tokens of an example that are predicted. The next example begins with the last one.

    Raises:
        Refusal: there are too few for one.
    """

    def __init__(self, directory: Path, length: int) -> None:
        facts = json.loads((directory / _FACTS).read_text(encoding="utf-8"))
        self._path, self._type = directory / _TOKENS, str(facts["type"])
        self._length = length
        self._count = (int(facts["tokens"]) - 1) // length
        self.digest = str(facts["sha256"])
        """Of all tokens."""
        if self._count < 1:
            held = f"there are {facts['tokens']} tokens"
            raise Refusal(f"{held}, and an example of --seq-len {length} needs {length + 1}")
        self._mapped: Any = None

    def __len__(self) -> int:
        return self._count

    def __getitems__(self, positions: Sequence[Position]) -> Batch:
        """Return ``tokens``: ``[examples, length + 1]``."""
        if self._mapped is None:  # in each process that reads
            self._mapped = numpy.memmap(self._path, dtype=self._type, mode="r")
        starts = [each.index * self._length for each in positions]
        rows = numpy.stack([self._mapped[start : start + self._length + 1] for start in starts])
        return {"tokens": torch.from_numpy(rows.astype(numpy.int64))}


def prepare(data: Path, column: str | None, tokenizer: Path, vocabulary: int, cache: Path) -> Path:
    """Return a directory for :class:`Tokens` with a data set's, and make missing tokens; for one process.

    Args:
        data: a file, or a directory of files.
        column: of the texts or conversations; None for the first of :data:`COLUMNS` that a row has.
        tokenizer: its directory.
        vocabulary: tokens of the model that learns from it.
        cache: directory of tokens. The same files, tokenizer and column are read once.

    Raises:
        Refusal: the data or the tokenizer is not there, damaged, or not of this model.
    """
    files = _files(data)
    made = _tokenizer(tokenizer, vocabulary)
    return _made(cache / _key(files, tokenizer, column), vocabulary, lambda: _encoded(_documents(files, column), made))


def prepare_synthetic(count: int, length: int, seed: int, cache: Path) -> Path:
    """Return a directory for :class:`Tokens` with made-up examples; for one process. A token follows from the token
    before it, but for some noise, so there is something to learn."""

    def rows() -> Iterator[list[int]]:
        random = numpy.random.default_rng(seed)
        following = random.permutation(_SYNTHETIC_VOCABULARY)
        made = random.integers(0, _SYNTHETIC_VOCABULARY, (count, length))
        kept = random.random((count, length)) >= _SYNTHETIC_NOISE
        for place in range(1, length):
            made[:, place] = numpy.where(kept[:, place], following[made[:, place - 1]], made[:, place])
        yield from (each.tolist() for each in made)
        yield [0]  # the last example predicts it

    return _made(cache / f"synthetic-{count}-{length}-{seed}", _SYNTHETIC_VOCABULARY, rows)


def _made(directory: Path, vocabulary: int, rows: Callable[[], Iterator[list[int]]]) -> Path:
    """Return the directory of tokens, made where it is not there or damaged."""
    if _is_whole(directory):
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    part = directory.with_name(f"{directory.name}.{socket.gethostname()}-{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        facts = _write(part / _TOKENS, rows(), "uint16" if vocabulary <= 1 << 16 else "uint32")
        (part / _FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        with suppress(OSError):  # another job was faster
            part.rename(directory)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    sys.stdout.write(f"{facts['tokens']:,} tokens, in {directory}\n")
    return directory


def _files(path: Path) -> list[Path]:
    """Return the files of a data set: itself, or all below a directory, by name. Hidden files are left out, such as the
    notes of ``trn stage``."""
    if not path.exists():
        raise Refusal(f"--data {path} is not there; trn stage SOURCE --to {path} puts it there")
    inside = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    files = [each for each in inside if not any(x.startswith(".") for x in each.relative_to(path).parts)]
    chosen = [each for each in files if each.suffix in _READERS]
    if not chosen:
        held = sorted({each.suffix or each.name for each in files})
        raise Refusal(f"--data {path} must hold {', '.join(_READERS)} files; it holds {', '.join(held[:5]) or 'none'}")
    return chosen


def _documents(files: Iterable[Path], column: str | None) -> Iterator[_Document]:
    """Yield the texts and conversations of the files, one after the other; a ``.txt`` file is one text."""
    from datasets import load_dataset

    for path in files:
        number = 0
        try:
            # By rows: the whole data set would be copied into a cache first.
            rows = load_dataset(**_READERS[path.suffix], data_files=str(path), split="train", streaming=True)
            for row in rows:
                number += 1
                yield _document(row, column, f"{path}, row {number}")
        except Refusal:
            raise
        except Exception as error:  # noqa: BLE001 - pyarrow's, pandas' and the package's own, which share no class
            said = first_line(error.__cause__ or error)
            raise Refusal(f"{path} is damaged, or no {path.suffix} file (after row {number}): {said}") from None


def _document(row: Mapping[str, Any], column: str | None, place: str) -> _Document:
    wanted = (column,) if column else COLUMNS
    name = next((each for each in wanted if row.get(each) is not None), None)
    if name is None:
        raise Refusal(f"{place} has no column {' or '.join(wanted)}; --column is to be one of {', '.join(row)}")
    value = row[name]
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(x, Mapping) and {"role", "content"} <= {*x} for x in value):
        return value
    raise Refusal(f"{place}: must be a text, or a list of messages with role and content, not {repr(value)[:60]}")


def _tokenizer(directory: Path, vocabulary: int) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # noqa: BLE001 - of several packages, which share no class
        raise Refusal(f"{directory} has no tokenizer ({first_line(error)}): --tokenizer names the model's") from None
    if len(tokenizer) > vocabulary:
        counts = f"{len(tokenizer):,} tokens, and the model {vocabulary:,}"
        raise Refusal(f"the tokenizer in {directory} has {counts}: it is another model's")
    if tokenizer.eos_token_id is None:
        raise Refusal(f"the tokenizer in {directory} has no end token: set eos_token in its tokenizer_config.json")
    return tokenizer


def _key(files: Sequence[Path], tokenizer: Path, column: str | None) -> str:
    """Return a digest of all that the tokens depend on. Files count by name, size and time: reading 50 GB only to
    know them takes longer than a restart should."""
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    kinds = (".json", ".jinja", ".model", ".txt")
    own = [sha256(each) for each in sorted(tokenizer.iterdir()) if each.is_file() and each.suffix in kinds]
    return hashlib.sha256(json.dumps([stamps, own, column]).encode()).hexdigest()[:16]


def _is_whole(directory: Path) -> bool:
    with suppress(OSError, ValueError, KeyError):
        facts = json.loads((directory / _FACTS).read_text(encoding="utf-8"))
        return sha256(directory / _TOKENS) == str(facts["sha256"])
    return False


def _write(path: Path, rows: Iterator[list[int]], kind: str) -> dict[str, int | str]:
    """Write the tokens; return their facts."""
    count = 0
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for ids in rows:
            data = numpy.asarray(ids, dtype=kind).tobytes()
            digest.update(data)
            file.write(data)
            count += len(ids)
        file.flush()
        os.fsync(file.fileno())
    return {"tokens": count, "type": kind, "sha256": digest.hexdigest()}


def _encoded(documents: Iterator[_Document], tokenizer: Any) -> Iterator[list[int]]:
    """Yield each document's tokens: a text between the tokenizer's begin and end, a conversation by its template."""
    end = tokenizer.eos_token_id
    while some := list(islice(documents, _TOGETHER)):
        texts = [each for each in some if isinstance(each, str) and each.strip()]
        yield from (ids if ids[-1:] == [end] else [*ids, end] for ids in (tokenizer(texts).input_ids if texts else ()))
        yield from (_rendered(each, tokenizer) for each in some if not isinstance(each, str))


def _rendered(messages: Sequence[Mapping[str, Any]], tokenizer: Any) -> list[int]:
    if not tokenizer.chat_template:
        mends = "take a chat model's (--tokenizer DIRECTORY), or data with a column of texts"
        raise Refusal(f"the data are conversations, and the tokenizer has no chat template: {mends}")
    try:
        found: list[int] = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    except Exception as error:  # noqa: BLE001 - whatever a template does
        raise Refusal(f"the chat template does not take a conversation: {error}") from None
    return found
