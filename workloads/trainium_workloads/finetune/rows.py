"""Rows of data files: texts, conversations, and prompts with their completions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from trainium_workloads.data_files import READERS, kind_of, plain
from trainium_workloads.training.refusal import RefusalError, first_line

COLUMNS: Final = (("messages",), ("prompt", "completion"), ("instruction", "output"), ("text",), ("content",))
"""Looked for in this order where no column is named: the second pair has Alpaca's names, with ``input`` besides."""
_TEXT_PARTS: Final = ("text", "input_text", "output_text")
"""Types of a message's parts that are text: in OpenAI's chats and in its responses."""

Message = Mapping[str, Any]
"""With ``role`` and ``content``, a text; assistants may have ``tool_calls``."""
Part = str | list[Message]


@dataclass(frozen=True)
class Row:
    """A document. A prompt and its completion are of one kind, texts or messages."""

    place: str
    """File and number, for messages of errors."""
    completion: Part
    """A text or a conversation where the prompt is empty and the row has none."""
    prompt: Part = ""
    kind: Literal["text", "messages", "completion"] = "text"

    @property
    def messages(self) -> list[Message]:
        """The conversation, its prompt included; empty for texts."""
        return [each for part in (self.prompt, self.completion) if not isinstance(part, str) for each in part]


def read(files: Iterable[Path], column: str | None, room: Path) -> Iterator[Row]:
    """Yield the rows of the files, one after the other; a ``.txt`` file is one text.

    ``column`` is the name of the column of texts or conversations, or two names with a comma, of prompts and of
    completions; None takes the first of :data:`COLUMNS` that a row has. ``room`` is a directory for unpacked files.
    Refusal: a file is damaged, or a row has no such column or another content.
    """
    from datasets import load_dataset

    for path in files:
        number, kind = 0, kind_of(path)
        try:
            source = plain(path, room)
            # By rows: the whole data set would be copied into a cache first.
            for row in load_dataset(**READERS[kind], data_files=str(source), split="train", streaming=True):
                number += 1
                yield _row(row, column, f"{path}, row {number}")
            if source != path:
                source.unlink()
        except RefusalError:
            raise
        except Exception as error:  # noqa: BLE001 - pyarrow's, pandas' and the package's own, which share no class
            said = first_line(error.__cause__ or error)
            raise RefusalError(f"{path} is damaged, or no {kind} file (after row {number}): {said}") from None


def _row(row: Mapping[str, Any], column: str | None, place: str) -> Row:
    wanted = (tuple(column.split(",")),) if column else COLUMNS
    names = next((some for some in wanted if all(row.get(each) is not None for each in some)), None)
    if names is None or len(names) > 2:
        named = " or ".join(" with ".join(some) for some in wanted)
        raise RefusalError(f"{place} has no column {named}; --column is to be one of {', '.join(row)}, or two of them")
    if names == ("instruction", "output") and not column:
        asks = "\n\n".join(filter(None, (str(row["instruction"]), row.get("input"))))
        talk = [{"role": "user", "content": asks}], [{"role": "assistant", "content": row["output"]}]
        return Row(place, _part(talk[1], place), _part(talk[0], place), "completion")
    *before, last = (_part(row[each], place) for each in names)
    if before and isinstance(before[0], str) != isinstance(last, str):
        raise RefusalError(f"{place}: {' and '.join(names)} must both be texts, or both lists of messages")
    if before:
        return Row(place, last, before[0], "completion")
    return Row(place, last, kind="text" if isinstance(last, str) else "messages")


def _part(value: Any, place: str) -> Part:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        return [_message(each, place) for each in value]
    raise RefusalError(f"{place}: must be a text, or a list of messages with role and content, not {repr(value)[:60]}")


def _message(told: Mapping[str, Any], place: str) -> Message:
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
