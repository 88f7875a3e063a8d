"""Examples of a fixed length out of the texts and conversations of a data set, made once.

Rank 0 turns them into tokens, and keeps the examples in a file that every rank maps into memory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy

from trainium_workloads.checkpoint import sha256
from trainium_workloads.data_files import files_of
from trainium_workloads.finetune import packing, rows
from trainium_workloads.finetune.packing import Packing
from trainium_workloads.finetune.targets import DOUBLE, EMPTY, NO_ANSWER, OPEN, Document, Encoder, LossOn
from trainium_workloads.tokenized import Rows, cached_tokens, read_tokenizer, stamps
from trainium_workloads.training.refusal import RefusalError

_KINDS: Final = (".txt", ".jsonl", ".json", ".parquet", ".arrow")
_ANSWER: Final = "a2f1c0d9"
_MARKS: Final = re.compile(r"\{%(-?)\s*(end)?generation\s*(-?)%\}")
_SYNTHETIC_VOCABULARY, _SYNTHETIC_NOISE = 64, 0.1


@dataclass(frozen=True)
class Form:
    """Form of the examples."""

    length: int
    """Tokens of an example that are predicted; the column ``tokens`` has one more."""
    vocabulary: int
    """Of the model."""
    column: str | None = None
    """See :func:`~.rows.read`."""
    loss_on: LossOn | None = None
    packing: Packing | None = None
    """None: ``cut`` for texts, ``documents`` for conversations and for prompts with completions."""
    chat_template: Path | None = None
    """File with the template of conversations; None: the tokenizer's."""


def prepare(data: Path, tokenizer: Path, cache: Path, form: Form, split: str = "train") -> Path:
    """Return the file of a data set's examples, and make a missing one; for one process. The same files, tokenizer and
    form are read once: ``cache`` is the directory of tokens.

    ``data`` is a file, or a directory, of which the files of the split are taken. The columns follow from
    :data:`~.packing.Packing`. Refusal: the data or the tokenizer is not there, damaged, or not of this model; or there
    are too few tokens.
    """
    files = files_of(data, split, _KINDS, is_alone=True)
    made, digests = read_tokenizer(tokenizer)
    if len(made) > form.vocabulary:
        counts = f"{len(made):,} tokens, and the model {form.vocabulary:,}"
        raise RefusalError(f"the tokenizer in {tokenizer} has {counts}: it is another model's")
    if made.eos_token_id is None:
        raise RefusalError(f"the tokenizer in {tokenizer} has no end token: set eos_token in its tokenizer_config.json")
    if form.chat_template:
        try:
            made.chat_template = form.chat_template.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RefusalError(f"--chat-template {form.chat_template} cannot be read: {error}") from None
        digests = [*digests, sha256(form.chat_template)]
    key = ["examples", stamps(files), digests, form.column, form.length, form.loss_on, form.packing]

    def make(file: Path) -> None:
        found = rows.read(files, form.column, file.parent)
        first = list(islice(found, 1))
        packs = form.packing or ("cut" if all(each.kind == "text" for each in first) else "documents")
        if packs == "cut" and not form.packing:
            found = _texts_alone(found, first)
        encoder = Encoder(made, "all" if form.packing == "cut" else form.loss_on)
        pad = made.eos_token_id if made.pad_token_id is None else made.pad_token_id
        documents = _documents(chain(first, found), encoder)
        packing.write(file, documents, form.length, packs, pad)

    return cached_tokens(cache, "texts", key, make)


@dataclass(frozen=True)
class ForServers:
    """What servers must know of a training's texts."""

    tokenizer: Path
    """Directory."""
    end: int | None = None
    """Token at the end of the answers that were learnt, where it is another than the tokenizer's end token."""
    chat_template: str | None = None
    """Where it prints a conversation otherwise than the tokenizer's."""


def for_servers(tokenizer: Path, chat_template: Path | None, data: Rows) -> ForServers:
    """Return what the export of a training on these examples must tell; print an end that is no token."""
    made, _ = read_tokenizer(tokenizer)
    own = _printed(made)
    # Servers without transformers do not know the marks.
    other = _MARKS.sub(_as_if, chat_template.read_text(encoding="utf-8")) if chat_template else None
    if other:
        made.chat_template = other
    printed = _printed(made)
    after = printed.rpartition(_ANSWER)[2]
    ids = made(after, add_special_tokens=False)["input_ids"] if after.strip() else []
    end = next((each for each in ids if each in made.added_tokens_decoder), None)
    some = data.at(range(min(len(data), packing.TOGETHER)))
    is_learnt = end is not None and bool((some.get("labels", some["tokens"]) == end).any())
    if ids and end is None and "labels" in some:
        print(f"answers end with {after!r}, which is not a token: give it to servers as a stop string", flush=True)
    return ForServers(
        tokenizer, end if is_learnt and end != made.eos_token_id else None, other if printed != own else None
    )


def _as_if(mark: re.Match[str]) -> str:
    return f"{{%{mark[1]} {'endif' if mark[2] else 'if true'} {mark[3]}%}}"


def _printed(tokenizer: Any) -> str:
    """Return a conversation by the tokenizer's template; empty without one, or where that fails."""
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _ANSWER}]
    try:
        return str(tokenizer.apply_chat_template(talk, tokenize=False)) if tokenizer.chat_template else ""
    except Exception:  # noqa: BLE001 - whatever a template does
        return ""


def prepare_synthetic(count: int, length: int, seed: int, cache: Path) -> Path:
    """Return the file of this many made-up examples; for one process. A token follows from the token before it, but for
    some noise, so there is something to learn."""

    def documents() -> Iterator[Document]:
        random = numpy.random.default_rng(seed)
        following = random.permutation(_SYNTHETIC_VOCABULARY)
        made = random.integers(0, _SYNTHETIC_VOCABULARY, (count, length))
        follows = random.random((count, length)) >= _SYNTHETIC_NOISE
        for place in range(1, length):
            made[:, place] = numpy.where(follows[:, place], following[made[:, place - 1]], made[:, place])
        yield from (Document(each.tolist(), []) for each in made)
        yield Document([0], [])  # the last example predicts it

    return cached_tokens(
        cache, "synthetic", [count, length, seed], lambda file: packing.write(file, documents(), length, "cut")
    )


def _texts_alone(found: Iterator[rows.Row], first: list[rows.Row]) -> Iterator[rows.Row]:
    """Yield rows that are texts, as the first one is. Refusal: a row is a conversation or a prompt with its completion,
    of which pieces of all in a row would learn every token."""
    for row in found:
        if row.kind != "text":
            fault = f"{row.place} is not text, as {first[0].place} is"
            raise RefusalError(f"{fault}: take --packing documents, in which each row is learnt by its kind")
        yield row


def _documents(found: Iterator[rows.Row], encoder: Encoder) -> Iterator[Document]:
    while some := list(islice(found, packing.TOGETHER)):
        yield from encoder.encoded(some)
    left = (f"{encoder.counts[each]:,} rows {each} are left out" for each in (NO_ANSWER, EMPTY) if encoder.counts[each])
    ends = ((OPEN, "conversations"), (DOUBLE, "texts"))
    more = (f"{encoder.counts[each]:,} {what} {each}" for each, what in ends if encoder.counts[each])
    for line in (*left, *more):
        print(line, flush=True)
