"""The training section: facts about an environment's jobs that are assumed before they run."""

from typing import Annotated

from trainium_eks.model.sizing import goodput
from trainium_eks.model.validation.config_model import ConfigModel, LooseFloat
from trainium_eks.model.validation.limits import Bounds


class TrainingConfig(ConfigModel):
    """The inputs for jobs' checkpoint interval and useful share of time (docs/goodput.md)."""

    checkpoint_gigabytes: Annotated[LooseFloat, Bounds(0, unit="GB")] = goodput.DEFAULT_STATE_GIGABYTES
    """Size of a checkpoint where a job does not say, GB: 12 for each billion parameters with Adam in FP32."""
    failures_per_node_year: Annotated[LooseFloat | None, Bounds(0, unit="failures a year")] = None
    """How often a node stops its gang in a year of training, Spot interruptions included. Unset: as published for its
    accelerator; Trainium has no published rate and is taken to fail like H100 (1.4)."""
