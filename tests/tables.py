"""Tables of cases of which `make test` runs a few and `make test-all` the others."""

from typing import TypeVar

import pytest

Row = TypeVar("Row")


def first_of_each(rows, key, name):
    """Return a parameter for each row; all are marked `slow` but the first row of each key.

    Args:
        rows: the table.
        key: what rows have in common of which one is enough for every day: the rule, the verdict.
        name: the test's id.
    """
    parameters, seen = [], set()
    for row in rows:
        marks = [pytest.mark.slow] if key(row) in seen else []
        parameters.append(pytest.param(row, id=name(row), marks=marks))
        seen.add(key(row))
    return parameters
