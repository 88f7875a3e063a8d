"""Writes the schema of the components as a Pulumi package to ``tests/provider_schema.json``.

python docs/provider_schema.py
"""

import functools
import json
from pathlib import Path

from provider.host import TrainiumProvider

SCHEMA = Path(__file__).resolve().parent.parent / "tests" / "provider_schema.json"


@functools.cache
def served() -> TrainiumProvider:
    """Return the provider; the analysis of its components takes seconds."""
    return TrainiumProvider()


def schema() -> str:
    """Return the provider's schema as JSON, as the analyzer of this interpreter's Pulumi makes it."""
    return json.dumps(json.loads(served().schema or ""), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema())
