"""Extension of griffe: the marks of our docstrings (``name``, :func:`name`, ``::`` before a block) as Markdown."""

import re
import textwrap
from typing import Any

import griffe

_BLOCK = re.compile(r"::\n\n((?:(?: {4}[^\n]*)?\n)+)", re.MULTILINE)


class DocstringMarks(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite an object's docstring."""
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """Return a docstring with Markdown's marks."""
    text = re.sub(r":\w+:`~?\.?([\w.]+)`", lambda found: f"`{found[1].rsplit('.', 1)[-1]}`", text)
    text = _BLOCK.sub(_fenced, f"{text}\n\n".replace("``", "`"))
    return text.strip()


def _fenced(block: re.Match[str]) -> str:
    return f":\n\n```python\n{textwrap.dedent(block[1]).strip()}\n```\n\n"
