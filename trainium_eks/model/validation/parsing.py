"""JSON and YAML: of untrusted writers, where every fault is a ValueError, and of this package's own tables."""

import json
from pathlib import Path
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


def read_table(path: Path) -> Any:
    """Return the data of a YAML file of this package, by libyaml where it is there: Python's own loader takes seven
    times as long, which `trn status` would show."""
    import yaml

    return yaml.load(path.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
