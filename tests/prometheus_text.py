"""Reads Prometheus' text format, strictly: what a page may be, by the format's own description, and nothing else.

Where prometheus_client is not installed a lenient check would only say that some lines have a number at their end.
"""

import json
import re
from dataclasses import dataclass

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_VALUE = r"[+-]?Inf|NaN|[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)?\}})? ({_VALUE})")
_HELP = re.compile(rf"# HELP ({_NAME}) (.+)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge)")
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    kind: str
    labels: dict[str, str]
    value: float


def parse(text):
    """Each series once, with its HELP and TYPE right before it."""
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    assert len(lines) % 3 == 0
    found = {}
    for help_line, type_line, line in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        told, typed, sample = _HELP.fullmatch(help_line), _TYPE.fullmatch(type_line), _SAMPLE.fullmatch(line)
        assert told, help_line
        assert typed, type_line
        assert sample, line
        name = sample[1]
        assert told[1] == typed[1] == name
        assert name not in found
        assert (typed[2] == "counter") == name.endswith("_total"), f"{name} is a {typed[2]}"
        labels = {key: json.loads(f'"{value}"', strict=False) for key, value in _PAIR.findall(sample[2] or "")}
        found[name] = Sample(typed[2], labels, float(sample[3]))
    return found
