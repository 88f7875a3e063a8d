"""``--nodes N``: a stack's config with a different number of accelerator nodes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.model.validation.formats import LARGEST_NODE_GROUP
from trainium_eks.plan.recording.project import StackSettings


def with_nodes(nodes: int | None, project: str) -> Callable[[StackSettings], StackSettings]:
    """Return a function that sets the size of the first node group in a stack's settings, unless that is None.

    Nodes beyond EKS' limit for one group go to further groups of the same kind (``<name>-2``, …), as they would on AWS.
    All else follows from the config, as always: queues grow with the pool, the address budget must hold.
    """
    key = f"{project}:nodeGroups"

    def adjust(settings: StackSettings) -> StackSettings:
        if nodes is None:
            return settings
        groups = json.loads(settings.config.get(key, "[]"))
        if not groups:
            raise LocalCloudError(
                f"--nodes sets the size of the first node group, and Pulumi.{settings.name}.yaml has none"
            )
        first, *others = groups
        sized = [_sized(first, index, size) for index, size in enumerate(_sizes(nodes), start=1)]
        return replace(settings, config={**settings.config, key: json.dumps([*sized, *others])})

    return adjust


def _sizes(nodes: int) -> list[int]:
    full, rest = divmod(nodes, LARGEST_NODE_GROUP)
    return [LARGEST_NODE_GROUP] * full + ([rest] if rest or not full else [])


def _sized(group: Mapping[str, Any], index: int, size: int) -> dict[str, Any]:
    name = group.get("name", "")
    return {
        **group,
        "name": name if index == 1 else f"{name}-{index}",
        "minSize": min(group.get("minSize", 0), size),
        "maxSize": max(group.get("maxSize", 0), size, 1),
        "desiredSize": size,
    }
