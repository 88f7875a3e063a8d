"""Both sides of every limit that a field of the config declares: the last value that is taken, the first that is not.

The numbers come from ``limits`` in ``bad_inputs.yaml``, where a changed declaration fails; a field that has none there
is tried at the numbers that it declares.
"""

import math

import pytest
import yaml
from unit.model.config.test_bad_inputs import ROOT
from unit.model.config.test_config import FIELDS, at, put, spelled, text

from trainium_eks.model.config.stack_config import load
from trainium_eks.model.validation import limits
from trainium_eks.model.validation.limits import Bounds, Choices, Entries, Form, Length
from trainium_eks.model.validation.problems import config_path


def limited():
    """Yield every limit with a place in a sound config where it holds: a field's, or a list's first entry."""
    for path, spec, name, data in FIELDS.values():
        own, annotation = limits.declared(spec)[name]
        yield from ((path, data, limit) for limit in own)
        yield from (((*path, 0), data, limit) for limit in limits.entry_of(annotation)[0])


def sides(kind, values, found):
    """Yield values around a limit, and whether they are within it; ``found`` is a value that is."""
    step = 0.01 if isinstance(found, float) else 1
    match kind:
        case "numbers":
            low, high = values
            yield from ((low, True), (low - step, False))
            if high is not None:
                yield from ((high, True), (high + step, False))
        case "more than":
            yield from ((values, False), (values + step, True))
        case "choices":
            yield from ((value, True) for value in values)
            beside = {value + step for value in values for step in (-1, 1)} - {*values}
            yield from ((value, False) for value in sorted(beside))
        case "entries":
            low, high = values
            entry = found[0]
            many = [entry + index if isinstance(entry, int) else f"{entry}{index}" for index in range(high + 1)]
            lengths = {low - 1: False, low: True, high: True, high + 1: False}
            yield from ((many[:length], within) for length, within in lengths.items() if length >= 0)
        case "characters":
            yield from (("/" + "p" * (values - 1), True), ("/" + "p" * values, False))
        case "forms":
            yield from ((found, True), ("nonsense", False), (f"{found} ", False))


def numbers(limit):
    match limit:
        case Bounds(above=True):
            return limit.low
        case Choices():
            return limit.values
        case Length():
            return limit.high
        case Form():
            return None
    return limit.low, None if limit.high == math.inf else limit.high


KINDS = {Bounds: "numbers", Choices: "choices", Entries: "entries", Form: "forms", Length: "characters"}
TABLE = yaml.safe_load((ROOT / "tests" / "bad_inputs.yaml").read_text())["limits"]
CASES = [
    pytest.param(put(data, path, value), spelled(path), limit, within, id=f"{spelled(path)}={str(value)[:20]}")
    for path, data, limit in limited()
    for kind in ("more than" if isinstance(limit, Bounds) and limit.above else KINDS[type(limit)],)
    for value, within in sides(kind, TABLE.get(kind, {}).get(spelled(path), numbers(limit)), at(data, path))
]


def test_every_limit_of_the_table_is_declared_and_rejects_non_numbers():
    assert {place for kind in TABLE.values() for place in kind} <= {spelled(path) for path, _, _ in limited()}
    for value in (math.inf, math.nan, -math.inf):
        for bounds in (Bounds(0), Bounds(0, above=True), Bounds(1, 2)):
            told = bounds.problem("path", value)
            assert told.good is None


def refusals(data):
    return limits.of_places(limits.walk(load(text(data))))


@pytest.mark.parametrize(("data", "place", "limit", "within"), CASES)
def test_value_is_accepted_within_its_limit_and_refused_outside(data, place, limit, within):
    allowed = tuple(map(str, limit.values)) if isinstance(limit, Choices) else (limit.allowed,)
    here = [each for each in refusals(data) if config_path(each.path) == place]
    by_limit = [each for each in here if each.allowed == allowed or isinstance(limit, Form)]
    assert bool(by_limit) != within
    assert all(each.good is not None or each.fix for each in by_limit)


LISTS = [
    pytest.param(put(data, path, [*value, value[0]]), spelled((*path, len(value))), id=spelled(path))
    for path, _, _, data in FIELDS.values()
    if isinstance(value := at(data, path), list) and value and isinstance(value[0], str | int)
]


@pytest.mark.parametrize(("data", "place"), LISTS)
def test_list_of_plain_values_refuses_duplicates(data, place):
    assert place in {config_path(each.path) for each in refusals(data)}
