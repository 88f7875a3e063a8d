"""Instance types of SageMaker's endpoints and batch transform, and the settings that follow from a type.

Source: botocore's ProductionVariantInstanceType and TransformInstanceType; a test holds the lists against both.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue, InstanceType, near
from trainium_eks.model.validation.problems import Problem

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

G5: Mapping[str, InstanceType] = {
    name: replace(
        CATALOGUE["p5.4xlarge"],
        name=name,
        accelerator="A10G",
        accelerators=gpus,
        accelerator_memory_gib=22,
        vcpus=vcpus,
        memory_gib=4 * vcpus,
        efa_interfaces=0,
        local_disks=disks,
        local_disk_gb=disk_gb,
        hourly_usd=usd,
        price_date="2026-04-01",
        price_region="us-east-1",
        sagemaker_name=None,
    )
    for name, gpus, vcpus, disks, disk_gb, usd in (
        ("g5.xlarge", 1, 4, 1, 250, 1.006),
        ("g5.2xlarge", 1, 8, 1, 450, 1.212),
        ("g5.12xlarge", 4, 48, 1, 3800, 5.672),
        ("g5.48xlarge", 8, 192, 2, 3800, 16.288),
    )
}
"""GPU types for models alone; nodes of the cluster, which train, have none of them.

Sources: EC2's DescribeInstanceTypes, and the On-Demand prices of EC2's page in April 2026.
"""

STARTUP_SECONDS, DEVICE_STARTUP_SECONDS = 600, 3600
"""Time that the first answer may take; Neuron compiles each shape before it. SageMaker takes up to 3600."""


def types(catalogue: Catalogue) -> Catalogue:
    """Return the types of a catalogue, and those for models alone."""
    return Catalogue({**G5, **catalogue})


def problems(path: str, name: str, catalogue: Catalogue, *, batch: bool = False) -> list[Problem]:
    """Return the problems of an instance type by SageMaker's name (``ml.inf2.xlarge``), for batch transform or an
    endpoint; ``path`` is that of the key or option with the type."""
    refused = NEITHER | ENDPOINTS_ONLY if batch else NEITHER
    allowed = tuple(sorted(f"{PREFIX}{each}" for each in types(catalogue) if each not in refused))
    if name in allowed:
        return []
    reason = f"the catalogue knows no {'batch transform' if batch else 'endpoint'} of SageMaker's on it"
    good = near(name if name.startswith(PREFIX) else f"{PREFIX}{name}", allowed)
    return [Problem(path, reason, value=name, allowed=allowed, good=good)]


def find(name: str, catalogue: Catalogue) -> InstanceType:
    """Return the type by SageMaker's name."""
    return types(catalogue).find(name.removeprefix(PREFIX))


def takes_volume_key(instance: InstanceType) -> bool:
    """Return whether requests may name a key for the volume: local disks encrypt by themselves, and SageMaker refuses
    a key for them (API reference, CreateEndpointConfig)."""
    return not instance.local_disks


def environment(instance: InstanceType, engine: str = "auto", field: str = "") -> dict[str, str]:
    """Return the variables of a container that serves (``trainium_workloads.serving.sagemaker``). ``field`` is the key
    of a record's text; empty for the default."""
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
