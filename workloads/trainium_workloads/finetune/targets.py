"""Tokens of documents, and the learnt tokens among them: all, the assistant's, or a completion's.

A chat template that marks the assistant's tokens (``{% generation %}``) decides by itself. With any other the answer is
the text that the rendered conversation has after the generation prompt: the conversation is rendered up to each answer,
without it and with it. A template that renders a prefix otherwise than the whole is refused.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from trainium_workloads.finetune.rows import FIELDS, Message, Row
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import IGNORED

LossOn = Literal["all", "assistant", "completion"]
_DEFAULT: Final[dict[str, LossOn]] = {"text": "all", "messages": "assistant", "completion": "completion"}
"""By a row's kind."""
_GENERATION: Final = re.compile(r"\{%-?\s*generation\s*-?%\}")
_MARK: Final = "a2f1c0d9"
_TO_THE_END: Final = 1 << 62
NO_ANSWER: Final = "without an answer to learn"
EMPTY: Final = "with an empty answer"
DOUBLE: Final = "with a begin token of their own: the tokenizer's stands in front of it once"
OPEN: Final = "that the chat template ends without an end-of-turn token: from them a model does not learn to stop"

_Spans = list[tuple[int, int]]


class Document(NamedTuple):
    """Tokens of a row, and the label of each: the token itself, or ``IGNORED``."""

    tokens: list[int]
    labels: list[int]
    may_be_divided: bool = False
    """Whether a longer one becomes several; the end of another is cut off."""


