"""Examples of one length out of documents: pieces of all in a row, several documents side by side, or one each."""

import sys
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final, Literal

import pyarrow
from datasets import Features, List, Value

from trainium_workloads.finetune.targets import Document
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import IGNORED

Packing = Literal["cut", "documents", "none"]
"""``cut``: all tokens in a row, cut into equal pieces, without labels of their own. ``documents``: as many as fit, with
positions that begin anew in each, which keeps attention within a document. ``none``: a document, and padding."""
TOGETHER: Final = 1000
"""Documents that the tokenizer gets, that are packed, and examples that are written, at a time: a tokenizer has a
thread for each core."""
_COLUMNS: Final = {"cut": ("tokens",), "documents": ("tokens", "labels", "positions"), "none": ("tokens", "labels")}
_TYPES: Final = {"tokens": "uint32", "labels": "int32", "positions": "int32"}

_Example = tuple[list[int], ...]


def write(file: Path, documents: Iterator[Document], length: int, packing: Packing, pad: int = 0) -> None:
    """Write documents as examples of ``length`` tokens and one more, which is only predicted; print the shares of
    padding and of learnt tokens, and the documents that are cut or left out. Refusal: there are too few tokens."""
    names = _COLUMNS[packing]
    schema = Features({each: List(Value(_TYPES[each]), length=length + 1) for each in names}).arrow_schema
    packed = _Packed(length + 1, pad)
    if packing == "cut":
        examples: Iterator[_Example] = _cut(chain.from_iterable(each.tokens for each in documents), length)
    else:
        examples = packed.examples(documents, side_by_side=packing == "documents")
    count = 0
    with pyarrow.ipc.new_stream(str(file), schema) as writer:
        while some := list(islice(examples, TOGETHER)):
            values = zip(*some, strict=True)
            columns = [pyarrow.array(each, field.type) for each, field in zip(values, schema, strict=True)]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))
            count += len(some)
    if not count:
        raise RefusalError(f"no document has a token to learn within --seq-len {length}: take a longer one")
    sys.stdout.write(f"{count:,} examples of {length} tokens{packed.summary(count)}, in {file.parent.parent}\n")


def _cut(tokens: Iterator[int], length: int) -> Iterator[_Example]:
    """Yield pieces that begin with the last token of the piece before."""
    piece = list(islice(tokens, length + 1))
    if len(piece) <= length:
        raise RefusalError(f"there are {len(piece)} tokens, and an example of --seq-len {length} needs {length + 1}")
    while len(piece) > length:
        yield (piece,)
        piece = [piece[-1], *islice(tokens, length)]


class _Packed:
    """Examples of whole documents, and the numbers to tell of them."""

    def __init__(self, size: int, pad: int) -> None:
        self._size, self._pad = size, pad
        self._tokens = self._learnt = self._cut = self._lost = 0

    def examples(self, documents: Iterator[Document], *, side_by_side: bool) -> Iterator[_Example]:
        fitting = self._fitting(documents)
        while some := list(islice(fitting, TOGETHER)):
            for each in _rows(some, self._size) if side_by_side else ([one] for one in some):
                yield self._example(each, side_by_side)

    def summary(self, count: int) -> str:
        if not count or not self._tokens:
            return ""
        lines = [f"{100 * (1 - self._tokens / count / self._size):.1f} % padding"]
        lines += [f"{100 * self._learnt / self._tokens:.1f} % of the other tokens are learnt"]
        lines += [f"{self._cut:,} documents were longer and are cut"] if self._cut else []
        lines += [f"{self._lost:,} left out, with nothing to learn in so many tokens"] if self._lost else []
        return f"; {'; '.join(lines)}"

    def _fitting(self, documents: Iterator[Document]) -> Iterator[Document]:
        for tokens, labels, may_be_divided in documents:
            # A piece begins with the last token of the piece before.
            begins = range(0, max(len(tokens) - 1, 1), self._size - 1) if may_be_divided else (0,)
            self._cut += len(tokens) > self._size and not may_be_divided
            for begin in begins:
                of_piece = labels[begin : begin + self._size]
                # Nothing predicts a document's first token.
                piece = Document(tokens[begin : begin + self._size], [IGNORED, *of_piece[1:]])
                learnt = sum(each != IGNORED for each in piece.labels)
                self._lost += not learnt
                self._learnt += learnt
                self._tokens += len(piece.tokens) if learnt else 0
                if learnt:
                    yield piece

    def _example(self, documents: Sequence[Document], side_by_side: bool) -> _Example:
        padding = self._size - sum(len(each.tokens) for each in documents)
        tokens = [*chain.from_iterable(each.tokens for each in documents), *[self._pad] * padding]
        labels = [*chain.from_iterable(each.labels for each in documents), *[IGNORED] * padding]
        if not side_by_side:
            return tokens, labels
        lengths = [*(len(each.tokens) for each in documents), padding]
        return tokens, labels, [*chain.from_iterable(map(range, lengths))]


def _rows(documents: Sequence[Document], size: int) -> list[list[Document]]:
    """Return the documents in rows of at most ``size`` tokens: the longest first, each where the least space stays."""
    rows: list[list[Document]] = []
    spaces: list[tuple[int, int]] = []
    """Tokens that still fit into a row, and its number, ascending."""
    for each in sorted(documents, key=lambda each: -len(each.tokens)):
        at = bisect_left(spaces, (len(each.tokens), 0))
        space, row = spaces.pop(at) if at < len(spaces) else (size, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(each)
        insort(spaces, (space - len(each.tokens), row))
    return rows
