"""Rows of data files: texts, conversations, and prompts with their completions.

``columns.csv`` has each column, and each field of a message, of the formats that people have: what is read of it, or
why it is refused. Another column is printed once; another field goes to the chat template.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Literal

from trainium_workloads.data_files import kind_of, rows_of
from trainium_workloads.training.refusal import RefusalError, first_line

_ALPACA: Final = ("instruction", "output")
COLUMNS: Final = (("messages",), ("conversations",), ("prompt", "completion"), _ALPACA, ("text",), ("content",))
"""Looked for in this order where no column is named."""
_TALKS: Final = ("messages", "conversations")
_TEXT_PARTS: Final = ("text", "input_text", "output_text")
"""Types of a message's parts that are text: in OpenAI's chats and in its responses."""
_SPEAKERS: Final = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "observation": "tool"}
"""Roles by ShareGPT's names, apart from those that are roles themselves."""
_ROLES: Final = ("system", "user", "assistant", "tool")
_TURNS: Final = ("user", "assistant")
_IS_LEARNT: Final = "is learnt"
"""In a message while its row is read."""

Message = dict[str, Any]
"""With ``role`` and ``content``, a text; assistants may have ``tool_calls``, whose arguments are objects."""
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
    context: frozenset[int] = frozenset()
    """Numbers of the assistant's messages that are not learnt."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """For the chat template, besides the messages: ``tools``."""

    @property
    def messages(self) -> list[Message]:
        """The conversation, its prompt included; empty for texts."""
        return [each for part in (self.prompt, self.completion) if not isinstance(part, str) for each in part]


def decisions(place: Literal["row", "message"]) -> dict[str, tuple[str, str]]:
    """Return what is done with each known column of a row, or field of a message, and why."""
    with Path(__file__).with_name("columns.csv").open(encoding="utf-8", newline="") as file:
        rows = [each for each in csv.DictReader(file) if each["place"] == place]
    return {each["name"]: (each["decision"], each["why"]) for each in rows}


_COLUMNS, FIELDS = decisions("row"), decisions("message")


def read(files: Iterable[Path], column: str | None, room: Path) -> Iterator[Row]:
    """Yield the rows of the files, one after the other; a ``.txt`` file is one text.

    ``column`` is the name of the column of texts or conversations, or two names with a comma, of prompts and of
    completions; None takes the first of :data:`COLUMNS` that a row has. ``room`` is a directory for unpacked files.
    Rows whose column is null are left out and counted. Refusal: a file is damaged, or a row has no such column, another
    content, or a column that must not be left out.
    """
    unread, nulls, first_null = set[str](), 0, ""
    for path in files:
        number, kind = 0, kind_of(path)
        try:
            for row in rows_of(path, room):
                number += 1
                place = f"{path}, row {number}"
                names, is_null = _names(row, column, place)
                if is_null:
                    nulls, first_null = nulls + 1, first_null or f"{place}, column {' or '.join(names)}"
                    continue
                is_alpaca = names == _ALPACA and not column
                found = _row(row, names, place, is_alpaca=is_alpaca)
                read_too = ("input", "history") if is_alpaca else ()
                if new := [each for each in _unread(row, (*names, *read_too), found) if each not in unread]:
                    unread.update(new)
                    print(f"{place}: columns that are not read: {', '.join(new)}", flush=True)
                yield found
            if not number:
                print(f"{path} has no rows", flush=True)
        except RefusalError:
            raise
        except Exception as error:  # noqa: BLE001 - json's, pyarrow's and the package's own, which share no class
            said = first_line(error.__cause__ or error)
            raise RefusalError(f"{path} is damaged, or no {kind} file (after row {number}): {said}") from None
    if nulls:
        print(f"{nulls:,} rows are left out because their text is null; the first is {first_null}", flush=True)


def _names(row: Mapping[str, Any], column: str | None, place: str) -> tuple[tuple[str, ...], bool]:
    """Return the names of the columns that are learnt, and whether one of them is null."""
    wanted = (tuple(column.split(",")),) if column else COLUMNS
    names = next((some for some in wanted if all(row.get(each) is not None for each in some)), None)
    there = names or next((some for some in wanted if all(each in row for each in some)), None)
    if there is None or len(there) > 2:
        named = " or ".join(" with ".join(some) for some in wanted)
        raise RefusalError(f"{place} has no column {named}; --column is to be one of {', '.join(row)}, or two of them")
    return there, names is None


def _row(row: Mapping[str, Any], names: tuple[str, ...], place: str, *, is_alpaca: bool) -> Row:
    parts = [*_alpaca(row, place)] if is_alpaca else [_part(row[each], place) for each in names]
    texts = [each for each in parts if isinstance(each, str)]
    talks = [each for each in parts if not isinstance(each, str)]
    if texts and talks:
        raise RefusalError(f"{place}: {' and '.join(names)} must both be texts, or both lists of messages")
    if texts:
        if names[0] in _TALKS:
            raise RefusalError(f"{place}: {names[0]} must be a list of messages with role and content, not a text")
        return Row(place, texts[-1], texts[0], "completion") if len(texts) > 1 else Row(place, texts[0])
    first, system = talks[0], _text(row.get("system"), "system", place)
    if system and first[0]["role"] not in ("system", "developer"):
        first.insert(0, {"role": "system", "content": system})
    elif system and first[0]["content"] != system:
        raise RefusalError(f"{place} has a column system, and another system message")
    learnt = [each.pop(_IS_LEARNT, True) for some in talks for each in some]
    context = frozenset(number for number, is_learnt in enumerate(learnt) if not is_learnt)
    settings = _settings(row, place)
    if len(talks) > 1:
        return Row(place, talks[1], first, "completion", context, settings)
    return Row(place, first, "", "messages", context, settings)


def _alpaca(row: Mapping[str, Any], place: str) -> Iterator[list[Message]]:
    """Yield the prompt and the completion of a row in Alpaca's form, with LLaMA-Factory's ``history``."""
    turns = row.get("history") or []
    if not isinstance(turns, list) or not all(isinstance(each, list) and len(each) == 2 for each in turns):
        raise RefusalError(f"{place}: history must be a list of pairs, of a prompt and its answer, not {_short(turns)}")
    asks = "\n\n".join(filter(None, (_text(row.get(each), each, place) for each in ("instruction", "input"))))
    said = [_text(each, "history", place) for turn in turns for each in turn]
    yield [{"role": role, "content": each} for role, each in zip(cycle(_TURNS), [*said, asks])]
    yield [{"role": "assistant", "content": _text(row["output"], "output", place)}]


def _text(value: Any, name: str, place: str) -> str:
    if not isinstance(value, str | None):
        raise RefusalError(f"{place}: {name} must be a text, not {_short(value)}")
    return value or ""


def _short(value: Any) -> str:
    return repr(value)[:60]


def _settings(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return what the chat template gets besides the messages."""
    found = {**_object(row.get("chat_template_kwargs") or {}, "chat_template_kwargs", dict, place)}
    tools = _object(row.get("tools") or [], "tools", list, place)
    if not all(isinstance(each, Mapping) for each in tools):
        raise RefusalError(f"{place}: tools must be a list of objects, not {_short(tools)}")
    return {**found, "tools": tools} if tools else found


