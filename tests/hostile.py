"""Hostile texts and documents, as strategies of hypothesis."""

import copy
import json
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("TRN_FUZZ", "0"))
"""Inputs of each reader; 0 for as many as the test suite has time for (``make fuzz`` asks for 10,000)."""

NASTY = (
    *('{"step":' * 3000, "[" * 1100, '{"step": 1, "time": ' + "9" * 5000 + "}", '{"a":' * 400 + "1" + "}" * 400),
    *("\x1b]0;owned\x07\x1b[2J", "\u202egnp.exe", "\ud800", "\x00", "a\x85b\u2028c", "\r\x1b[A", "­"),
    *("9" * 5000, "1e400", "-1e308", "NaN", "Infinity", "-0", "0x10", "1_000", "٣", "²"),
    *("[default" + "9" * 5000 + "]: x", "Root Cause" * 2000, "--nproc_per_node " + "9" * 5000, " " * 9000),
    *("2026-13-45T99:99:99Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "- 2026-99-99", "&a [*a]"),
    *("../../../../etc/passwd", "/data/../../etc", "~", "-rf", "%s%n{0}$(id)`id`", "x" * 20_000),
)

TEXT = st.one_of(st.sampled_from(NASTY), st.text(max_size=40))
NUMBERS = st.one_of(
    st.sampled_from((0, -1, 2**31, 2**63, 10**400, 1e308, -1e308, float("inf"), float("nan"), 0.1)),
    st.integers(),
    st.floats(),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


def budget(ordinary):
    """Return settings for so many examples, always the same ones; or for what was asked for, with new ones."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(
        max_examples=EXAMPLES or ordinary, deadline=None, derandomize=not EXAMPLES, database=None,
        suppress_health_check=[*slow, HealthCheck.large_base_example],
    )  # fmt: skip


@st.composite
def damaged(draw, document):
    """Return a JSON document some of whose parts are missing, or something else altogether."""
    made = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, 3))):
        if not (places := _places(made)):
            break
        holder, key = draw(st.sampled_from(places))
        if draw(st.integers(0, 2)):
            holder[key] = draw(JSON)
        else:
            del holder[key]
    return made


@st.composite
def hostile(draw, document, checked=()):
    """Return a document of the same shape, as an API server admits it: other texts and numbers, empty lists; and the
    same below ``checked`` keys, where the server checks what stands."""
    made = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 6))):
        places = [(holder, key) for holder, key in _places(made, checked) if not isinstance(holder[key], dict)]
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        match holder[key]:
            case bool():
                holder[key] = not holder[key]
            case int():
                holder[key] = draw(st.integers(0, 2**31 - 1))
            case str():
                holder[key] = draw(TEXT)
            case list() if key != "containers":  # of which there is always one
                holder[key] = []
    return made


def as_text(document):
    """Return a document as JSON, with all that JSON parsers of Python take."""
    return json.dumps(document)


def _places(document, checked=()):
    found = []
    rest = [document]
    while rest:
        holder = rest.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            if key not in checked:
                found.append((holder, key))
                rest.append(holder[key])
    return found
