"""What a real Volcano said of jobs: recorded scenes, and changes of them for what only a kubelet says."""

import copy
from functools import cache
from pathlib import Path

import yaml

from trainium_eks.jobs.observed.job_snapshot import of_objects
from trainium_eks.kube.cluster import moment
from trainium_eks.model.outputs import NodeGroupOutput

FOLDER = Path(__file__).parent / "unit/diagnose/snapshots"


def _group(name, type_, most, efa):
    sizes = {"min_size": 0, "max_size": most}
    resources = {"aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": efa}
    where = {"eks_name": f"{name}-sim", "instance_type": type_, "zone_id": "usw2-az4"}
    return NodeGroupOutput.model_validate({"name": name, **where, **sizes, "resources": resources, "labels": {}})


GROUPS = (_group("ng1", "trn1.32xlarge", 6, 8), _group("ng2", "trn1n.32xlarge", 2, 16))
"""As in the stack that the scenes were recorded on."""


def snapshot(name):
    """Kind to objects, and ``now``."""
    return copy.deepcopy(_read(name))


@cache
def _read(name):
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = yaml.load((FOLDER / f"{name}.yaml").read_text(), Loader=loader)
    found["PersistentVolumeClaim"] = [{"metadata": {"name": "fsx-claim"}, "status": {"phase": "Bound"}}]
    for job in found["Job"]:
        job |= {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    return found


def of(name, job, change=None, **rest):
    """One job of a recorded scene, perhaps after a change of what was recorded."""
    found = snapshot(name)
    if change is not None:
        change(found)
    source = next(each for each in found["Job"] if each["metadata"]["name"] == job)
    return of_objects(now(found), source, found, **{"groups": GROUPS, **rest})


def now(found):
    return moment(found["now"])
