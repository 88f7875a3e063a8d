"""The training section: what is known of the jobs of an environment before they run."""

import math

from trainium_eks.model import goodput
from trainium_eks.model.problems import Problem
from trainium_eks.model.shape import Amount, Shape


class TrainingConfig(Shape):
    """What decides how often jobs should save, and how much of their time is useful (docs/goodput.md)."""

    checkpoint_gigabytes: Amount = goodput.DEFAULT_STATE_GIGABYTES
    """Size of a checkpoint where a job does not say, GB: 12 for each billion parameters with Adam in FP32."""
    failures_per_node_year: Amount | None = None
    """How often a node stops its gang in a year of training, Spot interruptions included. Unset: as published for its
    accelerator; Trainium has no published rate and is taken to fail like H100 (1.4)."""


def problems(training: TrainingConfig) -> list[Problem]:
    """What is wrong with the training section. Paths are relative to it."""
    found = []
    for field in ("checkpoint_gigabytes", "failures_per_node_year"):
        value = getattr(training, field)
        if value is not None and not 0 <= value < math.inf:
            good = abs(value) if math.isfinite(value) else None
            found.append(Problem(field, "must be 0 or more", value=value, allowed=("0 or more",), good=good))
    return found
