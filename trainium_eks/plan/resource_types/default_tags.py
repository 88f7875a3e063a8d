"""The default tags of an AWS provider, which it lays over every resource that takes tags.

pulumi-aws compares ``tagsAll``, so a changed default tag is an update of every such resource (pulumi-aws#2585).
"""

import json
from collections.abc import Mapping
from typing import Any

from trainium_eks.plan.graph import UNKNOWN

TAGS_ALL = "tagsAll"
"""The property with a resource's tags and its provider's default tags."""


def laid_over(inputs: Mapping[str, Any], provider: Mapping[str, Any]) -> Any:
    """Return ``tagsAll``: the provider's default tags, and the resource's own, which win; ``[unknown]`` when only
    ``pulumi up`` knows some. The default provider's inputs are empty."""
    own, default = inputs.get("tags") or {}, _default(provider)
    return UNKNOWN if UNKNOWN in (own, default) else {**default, **own}


def _default(provider: Mapping[str, Any]) -> Any:
    """Return the ``tags`` of ``defaultTags``, which the provider's SDK class sends as JSON text."""
    given = provider.get("defaultTags") or {}
    if given == UNKNOWN:
        return UNKNOWN
    parsed = json.loads(given) if isinstance(given, str) else given
    return parsed.get("tags") or {}
