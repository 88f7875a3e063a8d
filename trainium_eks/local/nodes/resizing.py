"""Sizes of node groups: ``--nodes N``, and a change between two ``up`` commands, as by EKS' API on AWS.

``up`` records the settings of each group's nodes; the next ``up`` gives a group the config's size again, except for
groups with a size managed elsewhere.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainium_eks import whole_file
from trainium_eks.kube.api import Api
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.lock import locked
from trainium_eks.local.nodes.node_pools import pool_key, pool_of
from trainium_eks.local.nodes.simulated import Nodes
from trainium_eks.local.paths import Paths
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.validation.formats import LARGEST_NODE_GROUP
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json
from trainium_eks.plan.recording.project import StackSettings


def record(paths: Paths, key: str, facts: Mapping[str, Any], drivers: Sequence[str]) -> None:
    """Record the settings of a pool's nodes.

    The facts are the arguments of :func:`pool_of` but the catalogue, as plain data.
    """
    paths.pools.mkdir(exist_ok=True, mode=0o700)
    whole_file.write(paths.pools / f"{key}.json", json.dumps({"pool": facts, "drivers": list(drivers)}, default=str))


def resize(
    paths: Paths, eks_name: str, nodes: int, catalogue: Catalogue, waiting: Callable[[str], None] = lambda _: None
) -> None:
    """Give a group another number of nodes, and wait until they are Ready."""
    file = paths.pools / f"{pool_key({'nodeGroupName': eks_name})}.json"
    try:
        known = parse_json(file.read_text(encoding="utf-8"))
        pool = replace(pool_of(**known["pool"], catalogue=catalogue), size=nodes, keep_size=False)
        drivers = [str(each) for each in known["drivers"]]
    except (OSError, *MISSHAPEN):
        raise LocalCloudError(
            f"it is not known what the nodes of {eks_name} are made from; `trn local up` notes it"
        ) from None
    with locked(paths, f"trn scale of {eks_name}"):
        Nodes(Api.connect(paths.kubeconfig), waiting, drivers).apply(pool)


def with_nodes(nodes: int | None, project: str) -> Callable[[StackSettings], StackSettings]:
    """Return a function that gives the first node group of a stack's settings ``nodes`` nodes; None changes nothing.

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
