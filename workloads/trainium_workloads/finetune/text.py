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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy
import torch

from trainium_workloads.checkpoint import sha256
from trainium_workloads.training.refusal import Refusal
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
_TOKENS: Final = "tokens.bin"
_FACTS: Final = "tokens.json"
_TOGETHER: Final = 1000
"""Texts that the tokenizer gets at a time: it has a thread for each core."""
_SYNTHETIC_TOKENS: Final = 64
_SYNTHETIC_NOISE: Final = 0.1

Document = str | list[Mapping[str, Any]]
"""A text, or the messages of a conversation: each with ``role`` and ``content``."""


@dataclass(frozen=True)
class TextSource:
    """Texts and tokenizer of a training."""

    data: Path
    """A file, or a directory of files."""
    tokenizer: Path
    """Its directory."""
    column: str | None = None


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
            raise Refusal(
                f"there are {facts['tokens']} tokens, and an example of --seq-len {length} needs {length + 1}"
            )
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


@dataclass(frozen=True)
class Synthetic:
    """Examples made from a seed: a token follows from the token before it, but for some noise, so there is
    something to learn."""

    count: int
    length: int
    seed: int

    def __len__(self) -> int:
        return self.count

    @property
    def digest(self) -> str:
        """Text that identifies the examples."""
        return f"synthetic {self.seed}"

    def __getitems__(self, positions: Sequence[Position]) -> Batch:
        """Return ``tokens``: ``[examples, length + 1]``."""
        following = numpy.random.default_rng(self.seed).permutation(_SYNTHETIC_TOKENS)
        rows = numpy.stack([self._row(each.index, following) for each in positions])
        return {"tokens": torch.from_numpy(rows)}

    def _row(self, index: int, following: Any) -> Any:
        random = numpy.random.default_rng((self.seed, index))
        row = random.integers(0, _SYNTHETIC_TOKENS, self.length + 1)
        kept = random.random(self.length + 1) >= _SYNTHETIC_NOISE
        for place in range(1, self.length + 1):
            if kept[place]:
                row[place] = following[row[place - 1]]
        return row


def prepare(source: TextSource, vocabulary: int, cache: Path) -> Path:
    """Return the directory with the tokens of a data set, and make missing tokens; for one process.

    Args:
        source: texts and tokenizer.
        vocabulary: tokens of the model that learns from it.
        cache: directory where tokens of any source are kept. Tokens of the same files, tokenizer and settings are made
            once.

    Returns:
        A directory for :class:`Tokens`.

    Raises:
        Refusal: the data or the tokenizer is not there, damaged, or not of this model.
    """
    files = _files(source.data)
    tokenizer = _tokenizer(source.tokenizer, vocabulary)
    directory = cache / _key(source, files)
    if _is_whole(directory):
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    part = cache / f"{directory.name}.{socket.gethostname()}-{os.getpid()}.part"
    part.mkdir(parents=True)
    try:
        facts = _write(part / _TOKENS, _documents(files, source.column), tokenizer, vocabulary)
        (part / _FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        try:
            part.rename(directory)
        except OSError:
            # Another job was faster.
            if not _is_whole(directory):
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    sys.stdout.write(f"{source.data}: {facts['documents']:,} texts, {facts['tokens']:,} tokens, in {directory}\n")
    return directory


def _files(path: Path) -> list[Path]:
    """Return the files of a data set: itself, or all below a directory, by name. Hidden files are left out, such as the
    notes of ``trn stage``."""
    if path.is_file():
        files = [path]
    elif path.is_dir():
        inside = (each for each in path.rglob("*") if each.is_file())
        files = sorted(each for each in inside if not any(x.startswith(".") for x in each.relative_to(path).parts))
    else:
        raise Refusal(f"--data {path} is not there; trn stage SOURCE --to {path} puts it there")
    chosen = [each for each in files if each.suffix in _READERS]
    if not chosen:
        held = sorted({each.suffix or each.name for each in files})
        raise Refusal(f"--data {path} must hold {', '.join(_READERS)} files; it holds {', '.join(held[:5]) or 'none'}")
    return chosen


def _documents(files: Iterable[Path], column: str | None) -> Iterator[Document]:
    """Yield the texts and conversations of the files, one after the other; a ``.txt`` file is one text."""
    from datasets import load_dataset

    for path in files:
        number = 0
        try:
            # By rows: a whole data set would be copied into a cache of its own first.
            rows = load_dataset(**_READERS[path.suffix], data_files=str(path), split="train", streaming=True)
            for row in rows:
                number += 1
                yield _document(row, column, f"{path}, row {number}")
        except Refusal:
            raise
        except Exception as error:  # noqa: BLE001 - pyarrow's, pandas' and the package's own, which share no class
            said = (str(error.__cause__ or error).strip() or type(error).__name__).splitlines()[0]
            raise Refusal(f"{path} is damaged, or no {path.suffix} file (after row {number}): {said}") from None


def _document(row: Mapping[str, Any], column: str | None, place: str) -> Document:
    wanted = (column,) if column else COLUMNS
    name = next((each for each in wanted if row.get(each) is not None), None)
    if name is None:
        raise Refusal(f"{place} has no column {' or '.join(wanted)}; --column is to be one of {', '.join(row)}")
    value = row[name]
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(x, Mapping) and {"role", "content"} <= {*x} for x in value):
        return value
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}…"
    raise Refusal(f"{place}: must be a text, or a list of messages with role and content, not {shown}")


