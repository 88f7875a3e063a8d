"""Proposed interval of a job's checkpoints, from its nodes, the stack's file system and the size of its state."""

import math
from collections.abc import Iterator

from trainium_eks.jobs.objects.environment import CHECKPOINT_SECONDS
from trainium_eks.jobs.submit.examples import example_of
from trainium_eks.jobs.submit.requests import JobRequest
from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.outputs import NamespaceOutput, StackOutputs
from trainium_eks.model.sizing import goodput
from trainium_eks.model.sizing.goodput import Goodput
from trainium_eks.model.validation.problems import Problem


def propose(
    request: JobRequest, outputs: StackOutputs, namespace: NamespaceOutput, instance: InstanceType, nodes: int
) -> Goodput | None:
    """Return the interval to use, with its expected goodput. None where the job has an interval already, saves nothing
    that lasts, has no state to speak of (gradient-sum, which saves every few steps), or the stack does not give its
    file system's write speed."""
    volume = outputs.shared_volume
    megabytes = volume.write_megabytes_per_second if volume else None
    asked = request.checkpoint_seconds is not None or CHECKPOINT_SECONDS in request.variables
    if (
        asked
        or request.run_kind != "train"
        or not namespace.claim
        or not megabytes
        or nodes < 1
        or [*problems(request)]
    ):
        return None
    gigabytes = state_gigabytes(request, outputs)
    # A user's script may write while it is stalled.
    is_beside = example_of(request.program.module) is not None
    if not gigabytes:
        return None
    rate = goodput.failure_rate(instance.accelerator, outputs.training.failures_per_node_year)
    return goodput.expect(goodput.run_on_lustre(nodes, rate.per_node_year, gigabytes, megabytes, is_beside=is_beside))


def state_gigabytes(request: JobRequest, outputs: StackOutputs) -> float:
    """Return the size of a checkpoint, GB: as requested, of the example, else of the stack's config."""
    example = example_of(request.program.module)
    if request.state_gb is not None:
        return request.state_gb
    return outputs.training.checkpoint_gigabytes if example is None else example.state_gigabytes


def variables(request: JobRequest, proposed: Goodput | None) -> dict[str, str]:
    """Return the environment variables about saving for the job's processes."""
    seconds = proposed.interval_seconds if proposed else request.checkpoint_seconds
    return {} if seconds is None else {CHECKPOINT_SECONDS: f"{seconds:.12g}"}


def problems(request: JobRequest) -> Iterator[Problem]:
    """Yield the problems of the options about saving."""
    given = {"--checkpoint-seconds": request.checkpoint_seconds, "--state-gb": request.state_gb}
    for option, value in given.items():
        if value is not None and not 0 <= value < math.inf:
            good = abs(value) if math.isfinite(value) else None
            yield Problem(option, "it must be 0 or more", value=value, allowed=("0 or more",), good=good)
