"""Plain data on its way into the graph: without secrets, and in a fixed order."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from trainium_eks.plan.graph import SECRET

# Shorter secrets ("1", "on") are words that appear everywhere; replacing them in messages would only garble those.
_SHORTEST_HIDDEN = 6


def hidden(value: Any, secrets: Collection[str]) -> Any:
    """Return the value without any of the secret texts, also where they are part of another text."""
    texts = sorted((text for text in secrets if len(text) >= _SHORTEST_HIDDEN), key=len, reverse=True)
    return _replaced(value, re.compile("|".join(re.escape(text) for text in texts))) if texts else value


def ordered(value: Any) -> Any:
    """Return the value with objects' keys sorted: two runs must not differ by the order of registrations."""
    if isinstance(value, Mapping):
        return {key: ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [ordered(item) for item in value]
    return value


def _replaced(value: Any, secrets: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return secrets.sub(SECRET, value)
    if isinstance(value, Mapping):
        return {key: _replaced(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, secrets) for item in value]
    return value
