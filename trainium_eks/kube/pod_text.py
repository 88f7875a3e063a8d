"""Text that pods and their owners write: log lines, messages, annotations, variables, files on the volume.

It is unchecked input. Every command reads it by the functions here, which bound its size and return None for
texts that they cannot take; :func:`printable` makes it fit for a terminal.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trainium_eks.model.validation.parsing import parse_json

LINE_CHARACTERS = 8 * 1024
"""Characters of the longest line that is parsed. A training's step takes some hundred characters."""

REPORT_CHARACTERS = 1024 * 1024
"""Characters of the longest report of neuron-monitor or event of the log shipper, which describe a whole node or
pod."""

TAIL_BYTES = 4 * 1024 * 1024
"""Most bytes that are read of a log's last lines, however long they are."""

MOST = 1e15
"""The largest number that is taken, of seconds, steps or bytes alike: as an integer it is exact in JSON."""

_HIDDEN = re.compile(
    # Controls but tabs and line ends; characters that reorder or hide others; halves of surrogate pairs.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def lines(text: str) -> list[str]:
    """Return the lines of a log, each cut off at :data:`LINE_CHARACTERS`.

    Lines end where the container runtime ends them. ``splitlines`` would end them at form feeds, too.
    """
    return [line[:LINE_CHARACTERS] for line in text.removesuffix("\n").split("\n")] if text else []


def json_object(text: str, most: int = LINE_CHARACTERS) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None for other texts, and for texts longer than ``most`` characters."""
    if len(text) > most:
        return None
    try:
        found = parse_json(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def mapping(value: object) -> Mapping[str, Any]:
    """Return an object of a JSON document; an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def number(value: object) -> float | None:
    """Return a finite number from -:data:`MOST` to :data:`MOST`, also from its text; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if -MOST <= found <= MOST else None


def whole(value: object) -> int | None:
    """Return a whole number from 0 to :data:`MOST`, rounded down, also from its text; else None."""
    found = number(value)
    return int(found) if found is not None and found >= 0 else None


def loss(value: object) -> float | None:
    """Return any number, also an infinite one or none, as the loss of a run that diverged; None for anything else."""
    return value if isinstance(value, float) else number(value)


def time(value: object) -> datetime | None:
    """Return a time as Kubernetes writes it (RFC 3339), in UTC where it names no zone; None for anything else."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        # Neither may be out of the calendar in another zone.
        return None if found is None else (found.replace(tzinfo=found.tzinfo or UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def printable(text: str) -> str:
    """Return the text without anything that steers a terminal: such characters as escapes (``\\x1b``)."""
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


def printable_json(text: str) -> str:
    """Return a JSON document without anything that steers a terminal, and with the same meaning; JSON itself escapes
    the first 32 control characters alone."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
