"""Examples of a fixed length out of texts: all tokens in one row, cut into equal pieces.

The texts are turned into tokens once, by rank 0, and kept in a file that every rank maps into memory. A text ends with
the tokenizer's end token, and the next follows in the same example; no computation is spent on padding. Attention does
reach over that end, as in GPT-3's training (arXiv 2005.14165, appendix B).
"""

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy
import pyarrow
from datasets import Features, List, Value

from trainium_workloads.data_files import READERS, files_of, kind_of, plain
from trainium_workloads.tokenized import kept, read_tokenizer, stamps
from trainium_workloads.training.refusal import RefusalError, first_line

COLUMNS: Final = ("text", "messages", "content")
"""Looked for in this order where no column is named."""
_KINDS: Final = (".txt", ".jsonl", ".json", ".parquet", ".arrow")
_TEXT_PARTS: Final = ("text", "input_text", "output_text")
"""Types of a message's parts that are text: in OpenAI's chats and in its responses."""
_MARK: Final = "a2f1c0d9"
_TOGETHER: Final = 1000
"""Texts that the tokenizer gets, and examples that are written, at a time: it has a thread for each core."""
_SYNTHETIC_VOCABULARY, _SYNTHETIC_NOISE = 64, 0.1

_Document = str | list[Mapping[str, Any]]
"""A text, or the messages of a conversation: each with ``role`` and ``content``."""


def prepare(data: Path, column: str | None, tokenizer: Path, vocabulary: int, length: int, cache: Path) -> Path:
    """Return the file of a data set's examples, and make a missing one; for one process. The same files, tokenizer,
    column and length are read once: ``cache`` is the directory of tokens.

    ``data`` is a file, or a directory, of which the files to train with are taken; ``column`` that of the texts or
    conversations, None for the first of :data:`COLUMNS` that a row has; ``length`` the tokens of an example that are
    predicted. The column ``tokens`` has one more: the next example begins with the last token of an example. Refusal:
    the data or the tokenizer is not there, damaged, or not of this model; or there are too few tokens.
    """
    files = files_of(data, "train", _KINDS)
    made, digests = read_tokenizer(tokenizer)
    if len(made) > vocabulary:
        counts = f"{len(made):,} tokens, and the model {vocabulary:,}"
        raise RefusalError(f"the tokenizer in {tokenizer} has {counts}: it is another model's")
    if made.eos_token_id is None:
        raise RefusalError(f"the tokenizer in {tokenizer} has no end token: set eos_token in its tokenizer_config.json")
    key = ["parts", stamps(files), digests, column, length]

    def make(file: Path) -> None:
        _write(file, _encoded(_documents(files, column, file.parent), made), length)

    return kept(cache, "texts", key, make)


def prepare_synthetic(count: int, length: int, seed: int, cache: Path) -> Path:
    """Return the file of this many made-up examples; for one process. A token follows from the token before it, but for
    some noise, so there is something to learn."""

    def rows() -> Iterator[list[int]]:
        random = numpy.random.default_rng(seed)
        following = random.permutation(_SYNTHETIC_VOCABULARY)
        made = random.integers(0, _SYNTHETIC_VOCABULARY, (count, length))
        follows = random.random((count, length)) >= _SYNTHETIC_NOISE
        for place in range(1, length):
            made[:, place] = numpy.where(follows[:, place], following[made[:, place - 1]], made[:, place])
        yield from (each.tolist() for each in made)
        yield [0]  # the last example predicts it

    return kept(cache, "synthetic", [count, length, seed], lambda file: _write(file, rows(), length))


def _write(file: Path, documents: Iterator[list[int]], length: int) -> None:
    """Write tokens as examples: a row of all, cut into equal pieces."""
    schema = Features(tokens=List(Value("uint32"), length=length + 1)).arrow_schema
    examples = _cut(chain.from_iterable(documents), length)
    with pyarrow.ipc.new_stream(str(file), schema) as writer:
        count = 0
        while some := list(islice(examples, _TOGETHER)):
            writer.write_batch(pyarrow.record_batch([pyarrow.array(some, schema.field(0).type)], schema=schema))
            count += len(some)
    sys.stdout.write(f"{count:,} examples of {length} tokens, in {file.parent.parent}\n")


def _cut(tokens: Iterator[int], length: int) -> Iterator[list[int]]:
    """Yield pieces that begin with the last token of the piece before."""
    piece = list(islice(tokens, length + 1))
    if len(piece) <= length:
        raise RefusalError(f"there are {len(piece)} tokens, and an example of --seq-len {length} needs {length + 1}")
    while len(piece) > length:
        yield piece
        piece = [piece[-1], *islice(tokens, length)]


