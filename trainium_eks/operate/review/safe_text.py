"""Text of unknown authors, made safe for a comment.

Names, values and messages come from the request: a branch of a stranger may hold any. Everything that is not our own
wording is in a code span or a code block, where GitHub, GitLab and Bitbucket read no Markdown, no HTML, no ``@mention``
and no reference to an issue, and neither can be left: backticks become quotes, lines are one line, and characters that
steer a terminal or the order of letters become a mark.
"""

import re
import unicodedata

NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""A project's or a stack's name, as Pulumi takes it."""
MARK = "\ufffd"
"""Substitute for a character that is not shown."""

_BEGINS = re.compile(r"[A-Za-z0-9(`]")
_WITHIN = re.compile(r"[A-Za-z0-9 .,;:()'\"/=+%?→–±×…-]*\Z")
_LINKED = re.compile(r"://|www\.|\b[a-z]+:/|\.(?:com|net|org|io|dev)\b", re.IGNORECASE)
_ASCII = re.compile(r"[ -~]*\Z")
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
MOST_ACCENTS = 2
"""Combining characters in a row that are kept: stacked ones cover the lines above."""


def one_line(text: str) -> str:
    """Return the text on one line; characters that cannot be seen, or that reorder others, become :data:`MARK`."""
    if _ASCII.match(text):
        return text
    shown: list[str] = []
    accents = 0
    for letter in text:
        category = unicodedata.category(letter)
        accents = accents + 1 if category in ("Mn", "Me") else 0
        if letter.isspace():
            shown.append(" ")
        elif category in _HIDDEN:
            shown.append(MARK)
        elif accents <= MOST_ACCENTS:
            shown.append(letter)
    return "".join(shown)


def cut(text: str, length: int) -> str:
    """Return the text, or its first ``length`` - 1 characters and an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def code(text: str, length: int = 160) -> str:
    """Return a code span, also for a cell of a table: a bar becomes a broken bar, which no table splits at."""
    shown = cut(" ".join(one_line(text).split()), length).replace("`", "'").replace("|", "¦")
    return f"`{shown}`" if shown else "` `"


def sentence(text: str, length: int = 400) -> str:
    """Return a sentence as prose if it has letters and plain punctuation alone and begins with a letter (GitLab runs a
    line like ``/merge``), else as a code span. Text in backticks becomes code spans."""
    shown = cut(" ".join(text.split()), length)
    prose = shown.split("`")[::2]
    plain = all(_WITHIN.match(part) and not _LINKED.search(part) for part in prose) and _BEGINS.match(shown)
    if not plain or len(prose) == len(shown.split("`")[1::2]):
        return code(shown, length)
    return "".join(code(part, length) if index % 2 else part for index, part in enumerate(shown.split("`")))


def in_block(text: str) -> str:
    """Return a line of a code block: it can neither end the block nor begin another line."""
    return one_line(text).replace("`", "'")
