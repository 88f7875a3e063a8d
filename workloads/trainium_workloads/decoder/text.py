"""Examples of a fixed length out of texts: all tokens in one row, cut into equal pieces.

The texts are turned into tokens once, by rank 0, and kept in a file that every rank maps into memory. A text ends with
the model's end token, and the next follows in the same example; no computation is spent on padding. Attention does
reach over that end, as in GPT-3's training (arXiv 2005.14165, appendix B).
"""

import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy
import torch

from trainium_workloads.checkpoint import sha256
from trainium_workloads.decoder import chat, documents
from trainium_workloads.decoder.configuration import Configuration
from trainium_workloads.decoder.documents import Document
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.task import Batch, Position

_TOKENS: Final = "tokens.bin"
_FACTS: Final = "tokens.json"
_TOGETHER: Final = 1000
"""Texts that the tokenizer gets at a time: it has a thread for each core."""
_SYNTHETIC_TOKENS: Final = 64
_SYNTHETIC_NOISE: Final = 0.1


@dataclass(frozen=True)
class TextSource:
    """Texts and tokenizer of a training."""

    data: Path
    """A file, or a directory of files."""
    tokenizer: Path
    """A directory with ``tokenizer.json``, and ``tokenizer_config.json`` where there are conversations."""
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


def prepare(source: TextSource, configuration: Configuration, cache: Path) -> Path:
    """Return the directory with the tokens of a data set, and make missing tokens; for one process.

    Args:
        source: texts and tokenizer.
        configuration: of the model that learns from it.
        cache: directory where tokens of any source are kept. Tokens of the same files, tokenizer and settings are made
            once.

    Returns:
        A directory for :class:`Tokens`.

    Raises:
        Refusal: the data or the tokenizer is not there, damaged, or not of this model.
    """
    files = documents.found(source.data)
    tokenizer = _tokenizer(source.tokenizer, configuration)
    directory = cache / _key(source, files, configuration)
    if _is_whole(directory):
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    part = cache / f"{directory.name}.{socket.gethostname()}-{os.getpid()}.part"
    part.mkdir(parents=True)
    try:
        facts = _write(part / _TOKENS, _texts(documents.read(files, source.column), source), tokenizer, configuration)
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


def _tokenizer(directory: Path, configuration: Configuration) -> Any:
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise Refusal(f"{path} is not there: --tokenizer names the directory of the model's tokenizer")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise Refusal("texts need the package tokenizers, which this image lacks") from None
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the package raises nothing narrower
        raise Refusal(f"{path} is no tokenizer: {error}") from None
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if size > configuration.vocabulary:
        raise Refusal(f"{path} has {size:,} tokens, and the model {configuration.vocabulary:,}: it is another model's")
    return tokenizer


def _key(source: TextSource, files: Sequence[Path], configuration: Configuration) -> str:
    """Return a digest of all that the tokens depend on. Files count by name, size and time: reading 50 GB only to
    know them takes longer than a restart should."""
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    own = [sha256(source.tokenizer / "tokenizer.json"), chat.template_beside(source.tokenizer)]
    parts = [stamps, own, source.column, configuration.begin, configuration.end]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _is_whole(directory: Path) -> bool:
    try:
        facts = json.loads((directory / _FACTS).read_text(encoding="utf-8"))
        return sha256(directory / _TOKENS) == str(facts["sha256"])
    except (OSError, ValueError, KeyError):
        return False


def _texts(found: Iterator[Document], source: TextSource) -> Iterator[tuple[str, bool]]:
    """Yield each text, and whether it has its begin and end already, as a rendered conversation."""
    render: Callable[[Any], str] | None = None
    for document in found:
        if isinstance(document, str):
            if document.strip():
                yield document, False
            continue
        render = render or chat.renderer(source.tokenizer)
        yield render(document), True


def _write(
    path: Path, texts: Iterator[tuple[str, bool]], tokenizer: Any, configuration: Configuration
) -> dict[str, int | str]:
    """Write the tokens; return their facts."""
    kind = "uint16" if configuration.vocabulary <= 1 << 16 else "uint32"
    count = number = 0
    digest = hashlib.sha256()
    before = [] if configuration.begin is None else [configuration.begin]
    with path.open("wb") as file:
        while some := list(islice(texts, _TOGETHER)):
            encoded = tokenizer.encode_batch([text for text, _ in some], add_special_tokens=False)
            for (_, is_rendered), each in zip(some, encoded, strict=True):
                ids = each.ids if is_rendered else [*before, *each.ids, configuration.end]
                data = numpy.asarray(ids, dtype=kind).tobytes()
                digest.update(data)
                file.write(data)
                count += len(ids)
                number += 1
        file.flush()
        os.fsync(file.fileno())
    return {"tokens": count, "documents": number, "type": kind, "sha256": digest.hexdigest()}
