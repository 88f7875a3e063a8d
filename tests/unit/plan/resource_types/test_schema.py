"""The rows against the provider's own schema, which is too large to keep here.

    PULUMI_AWS_SCHEMA=aws.json pytest tests/unit/plan/resource_types/test_schema.py

where ``aws.json`` is what ``pulumi package get-schema aws`` prints for the version of pulumi-aws that is installed.
"""

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from trainium_eks.plan.resource_types.registry import ROWS

ENABLED_BY = "PULUMI_AWS_SCHEMA"

if not os.environ.get(ENABLED_BY):
    pytest.skip(f"set {ENABLED_BY} to the output of `pulumi package get-schema aws`", allow_module_level=True)


@cache
def schema() -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads(Path(os.environ[ENABLED_BY]).read_text(encoding="utf-8"))
    return read


def replacing(properties: Mapping[str, Any], prefix: str = "", seen: tuple[str, ...] = ()) -> Iterator[str]:
    """The shortest paths that the schema marks as replacing. Lists of objects are left out: no row speaks of one."""
    for name, property_ in properties.items():
        path = f"{prefix}{name}"
        if property_.get("willReplaceOnChanges"):
            yield path
            continue
        reference = property_.get("$ref", "").removeprefix("#/types/")
        inner = schema()["types"].get(reference, {}).get("properties", {}) if reference not in seen else {}
        yield from replacing(inner, f"{path}.", (*seen, reference))


@pytest.mark.parametrize("token", sorted(token for token in ROWS if token.startswith("aws:")))
def test_what_replaces_is_what_the_schema_says(token: str) -> None:
    always = {each for each in ROWS[token].replaced_by if isinstance(each, str)}
    assert always == set(replacing(schema()["resources"][token]["inputProperties"]))
