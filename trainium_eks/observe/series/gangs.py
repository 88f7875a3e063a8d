"""Volcano's PodGroups as series, by kube-state-metrics' custom resource state.

Volcano's scheduler has series of jobs, but none says whether a gang waits: a job that is held back has no pods, and
``e2e_job_scheduling_last_time`` moves with every try that is undone (``pkg/scheduler/actions/allocate/allocate.go``,
1.15). A PodGroup says it, for jobs of every form. kube-state-metrics' format:
docs/metrics/extend/customresourcestate-metrics.md in its repository.
"""

from typing import Any

from trainium_eks.model.annotations import annotation
from trainium_eks.model.catalogue.instances import NEURON_RESOURCE, NVIDIA_RESOURCE

PREFIX = "trn"

PHASES = ("Pending", "Inqueue", "Running", "Unknown", "Completed")
"""Phases of a PodGroup. ``Pending`` and ``Inqueue``: it waits. ``Unknown``: some of its pods run and others have no
place."""

ACCESS: dict[str, Any] = {
    "apiGroups": ["scheduling.volcano.sh"],
    "resources": ["podgroups"],
    "verbs": ["list", "watch"],
}
"""Further rights that kube-state-metrics needs, as a rule of its ClusterRole."""


def custom_resources() -> dict[str, Any]:
    """Return kube-state-metrics' ``customResourceState.config``.

    Its series: ``trn_gang_phase`` (1 for the phase it is in), ``trn_gang_created_timestamp_seconds``,
    ``trn_gang_min_members``, ``trn_gang_running_members``, ``trn_gang_min_devices`` (by ``resource``) and
    ``trn_gang_capacity_block_ends_timestamp_seconds``, each with ``namespace``, ``podgroup``, ``job_name`` and
    ``queue``.
    """
    ends = ["metadata", "annotations", annotation("capacity-block-ends")]
    podgroup = {
        "groupVersionKind": {"group": "scheduling.volcano.sh", "version": "v1beta1", "kind": "PodGroup"},
        "metricNamePrefix": PREFIX,
        "labelsFromPath": {
            "namespace": ["metadata", "namespace"],
            "podgroup": ["metadata", "name"],
            # The job, as `trn jobs` has it: a PodGroup's own name ends with the job's UID.
            "job_name": ["metadata", "ownerReferences", "0", "name"],
            "queue": ["spec", "queue"],
        },
        # A field that a gang lacks, as a Capacity Block, is no error.
        "errorLogV": 5,
        "metrics": [
            {
                "name": "gang_phase",
                "help": "1 for the phase that the gang is in.",
                "each": {
                    "type": "StateSet",
                    "stateSet": {"path": ["status", "phase"], "labelName": "phase", "list": [*PHASES]},
                },
            },
            _gauge("gang_created_timestamp_seconds", "When it was made.", ["metadata", "creationTimestamp"]),
            _gauge("gang_min_members", "Pods without which it does not run.", ["spec", "minMember"]),
            _gauge("gang_running_members", "Pods that run.", ["status", "running"], nil_is_zero=True),
            _gauge("gang_capacity_block_ends_timestamp_seconds", "When the Capacity Block of its nodes ends.", ends),
            *(
                _gauge("gang_min_devices", "Devices that it asks for.", ["spec", "minResources", each], resource=each)
                for each in (NEURON_RESOURCE, NVIDIA_RESOURCE)
            ),
        ],
    }
    return {"kind": "CustomResourceStateMetrics", "spec": {"resources": [podgroup]}}


def _gauge(name: str, text: str, path: list[str], *, nil_is_zero: bool = False, resource: str = "") -> dict[str, Any]:
    """Return a gauge of a number, a quantity or a time (RFC 3339, which becomes seconds since 1970) of the object."""
    gauge = {"path": path, "nilIsZero": True} if nil_is_zero else {"path": path}
    labels = {"commonLabels": {"resource": resource_label(resource)}} if resource else {}
    return {"name": name, "help": text, **labels, "each": {"type": "Gauge", "gauge": gauge}}


def resource_label(resource: str) -> str:
    """Return a resource as kube-state-metrics writes it in a label: ``aws.amazon.com/neuron`` is
    ``aws_amazon_com_neuron``."""
    return "".join(letter if letter.isalnum() else "_" for letter in resource)
