"""Tokens of documents, and the learnt tokens among them: all, the assistant's, or a completion's.

A chat template that marks the assistant's tokens (``{% generation %}``) decides by itself. With any other the answer is
the text that the rendered conversation has after the generation prompt: the conversation is rendered up to each answer,
without it and with it. A template that renders a prefix otherwise than the whole is refused.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from trainium_workloads.finetune.rows import Message, Row
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
OPEN: Final = "that the chat template ends without an end-of-turn token: from them a model does not learn to stop"

_Spans = list[tuple[int, int]]


class Document(NamedTuple):
    """Tokens of a row, and the label of each: the token itself, or ``IGNORED``."""

    tokens: list[int]
    labels: list[int]
    may_be_divided: bool = False
    """Whether a longer one becomes several; the end of another is cut off."""


class Encoder:
    """Makes documents of rows. ``loss_on`` is None for the default of the row's kind. ``counts`` are numbers of rows:
    left out as :data:`NO_ANSWER` or :data:`EMPTY`, or :data:`OPEN`."""

    def __init__(self, tokenizer: Any, loss_on: LossOn | None) -> None:
        self._tokenizer, self._loss_on = tokenizer, loss_on
        self._tried = set[str]()
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
        return wanted

    def _is_left_out(self, row: Row) -> bool:
        if row.kind == "text":
            self._wanted(row)
            return not str(row.completion).strip()
        if self._wanted(row) == "all":
            return False
        texts = [row.completion] if isinstance(row.completion, str) else [*map(_said, self._answers(row))]
        reason = "" if texts and all(each.strip() for each in texts) else EMPTY if texts else NO_ANSWER
        self.counts[reason] += bool(reason)
        return bool(reason)

    def _answers(self, row: Row) -> list[Message]:
        """Return the messages that are learnt."""
        wanted, messages = self._wanted(row), row.messages
        if wanted == "completion" and row.kind == "completion":
            messages = messages[len(row.prompt) :]
        found = [each for each in messages if each["role"] == "assistant"]
        return found[-1:] if wanted == "completion" and row.kind == "messages" else found

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
        for row, is_all, ids, at, (_, spans) in zip(
            rows, learns_all, found["input_ids"], places, rendered, strict=True
        ):
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
        messages = row.messages
        try:
            for lost in self._not_printed(messages):
                raise RefusalError(f"the chat template leaves out {lost}: take another tokenizer, or data without them")
            whole = self._text(messages)
            if self._wanted(row) == "all":
                return whole, []
            answers = self._answers(row)
            spans = self._spans(row, whole, answers)
            if not spans:
                raise RefusalError(f"{row.place}: the chat template marks nothing of it with {{% generation %}}")
        except RefusalError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a template does
            raise RefusalError(f"the chat template does not take a conversation: {error}") from None
        self.counts[OPEN] += whole[: spans[-1][1]].rstrip().endswith(answers[-1]["content"].strip() or _MARK)
        return whole, spans

    def _spans(self, row: Row, whole: str, answers: Sequence[Message]) -> _Spans:
        messages = row.messages
        if self._wanted(row) == "completion" and row.kind == "completion":
            before = self._text(row.messages[: len(row.prompt)], add_generation_prompt=True)
            if not whole.startswith(before):
                raise RefusalError(_ambiguous(row, before))
            return [(len(before), len(whole))]
        if self._is_marked:
            from transformers.utils.chat_template_utils import render_jinja_template

            template = self._tokenizer.get_chat_template()
            asked = {"return_assistant_tokens_mask": True, **self._tokenizer.special_tokens_map}
            _, (spans,) = render_jinja_template([messages], chat_template=template, **asked)
            return list(spans[-1:] if self._wanted(row) == "completion" else spans)
        numbers = (number for number, each in enumerate(messages) if any(each is some for some in answers))
        return [self._span(row, whole, messages, number) for number in numbers]

    def _span(self, row: Row, whole: str, messages: list[Message], number: int) -> tuple[int, int]:
        """Return the place of a turn in the whole: from the end of the generation prompt to the turn's end."""
        before = self._text(messages[:number], add_generation_prompt=True)
        turn = self._text(messages[: number + 1])
        content = str(messages[number]["content"]).strip()
        if whole.startswith(before) and turn.startswith(before):
            said = turn[len(before) :]
            # Some templates put thoughts before the last answer alone, and the tokenizer's end after it.
            short = said[said.find(content) :] if content and content in said else said
            for each in (said, short, said.removesuffix(self._end), short.removesuffix(self._end)):
                if content in each and whole.startswith(each, len(before)):
                    return len(before), len(before) + len(each)
        raise RefusalError(_ambiguous(row, before))

    @functools.cached_property
    def _end(self) -> str:
        return str(self._tokenizer.eos_token)

    def _text(self, messages: Sequence[Message], **settings: bool) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, **settings))

    def _not_printed(self, messages: list[Message]) -> Iterator[str]:
        """Yield the parts that a template drops in silence: messages of a role, or calls of tools. Each is tried
        once."""
        for role in sorted({each["role"] for each in messages if "tool_calls" not in each} - self._tried):
            self._tried.add(role)
            marked = [{**each, "content": _MARK} if each["role"] == role else each for each in messages]
            if _MARK not in self._text(marked):
                yield f"messages of the role {role}"
        if "tool_calls" not in self._tried and any("tool_calls" in each for each in messages):
            self._tried.add("tool_calls")
            bare = [{name: value for name, value in each.items() if name != "tool_calls"} for each in messages]
            if self._text(bare) == self._text(messages):
                yield "tool_calls"


def _labels(ids: Sequence[int], places: Sequence[tuple[int, int]], spans: _Spans) -> Iterator[int]:
    """Yield the label of each token; the token with a span's first character is the first that counts."""
    waiting = iter(spans)
    begin, end = next(waiting, (_TO_THE_END, 0))
    for token, (first, after) in zip(ids, places, strict=True):
        while first >= end and begin < _TO_THE_END:
            begin, end = next(waiting, (_TO_THE_END, 0))
        yield token if after > begin and first < end else IGNORED


def _said(answer: Message) -> str:
    return str(answer["content"] or answer.get("tool_calls", ""))


def _ambiguous(row: Row, before: str) -> str:
    return (
        f"{row.place}: this chat template does not tell the assistant's tokens: it renders a conversation otherwise "
        f"than its beginning with the generation prompt, {before[-40:]!r}. Name a --chat-template FILE that marks them "
        "with {% generation %}, or take --loss-on all"
    )