def _tokenizer(directory: Path, vocabulary: int) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # noqa: BLE001 - of several packages, which share no class
        said = str(error).strip().splitlines()[0]
        raise Refusal(f"{directory} has no tokenizer ({said}): --tokenizer names the model's") from None
    if len(tokenizer) > vocabulary:
        raise Refusal(
            f"the tokenizer in {directory} has {len(tokenizer):,} tokens, and the model {vocabulary:,}: it is another "
            "model's"
        )
    if tokenizer.eos_token_id is None:
        raise Refusal(f"the tokenizer in {directory} has no end token: set eos_token in its tokenizer_config.json")
    return tokenizer


def _key(source: TextSource, files: Sequence[Path]) -> str:
    """Return a digest of all that the tokens depend on. Files count by name, size and time: reading 50 GB only to
    know them takes longer than a restart should."""
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    kinds = (".json", ".jinja", ".model", ".txt")
    own = [sha256(each) for each in sorted(source.tokenizer.iterdir()) if each.is_file() and each.suffix in kinds]
    return hashlib.sha256(json.dumps([stamps, own, source.column]).encode()).hexdigest()[:16]


def _is_whole(directory: Path) -> bool:
    try:
        facts = json.loads((directory / _FACTS).read_text(encoding="utf-8"))
        return sha256(directory / _TOKENS) == str(facts["sha256"])
    except (OSError, ValueError, KeyError):
        return False


def _write(path: Path, documents: Iterator[Document], tokenizer: Any, vocabulary: int) -> dict[str, int | str]:
    """Write the tokens; return their facts."""
    kind = "uint16" if vocabulary <= 1 << 16 else "uint32"
    count = number = 0
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while some := list(islice(documents, _TOGETHER)):
            for ids in _encoded([each for each in some if not isinstance(each, str) or each.strip()], tokenizer):
                data = numpy.asarray(ids, dtype=kind).tobytes()
                digest.update(data)
                file.write(data)
                count += len(ids)
                number += 1
        file.flush()
        os.fsync(file.fileno())
    return {"tokens": count, "documents": number, "type": kind, "sha256": digest.hexdigest()}


def _encoded(documents: Sequence[Document], tokenizer: Any) -> Iterator[list[int]]:
    """Yield each document's tokens: a text between the tokenizer's begin and end, a conversation by its template."""
    texts = [each for each in documents if isinstance(each, str)]
    of_texts = iter(tokenizer(texts)["input_ids"] if texts else ())
    for each in documents:
        if isinstance(each, str):
            ids = next(of_texts)
            yield ids if ids[-1:] == [tokenizer.eos_token_id] else [*ids, tokenizer.eos_token_id]
        else:
            yield _rendered(each, tokenizer)


def _rendered(messages: Sequence[Mapping[str, Any]], tokenizer: Any) -> list[int]:
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        raise Refusal(
            f"the data are conversations, and the tokenizer in {tokenizer.name_or_path} has no chat template: take the "
            "tokenizer of a chat model (--tokenizer DIRECTORY), or data with a column of texts"
        )
    try:
        found: list[int] = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    except TemplateError as error:
        raise Refusal(f"the chat template does not take a conversation: {error}") from None
    return found
