"""JSON and YAML of files and responses from untrusted writers: every fault is a ValueError."""

import json
from typing import Any

MISSHAPEN = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""Errors of code that reads a malformed document."""


def parse_json(text: str | bytes) -> Any:
    """Return the data of a JSON text; ValueError: it is no JSON, is nested too deeply, or has a number of thousands of
    digits."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_yaml(text: str) -> Any:
    """Return the data of a YAML text with one document; ValueError: it is no YAML, several documents, nested too
    deeply, or names a day that no calendar has."""
    import yaml  # here, because most commands that import this module read JSON alone

    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    # The loader passes on the errors of dates, numbers and keys of its own types.
    except (yaml.YAMLError, TypeError, AttributeError, OverflowError, LookupError) as error:
        raise ValueError(str(error)) from None
