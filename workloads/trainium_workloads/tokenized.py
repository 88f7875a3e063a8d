"""Tokenized texts: made once, kept in an Arrow file under a key of all that they depend on, mapped into memory."""

import contextlib
import copy
import errno
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset

from trainium_workloads.checkpoint import sha256
from trainium_workloads.training.refusal import RefusalError, first_line
from trainium_workloads.training.task import Batch, Position

_FOR_GOOD = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR, errno.EEXIST)
"""Errors that another try would meet again."""
_OF_TOKENIZERS = (".json", ".jinja", ".model", ".txt")

datasets.disable_progress_bars()


class Rows:
    """The rows of an Arrow file of :func:`kept`, as the examples of a training; each column in int64."""

    def __init__(self, file: Path) -> None:
        self.table = Dataset.from_file(str(file)).with_format("torch")
        self.digest = file.stem.rpartition("-")[2]
        """First digits of the SHA-256 of all rows."""

    def first(self, count: int) -> "Rows":
        """Return the first rows alone; all of them for 0."""
        found = copy.copy(self)
        found.table = self.table.select(range(min(count or len(self), len(self))))
        return found

    def __len__(self) -> int:
        return len(self.table)

    def __getitems__(self, positions: Sequence[Position]) -> Batch:
        return self.at([each.index for each in positions])

    def at(self, indices: Sequence[int]) -> Batch:
        """Return the rows of these numbers, by column."""
        return dict(self.table[list(indices)])


def cached_tokens(cache: Path, name: str, key: object, make: Callable[[Path], object]) -> Path:
    """Return the Arrow file of some tokens, whose name begins with ``name``; make the file where it is not there or
    damaged. For one process. Refusal: the cache cannot be written.

    ``key`` is all that the tokens depend on, as JSON; ``make`` writes the file to a path, and may use that path's
    directory.
    """
    begin = f"{name}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"
    for file in cache.glob(f"{begin}-*.arrow"):
        if file.stem == f"{begin}-{sha256(file)[:16]}":
            return file
        file.unlink()
    with room_in(cache) as part:
        made = part / f"{begin}.arrow"
        make(made)
        return made.replace(cache / f"{begin}-{sha256(made)[:16]}.arrow")


@contextlib.contextmanager
def room_in(directory: Path) -> Iterator[Path]:
    """Yield a new directory inside the given one, for the time of the context. Refusal: the given one cannot be
    written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=directory) as part:
            yield Path(part)
    except OSError as error:
        if error.errno not in _FOR_GOOD:
            raise
        raise RefusalError(f"{directory} takes no tokens: {error.strerror}; name another directory of tokens") from None


def stamps(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of files, for a key: reading 50 GB only to know them takes longer than a restart
    should."""
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]


def read_tokenizer(directory: Path, **settings: Any) -> tuple[Any, list[str]]:
    """Return the tokenizer in a directory, and the digests of its files, for a key. Refusal: it is missing."""
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(directory, local_files_only=True, **settings)
    except Exception as error:  # noqa: BLE001 - of several packages, which share no class
        raise RefusalError(f"{directory} has no tokenizer ({first_line(error)}): name the model's") from None
    return found, [sha256(each) for each in sorted(directory.iterdir()) if each.suffix in _OF_TOKENIZERS]
