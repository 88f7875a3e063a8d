"""Instance types of SageMaker's endpoints and batch transform, and the settings that follow from a type.

Source: botocore's ProductionVariantInstanceType and TransformInstanceType; a test holds the lists against both.
"""

import re

from trainium_eks.model.catalogue.instances import Catalogue, InstanceType
from trainium_eks.model.validation.problems import Problem, nearest

PREFIX = "ml."
"""Beginning of an instance type's name in SageMaker."""

ECR_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/.+")
"""Images that SageMaker pulls."""

ENDPOINTS_ONLY = frozenset(
    {
        "trn1n.32xlarge", "trn2.48xlarge", "p4d.24xlarge", "p4de.24xlarge", "p5.4xlarge", "p5.48xlarge",
        "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "p6-b300.48xlarge", "r5.xlarge", "r5.2xlarge",
        "r5.4xlarge",
    }
)  # fmt: skip
"""Types of the catalogue that endpoints take, and batch transform does not."""

NEITHER = frozenset({"trn2.3xlarge", "trn2u.48xlarge", "m5.8xlarge", "r5.8xlarge"})
"""Types of the catalogue that SageMaker does not serve on."""

STARTUP_SECONDS, DEVICE_STARTUP_SECONDS = 600, 3600
"""Time that the first answer may take; Neuron compiles each shape before it. SageMaker takes up to 3600."""


def problems(path: str, name: str, catalogue: Catalogue, *, batch: bool = False) -> list[Problem]:
    """Return the problems of an instance type.

    Args:
        path: of the key or option with the type.
        name: as SageMaker calls it, ``ml.inf2.xlarge``.
        catalogue: the known types.
        batch: for batch transform, not an endpoint.
    """
    refused = NEITHER | ENDPOINTS_ONLY if batch else NEITHER
    allowed = tuple(sorted(f"{PREFIX}{each}" for each in catalogue if each not in refused))
    if name in allowed:
        return []
    reason = f"SageMaker has no {'batch transform' if batch else 'endpoint'} on it, or the catalogue does not know it"
    good = nearest(name if name.startswith(PREFIX) else f"{PREFIX}{name}", allowed)
    return [Problem(path, reason, value=name, allowed=allowed, good=good)]


def find(name: str, catalogue: Catalogue) -> InstanceType:
    """Return the type by SageMaker's name.

    Raises:
        UnknownInstanceType: for a type that the catalogue does not have.
    """
    return catalogue.find(name.removeprefix(PREFIX))


def takes_volume_key(instance: InstanceType) -> bool:
    """Return whether requests may name a key for the volume: local disks encrypt by themselves, and SageMaker refuses
    a key for them (API reference, CreateEndpointConfig)."""
    return not instance.local_disks


def environment(instance: InstanceType, engine: str = "auto", field: str = "") -> dict[str, str]:
    """Return the variables of a container that serves (``trainium_workloads.serving.sagemaker``).

    Args:
        instance: type that the container runs on.
        engine: server of the model.
        field: key of a record's text; empty for the default.
    """
    # Inferentia2 has the cores of Trn1, and PyTorch/XLA's tracing: a process for each core.
    traced = instance.accelerator in ("Trainium", "Inferentia2")
    backend = {"neuron": "xla" if traced else "neuron", "nvidia": "cuda"}.get(instance.family, "cpu")
    return {
        "TRN_BACKEND": backend,
        "SAGEMAKER_MODEL_SERVER_WORKERS": str(instance.logical_neuron_cores if traced else 1),
        **({} if engine == "auto" else {"TRN_ENGINE": engine}),
        **({"TRN_TEXT_FIELD": field} if field else {}),
    }


def startup_seconds(instance: InstanceType) -> int:
    """Return the time that the first answer of a container may take."""
    return DEVICE_STARTUP_SECONDS if instance.family == "neuron" else STARTUP_SECONDS
