"""Text of pods: what is taken of it, and what is not."""

import math
from datetime import UTC, datetime

import pytest

from trainium_eks.kube import pod_text

HALF_PAST = datetime(2026, 11, 22, 5, 30, tzinfo=UTC)
LONG = "x" * (pod_text.LINE_CHARACTERS + 1)


@pytest.mark.parametrize(
    ("read", "value", "found"),
    [
        (pod_text.number, "2.5", 2.5),
        (pod_text.number, -1e15, -1e15),
        (pod_text.number, 1.1e15, None),
        (pod_text.number, "nan", None),
        (pod_text.number, True, None),
        (pod_text.number, None, None),
        (pod_text.whole, "3.9", 3),
        (pod_text.whole, 0, 0),
        (pod_text.whole, -0.5, None),
        (pod_text.loss, math.inf, math.inf),
        (pod_text.loss, "soon", None),
        (pod_text.time, "2026-11-22T05:30:00", HALF_PAST),
        (pod_text.time, "2026-11-22T06:30:00+01:00", HALF_PAST),
        (pod_text.time, "0001-01-01T00:00:00+01:00", None),
        (pod_text.time, 7, None),
        (pod_text.json_object, '{"a": 1}', {"a": 1}),
        (pod_text.json_object, "[1]", None),
        (pod_text.json_object, f'{{"a": "{LONG}"}}', None),
        (pod_text.mapping, [1], {}),
        (pod_text.lines, f"a\fb\n{LONG}\n", ["a\fb", LONG[:-1]]),
        (pod_text.lines, "", []),
        (pod_text.printable, "\ta\x1b[0m\u202eß\n", "\ta\\x1b[0m\\u202eß\n"),
        (pod_text.printable_json, '"\x7f\u200b"', '"\\u007f\\u200b"'),
    ],
)
def test_pod_text_is_parsed(read, value, found):
    assert read(value) == found
