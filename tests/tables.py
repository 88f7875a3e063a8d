"""Tables of cases of which `make test` runs a few and `make test-all` the others."""

import pytest


def first_of_each(rows, key, name):
    """Return a parameter for each row; all are marked `slow` but the first of each key, which is enough for every
    day: of the rule, the verdict."""
    parameters, seen = [], set()
    for row in rows:
        marks = [pytest.mark.slow] if key(row) in seen else []
        parameters.append(pytest.param(row, id=name(row), marks=marks))
        seen.add(key(row))
    return parameters
