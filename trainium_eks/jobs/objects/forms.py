"""The objects of a job in each of its forms, and the kind by which an object of each form is found."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from trainium_eks.jobs.objects import pytorch_job, train_job, volcano_job
from trainium_eks.jobs.objects.identity import JOB_API, PYTORCH_API, TRAINER_API
from trainium_eks.jobs.objects.job import TrainingJob
from trainium_eks.jobs.objects.options import Form


@dataclass(frozen=True)
class JobForm:
    """The kind of a job's object, and its controllers."""

    api_version: str
    kind: str
    resource: str
    """Plural of the kind, as rights name it."""
    runner: str
    """Name of the controllers."""
    part: str
    """Name of the controllers in the stack's plan."""
    config: str
    """Setting of a stack's config that brings the controllers; empty if every stack has them."""

    @property
    def group(self) -> str:
        """Return the API's group."""
        return self.api_version.partition("/")[0]


KINDS: Mapping[Form, JobForm] = MappingProxyType(
    {
        "volcano": JobForm(JOB_API, "Job", "jobs", "Volcano", "volcano", ""),
        "pytorchjob": JobForm(
            PYTORCH_API,
            "PyTorchJob",
            "pytorchjobs",
            "Training Operator of Kubeflow",
            "training-operator",
            "gpuAddons.trainers: [v1]",
        ),
        "trainjob": JobForm(
            TRAINER_API, "TrainJob", "trainjobs", "Kubeflow Trainer v2", "kubeflow-trainer", "gpuAddons.trainers: [v2]"
        ),
    }
)


def objects(job: TrainingJob) -> list[dict[str, Any]]:
    """Return the objects to submit, in this order: the job itself is the last, and owns all others."""
    if job.form == "pytorchjob":
        return [pytorch_job.manifest(job)]
    return train_job.manifests(job) if job.form == "trainjob" else [volcano_job.manifest(job)]