class Encoder:
    """Makes documents of rows. ``loss_on``: None for the default of the row's kind. ``counts`` are numbers of rows:
    left out as :data:`NO_ANSWER` or :data:`EMPTY`, or :data:`OPEN` or :data:`DOUBLE`."""

    def __init__(self, tokenizer: Any, loss_on: LossOn | None) -> None:
        self._tokenizer, self._loss_on = tokenizer, loss_on
        self._tried = set[tuple[str, str]]()
        self._takes_text = False
        """Whether the template takes the arguments of a tool's call as JSON text alone."""
        self._is_marked = bool(_GENERATION.search(tokenizer.chat_template or ""))
        self.counts = Counter[str]()

    def encoded(self, rows: Sequence[Row]) -> Iterator[Document]:
        """Yield the documents of some rows, texts first. Refusal: a row does not fit ``loss_on`` or the template."""
        rows = [each for each in rows if not self._is_left_out(each)]
        for are_texts in (True, False):
            some = [each for each in rows if isinstance(each.completion, str) is are_texts]
            yield from self._tokens(some, [self._rendered(each) for each in some], special=are_texts)

    def _wanted(self, row: Row) -> LossOn:
        wanted = self._loss_on or _DEFAULT[row.kind]
        if wanted == "assistant" and not row.messages:
            raise RefusalError(f"{row.place}: texts have no assistant: take --loss-on all, or completion with a prompt")
        if wanted == "completion" and row.kind == "text":
            raise RefusalError(f"{row.place}: a text without a prompt is no completion: take --loss-on all")
        if wanted == "all" and row.context:
            fault = "a message is not to be learnt (weight, train or loss), and --loss-on all learns every token"
            raise RefusalError(f"{row.place}: {fault}: take --loss-on assistant, and another --packing than cut")
        return wanted

    def _is_left_out(self, row: Row) -> bool:
        if row.kind == "text":
            self._wanted(row)
            return not str(row.completion).strip()
        if self._wanted(row) == "all":
            return False
        messages = row.messages
        texts = (
            [row.completion]
            if isinstance(row.completion, str)
            else [str(messages[n]["content"] or messages[n].get("tool_calls", "")) for n in self._answers(row)]
        )
        reason = "" if texts and all(each.strip() for each in texts) else EMPTY if texts else NO_ANSWER
        self.counts[reason] += bool(reason)
        return bool(reason)

    def _answers(self, row: Row) -> list[int]:
        """Return the numbers of the messages that are learnt."""
        wanted = self._wanted(row)
        begin = len(row.prompt) if wanted == "completion" and row.kind == "completion" else 0
        found = [number for number in _of_assistant(row) if number >= begin]
        found = found[-1:] if wanted == "completion" and row.kind == "messages" else found
        return [number for number in found if number not in row.context]

    def _tokens(
        self, rows: Sequence[Row], rendered: Sequence[tuple[str, _Spans]], *, special: bool
    ) -> Iterator[Document]:
        learns_all = [self._wanted(each) == "all" for each in rows]
        if not all(learns_all) and not self._tokenizer.is_fast:
            raise RefusalError("this tokenizer does not tell where its tokens begin: take --loss-on all, or a fast one")
        if not rows:
            return
        texts, end = [text for text, _ in rendered], self._tokenizer.eos_token_id
        found = self._tokenizer(texts, add_special_tokens=special, return_offsets_mapping=not all(learns_all))
        places = found.get("offset_mapping", [[]] * len(texts))
        for row, is_all, every, each_at, (_, spans) in zip(
            rows, learns_all, found["input_ids"], places, rendered, strict=True
        ):
            is_double = special and every[:2] == [self._tokenizer.bos_token_id] * 2
            self.counts[DOUBLE] += is_double
            ids, at = every[is_double:], each_at[is_double:]
            labels = ids if is_all else [*_labels(ids, at, spans)]
            more = [end] if special and ids[-1:] != [end] else []
            yield Document([*ids, *more], [*labels, *more], row.kind == "text")

    def _rendered(self, row: Row) -> tuple[str, _Spans]:
        """Return a row as text, and the places of its learnt parts."""
        if isinstance(row.completion, str):
            return f"{row.prompt}{row.completion}", [(len(row.prompt), _TO_THE_END)]
        if not self._tokenizer.chat_template:
            mends = "take a chat model's (--tokenizer DIRECTORY), a --chat-template FILE, or a column of texts"
            raise RefusalError(f"the data are conversations, and the tokenizer has no chat template: {mends}")
        try:
            self._check_template(row)
            whole = self._text(row, row.messages)
            if self._wanted(row) == "all":
                return whole, []
            spans = self._spans(row, whole)
            if not spans:
                raise RefusalError(f"{row.place}: the chat template marks nothing of it with {{% generation %}}")
        except RefusalError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a template does
            raise RefusalError(f"the chat template does not take a conversation: {error}") from None
        last = row.messages[self._answers(row)[-1]]
        self.counts[OPEN] += whole[: spans[-1][1]].rstrip().endswith(last["content"].strip() or _MARK)
        return whole, spans

    def _spans(self, row: Row, whole: str) -> _Spans:
        messages, answers = row.messages, self._answers(row)
        if self._wanted(row) == "completion" and row.kind == "completion" and not row.context:
            before = self._text(row, messages[: len(row.prompt)], add_generation_prompt=True)
            if not whole.startswith(before):
                raise RefusalError(_ambiguous(row, before))
            return [(len(before), len(whole))]
        if not self._is_marked:
            return [self._span(row, whole, messages, number) for number in answers]
        from transformers.utils.chat_template_utils import render_jinja_template

        template = self._tokenizer.get_chat_template()
        asked = {"return_assistant_tokens_mask": True, **self._tokenizer.special_tokens_map, **row.settings}
        _, (spans,) = render_jinja_template([self._given(messages)], chat_template=template, **asked)
        if row.context and len(spans) != len(_of_assistant(row)):
            marks = f"{len(spans)} parts of its {len(_of_assistant(row))} answers"
            raise RefusalError(f"{row.place}: a message is not to be learnt, and the chat template marks {marks}")
        if row.context:
            return [span for number, span in zip(_of_assistant(row), spans, strict=True) if number in answers]
        return list(spans[-1:] if self._wanted(row) == "completion" else spans)

    def _span(self, row: Row, whole: str, messages: list[Message], number: int) -> tuple[int, int]:
        """Return the place of a turn in the whole: from the end of the generation prompt to the turn's end."""
        before = self._text(row, messages[:number], add_generation_prompt=True)
        turn = self._text(row, messages[: number + 1])
        words = _words(messages[number])
        if whole.startswith(before) and turn.startswith(before) and words in turn[len(before) :]:
            # Some templates put thoughts before the last message alone, and the tokenizer's end after it.
            for end in ("", str(self._tokenizer.eos_token)):
                said = turn[len(before) :].removesuffix(end)
                if whole.startswith(said, len(before)):
                    return len(before), len(before) + len(said)
                at = said.rfind(words) if words else 0
                begin = whole.find(said[at:], len(before))
                if at >= 0 and begin >= 0 and said[:at].endswith(whole[len(before) : begin]):
                    return len(before), begin + len(said) - at
        raise RefusalError(_ambiguous(row, before))

    def _text(self, row: Row, messages: Sequence[Message], **settings: bool) -> str:
        settings = {**row.settings, **settings}
        return str(self._tokenizer.apply_chat_template(self._given(messages), tokenize=False, **settings))

    def _given(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages as the template takes them."""
        return [_with_calls(each, _json_text) if self._takes_text else each for each in messages]

    def _check_template(self, row: Row) -> None:
        """Refuse what the template drops in silence: messages of a role, tools, and fields of messages that must not be
        left out; print others. Each is tried once."""
        messages = row.messages
        mends = "take another tokenizer or --chat-template, or data without them"
        if self._is_new("", "arguments") and any("tool_calls" in each for each in messages):
            self._takes_text = self._prints_python(row)
        for role in sorted({each["role"] for each in messages if "tool_calls" not in each}):
            marked = [{**each, "content": _MARK} if each["role"] == role else each for each in messages]
            if self._is_new(role, "") and _MARK not in self._text(row, marked):
                raise RefusalError(f"the chat template leaves out messages of the role {role}: {mends}")
        if "tools" in row.settings and self._is_new("", "tools"):
            bare = str(self._tokenizer.apply_chat_template(self._given(messages), tokenize=False))
            if self._text(row, messages) == bare:
                raise RefusalError(f"{row.place}: the chat template leaves out tools: {mends}")
        for number, each in enumerate(messages):
            for name in [name for name, value in each.items() if name not in ("role", "content") and value]:
                decision, _ = FIELDS.get(name, ("", ""))
                if decision == "passed" or not self._is_new(each["role"], name):
                    continue
                # As the last one: of earlier messages some templates leave the thoughts out.
                without = {other: value for other, value in each.items() if other != name}
                if self._text(row, [*messages[:number], without]) != self._text(row, messages[: number + 1]):
                    continue
                if decision == "needed":
                    raise RefusalError(f"{row.place}: the chat template leaves out {name}: {mends}")
                print(f"{row.place}: the chat template leaves out {name} of messages of the role {each['role']}")

    def _is_new(self, role: str, name: str) -> bool:
        is_new = (role, name) not in self._tried
        self._tried.add((role, name))
        return is_new

    def _prints_python(self, row: Row) -> bool:
        """Return whether the template takes no objects as arguments, or prints them as Python does."""
        probe = {_MARK: "x"}
        messages = [_with_calls(each, lambda _: probe) for each in row.messages]
        try:
            return str(probe) in self._text(row, messages)
        except Exception:  # noqa: BLE001 - whatever a template does
            return True


def _labels(ids: Sequence[int], places: Sequence[tuple[int, int]], spans: _Spans) -> Iterator[int]:
    """Yield the label of each token; the token with a span's first character is the first that counts."""
    waiting = iter(spans)
    begin, end = next(waiting, (_TO_THE_END, 0))
    for token, (first, after) in zip(ids, places, strict=True):
        while first >= end and begin < _TO_THE_END:
            begin, end = next(waiting, (_TO_THE_END, 0))
        yield token if after > begin and first < end else IGNORED


def _of_assistant(row: Row) -> list[int]:
    return [number for number, each in enumerate(row.messages) if each["role"] == "assistant"]


def _with_calls(message: Message, made: Callable[[Any], Any]) -> Message:
    """Return a message with other arguments in its calls of tools."""

    def changed(call: Any) -> Any:
        if "function" in call:
            return {**call, "function": changed(call["function"])}
        return {**call, "arguments": made(call["arguments"])} if "arguments" in call else call

    return {**message, "tool_calls": [*map(changed, message["tool_calls"])]} if "tool_calls" in message else message


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _words(message: Message) -> str:
    """Return the words by which a message is found in a rendered conversation: its content, or a call's name."""
    calls = message.get("tool_calls") or [{}]
    name = (calls[-1].get("function") or calls[-1]).get("name", "")
    return str(message["content"]).strip() or str(name)


def _ambiguous(row: Row, before: str) -> str:
    return (
        f"{row.place}: this chat template does not tell the assistant's tokens: it renders a conversation otherwise "
        f"than its beginning with the generation prompt, {before[-40:]!r}. Name a --chat-template FILE that marks them "
        "with {% generation %}, or take --loss-on all"
    )
