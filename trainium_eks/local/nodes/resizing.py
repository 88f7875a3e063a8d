"""A change of a local node group's size between two ``up`` commands, as by EKS' API on AWS.

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
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json


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
