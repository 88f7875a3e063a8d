"""What a real Volcano said of jobs: recorded scenes, and changes of them for what only a kubelet says."""

import copy
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from trainium_eks.jobs.explain.cluster_snapshot import ClusterSnapshot, moment, of_objects
from trainium_eks.model.outputs import NodeGroupOutput

FOLDER = Path(__file__).parent / "unit/jobs/explain/snapshots"

Object = dict[str, Any]
Snapshot = dict[str, Any]
Change = Callable[[Snapshot], object]

GROUPS = (
    NodeGroupOutput(
        name="ng1",
        eks_name="ng1-sim",
        instance_type="trn1.32xlarge",
        zone_id="usw2-az4",
        min_size=0,
        max_size=6,
        resources={"aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": 8},
        labels={},
    ),
    NodeGroupOutput(
        name="ng2",
        eks_name="ng2-sim",
        instance_type="trn1n.32xlarge",
        zone_id="usw2-az4",
        min_size=0,
        max_size=2,
        resources={"aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": 16},
        labels={},
    ),
)
"""As in the stack that the scenes were recorded on."""


def snapshot(name: str) -> Snapshot:
    """Kind to objects, and ``now``."""
    found: Snapshot = copy.deepcopy(_read(name))
    return found


def _read(name: str) -> Snapshot:
    if name not in _CACHE:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        found = yaml.load((FOLDER / f"{name}.yaml").read_text(), Loader=loader)
        found["PersistentVolumeClaim"] = [{"metadata": {"name": "fsx-claim"}, "status": {"phase": "Bound"}}]
        for job in found["Job"]:
            job |= {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
        _CACHE[name] = found
    return _CACHE[name]


_CACHE: dict[str, Snapshot] = {}


def of(name: str, job: str, change: Change | None = None, **rest: Any) -> ClusterSnapshot:
    """One job of a recorded scene, perhaps after a change of what was recorded."""
    found = snapshot(name)
    if change is not None:
        change(found)
    source = next(each for each in found["Job"] if each["metadata"]["name"] == job)
    return of_objects(now(found), source, found, **{"groups": GROUPS, **rest})


def now(found: Mapping[str, Any]) -> datetime:
    """When it was recorded."""
    return moment(found["now"])