def _object(value: Any, name: str, kind: type, place: str) -> Any:
    """Return a list or an object, also from its JSON text."""
    found = value
    if isinstance(value, str):
        try:
            found = json.loads(value or "{}")
        except ValueError:
            found = None
    if not isinstance(found, kind):
        what = "an object" if kind is dict else "a list"
        raise RefusalError(f"{place}: {name} must be {what}, or its JSON text, not {_short(value)}")
    return found


def _unread(row: Mapping[str, Any], names: tuple[str, ...], found: Row) -> Iterator[str]:
    """Yield the names of a row's other columns with values. Refusal: one of them must not be left out."""
    read = {*names, *(("system", "tools", "chat_template_kwargs") if found.messages else ())}
    # Who names a refused column has chosen among them: --column chosen.
    is_named = any(_COLUMNS.get(each, ("", ""))[0] == "refused" for each in names)
    for name, value in row.items():
        if name in read or value is None or (isinstance(value, (str, list, dict)) and not value):
            continue
        decision, why = _COLUMNS.get(name, ("", ""))
        if decision == "always refused" or (decision in ("refused", "used") and found.kind != "text" and not is_named):
            reason = why if decision != "used" else f"it is not read beside {' and '.join(names)}"
            raise RefusalError(f"{found.place} has a column {name}: {reason}. Mend the rows, or leave that column out")
        if decision == "wanted" and found.kind != "text" and isinstance(value, (bool, int, float)):
            if value != 1:
                raise RefusalError(f"{found.place} has {name} {value}: {why}. Leave such rows out")
        elif decision != "ignored":
            yield name


def _part(value: Any, place: str) -> str | list[Message]:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        return [_message(each, place) for each in value]
    raise RefusalError(f"{place}: must be a text, or a list of messages with role and content, not {_short(value)}")


def _message(told: Mapping[str, Any], place: str) -> Message:
    """Return a message with a text as its content; OpenAI's parts are joined as in a request to ``trn serve``. Refusal:
    it has no role, or another content: a template would print it as Python does; or a field that must not be left
    out."""
    message = {name: each for name, each in told.items() if each not in (None, [])}  # Arrow fills missing names up
    if "from" in message and "role" not in message:
        speaker = message.pop("from")
        message = {"role": _SPEAKERS.get(speaker, speaker), "content": message.pop("value", None), **message}
        if message["role"] not in _ROLES:
            raise RefusalError(f"{place}: a message is from {_short(speaker)}, not {', '.join((*_SPEAKERS, *_ROLES))}")
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
    weights = {}
    for name in [*message]:
        decision, why = FIELDS.get(name, ("", ""))
        if decision == "refused":
            raise RefusalError(f"{place}: a message has {name}: {why}")
        if decision == "weight":
            weights[name] = message.pop(name)
    if not isinstance(role, str) or not isinstance(content, str):
        raise RefusalError(f"{place}: must be a list of messages with role and content, not {_short(told)}")
    if "tool_calls" in message:
        message["tool_calls"] = [_call(each, place) for each in message["tool_calls"]]
    return {**message, "content": content, _IS_LEARNT: _is_learnt(weights, role, place)}


def _is_learnt(weights: Mapping[str, Any], role: str, place: str) -> bool:
    for name, value in weights.items():
        if value not in (0, 1):
            raise RefusalError(f"{place}: {name} of a message must be 0 or 1, or false or true, not {_short(value)}")
        if value and role != "assistant":
            raise RefusalError(f"{place}: {name} of a message of the role {role}: the assistant's alone are learnt")
    return role != "assistant" or all(weights.values())


def _call(call: Any, place: str) -> Any:
    """Return a call of a tool with its arguments as an object: OpenAI has them as JSON text, which templates that print
    JSON would quote a second time."""
    if not isinstance(call, Mapping):
        raise RefusalError(f"{place}: a call of tool_calls must be an object, not {_short(call)}")
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _call(call["function"], place)}
    if "arguments" not in call:
        return call
    return {**call, "arguments": _object(call["arguments"], "arguments of a tool call", dict, place)}
