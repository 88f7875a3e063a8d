"""Series in a PromQL query, read from its text. A test compares with Prometheus' own parser where it is there."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from trainium_eks.observe.series.metrics import METRICS

_STRING = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`'
_TOKEN = re.compile(
    rf"(?P<comment>#[^\n]*)|(?P<string>{_STRING})|(?P<range>\[[^\]]*\])|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<mark>[{{}}()])"
)
_MATCHER = re.compile(rf"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*(?:{_STRING})")
_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_CALLS = frozenset({"(", "by", "without"})
"""Tokens after a function or an aggregation: ``sum (a)``, ``sum by (b) (a)``."""
_WORDS = frozenset({*_LISTS, "and", "or", "unless", "bool", "offset", "atan2", "start", "end", "inf", "nan"})


@dataclass(frozen=True)
class Selector:
    """A series in a query."""

    name: str
    labels: tuple[str, ...] = ()
    """Labels that its matchers name."""


def selectors(query: str) -> Iterator[Selector]:
    """Yield every series in a query, in its order.

    Each selector must have a name: ``{__name__=~"..."}`` is not found. The query must be valid for Prometheus, without
    variables of a dashboard.
    """
    tokens = [match for match in _TOKEN.finditer(query) if match.lastgroup not in ("comment", "range")]
    position = 0
    while position < len(tokens):
        token, after = tokens[position], tokens[position + 1 : position + 2]
        follows = after[0].group() if after else ""
        position += 1
        if token.lastgroup != "name" or _is_inside_number(query, token):
            continue
        if token.group().lower() in _LISTS:
            position = _closed(tokens, position) if follows == "(" else position
        elif follows not in _CALLS and token.group().lower() not in _WORDS:
            end = _closed(tokens, position) if follows == "{" else position
            matchers = query[token.end() : tokens[end - 1].end()] if follows == "{" else ""
            yield Selector(token.group(), tuple(_MATCHER.findall(matchers)))
            position = end


def unknown(query: str, recorded: Collection[str]) -> list[str]:
    """Return the problems of the names of a query: series that nobody serves, and labels that a series does not have.

    Args:
        query: as for :func:`selectors`.
        recorded: names of the recording rules. Their labels are not looked at.
    """
    found = []
    for selector in selectors(query):
        metric = METRICS.get(selector.name)
        if metric is None and selector.name not in recorded:
            found.append(f"{selector.name}: neither in trainium_eks/observe/series/metrics.py nor recorded")
        elif metric is not None:
            labels = {*metric.labels, "job", "instance"}
            found += [f"{selector.name} has no label {label}" for label in selector.labels if label not in labels]
    return found


def expand(query: str, values: Mapping[str, str]) -> str:
    """Return a dashboard's query with values for its variables (``$name`` and ``${name}``)."""
    return re.sub(r"\$\{?(\w+)(?::\w+)?\}?", lambda match: values[match[1]], query)


def _closed(tokens: list[re.Match[str]], position: int) -> int:
    """Return the position behind the bracket that closes the bracket here. Strings are separate tokens, so none is
    inside."""
    depth = 0
    while position < len(tokens):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(tokens[position].group(), 0)
        position += 1
        if depth == 0:
            break
    return position


def _is_inside_number(query: str, token: re.Match[str]) -> bool:
    """Return whether a name is the unit of a duration, or the exponent of a number: ``5m``, ``1e3``."""
    return token.start() > 0 and query[token.start() - 1].isdigit()