def _documents(files: Iterable[Path], column: str | None, room: Path) -> Iterator[_Document]:
    """Yield the texts and conversations of the files, one after the other; a ``.txt`` file is one text."""
    from datasets import load_dataset

    for path in files:
        number, kind = 0, kind_of(path)
        try:
            read = plain(path, room)
            # By rows: the whole data set would be copied into a cache first.
            for row in load_dataset(**READERS[kind], data_files=str(read), split="train", streaming=True):
                number += 1
                yield _document(row, column, f"{path}, row {number}")
            if read != path:
                read.unlink()
        except RefusalError:
            raise
        except Exception as error:  # noqa: BLE001 - pyarrow's, pandas' and the package's own, which share no class
            said = first_line(error.__cause__ or error)
            raise RefusalError(f"{path} is damaged, or no {kind} file (after row {number}): {said}") from None


def _document(row: Mapping[str, Any], column: str | None, place: str) -> _Document:
    wanted = (column,) if column else COLUMNS
    name = next((each for each in wanted if row.get(each) is not None), None)
    if name is None:
        raise RefusalError(f"{place} has no column {' or '.join(wanted)}; --column is to be one of {', '.join(row)}")
    value = row[name]
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        return [_message(each, place) for each in value]
    raise RefusalError(f"{place}: must be a text, or a list of messages with role and content, not {repr(value)[:60]}")


def _message(told: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return a message with a text as its content; OpenAI's parts are joined as in a request to ``trn serve``. Refusal:
    it has no role, or another content: a template would print it as Python does."""
    message = {name: each for name, each in told.items() if each not in (None, [])}  # Arrow fills missing names up
    content, role = message.get("content", "" if message.get("tool_calls") else None), message.get("role")
    if isinstance(content, list):
        parts = [each if isinstance(each, Mapping) else {"type": each} for each in content]
        texts = [each.get("text") for each in parts if each.get("type") in _TEXT_PARTS]
        if len(texts) < len(parts) or not all(isinstance(each, str) for each in texts):
            others = ", ".join(str(each.get("type"))[:30] for each in parts if each.get("type") not in _TEXT_PARTS)
            raise RefusalError(
                f"{place}: a message has a part {others or 'without text'}, and this learns from text alone"
            )
        content = " ".join(map(str, texts))
    if not isinstance(role, str) or not isinstance(content, str):
        raise RefusalError(f"{place}: must be a list of messages with role and content, not {repr(told)[:60]}")
    return {**message, "content": content}


def _encoded(documents: Iterator[_Document], tokenizer: Any) -> Iterator[list[int]]:
    """Yield each document's tokens: a text between the tokenizer's begin and end, a conversation by its template."""
    end, tried = tokenizer.eos_token_id, set[str]()
    while some := list(islice(documents, _TOGETHER)):
        texts = [each for each in some if isinstance(each, str) and each.strip()]
        yield from (ids if ids[-1:] == [end] else [*ids, end] for ids in (tokenizer(texts).input_ids if texts else ()))
        yield from (_rendered(each, tokenizer, tried) for each in some if not isinstance(each, str))


def _rendered(messages: Sequence[Mapping[str, Any]], tokenizer: Any, tried: set[str]) -> list[int]:
    if not tokenizer.chat_template:
        mends = "take a chat model's (--tokenizer DIRECTORY), or data with a column of texts"
        raise RefusalError(f"the data are conversations, and the tokenizer has no chat template: {mends}")
    try:
        for lost in _not_printed(messages, tokenizer, tried):
            raise RefusalError(f"the chat template leaves out {lost}: take another tokenizer, or data without them")
        found: list[int] = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    except RefusalError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a template does
        raise RefusalError(f"the chat template does not take a conversation: {error}") from None
    return found


def _not_printed(messages: Sequence[Mapping[str, Any]], tokenizer: Any, tried: set[str]) -> Iterator[str]:
    """Yield the parts that a template drops in silence: messages of a role, or calls of tools. Each is tried once."""
    render = functools.partial(tokenizer.apply_chat_template, tokenize=False)
    for role in sorted({each["role"] for each in messages if "tool_calls" not in each} - tried):
        tried.add(role)
        marked = [{**each, "content": _MARK} if each["role"] == role else each for each in messages]
        if _MARK not in render(marked):
            yield f"messages of the role {role}"
    if "tool_calls" not in tried and any("tool_calls" in each for each in messages):
        tried.add("tool_calls")
        bare = [{name: value for name, value in each.items() if name != "tool_calls"} for each in messages]
        if render(bare) == render(messages):
            yield "tool_calls"
