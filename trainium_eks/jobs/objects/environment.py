"""Environment variables of a job's containers, by the devices of its nodes. Each variable has its source next to it."""

from collections.abc import Mapping

from trainium_eks.jobs.objects import capacity_block
from trainium_eks.jobs.objects.job import DATA, TrainingJob
from trainium_eks.kube.pod_text import number
from trainium_eks.model.catalogue.backends import device_environment

CHECKPOINT_SECONDS = "TRN_CHECKPOINT_SECONDS"
"""Environment variable: training between two checkpoints, seconds. The library's trainings take it as default."""

_ULTRASERVER_MARGIN_SECONDS = 4200
"""How long before the end of a Capacity Block of UltraServers a training stops: EC2 begins to end its instances 60
minutes before, those of other blocks 30 minutes before (EC2 user guide, Capacity Blocks); EKS' own drain, 40 minutes
before, is too late there. Ten minutes are for the checkpoint."""


def environment(job: TrainingJob) -> dict[str, str]:
    """Return the variables of every container of a job, in the order in which they are set."""
    devices = device_environment(job.backend, job.instance)
    found = {**devices, **_precision(job), **_ours(job), **_cache(job)}
    if job.launcher == "torchrun":
        # torchrun ends processes 30 s after SIGTERM, whatever the pod's grace period (pytorch #119856; since 2.12).
        found["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(max(job.grace_seconds - 10, 1))
    return {**found, **job.env}


def checkpoint_seconds(env: Mapping[str, str]) -> float | None:
    """Return the interval in a job's variables; None without one, or for a value that is no number of seconds."""
    found = number(env.get(CHECKPOINT_SECONDS))
    return found if found is not None and found >= 0 else None


def _precision(job: TrainingJob) -> dict[str, str]:
    """Return the variables of the precision. ``XLA_DOWNCAST_BF16`` is deprecated (pytorch/xla #8915): scripts cast the
    model, and the hardware rounds."""
    found: dict[str, str] = {"TRN_PRECISION": job.precision}
    if job.precision == "bf16" and job.backend in ("xla", "neuron"):
        found["NEURON_RT_STOCHASTIC_ROUNDING_EN"] = "1"
    return found


def _ours(job: TrainingJob) -> dict[str, str]:
    """Return the variables for training scripts, ``trainium_workloads`` among them."""
    found = {"TRN_BACKEND": job.backend, "TRN_JOB": job.name}
    if job.metrics_port:
        found["TRN_METRICS_PORT"] = str(job.metrics_port)
    if job.output:
        found["TRN_OUTPUT_DIR"] = job.output
        found["HF_HOME"] = f"{DATA}/huggingface"
    if job.capacity_ends:
        found["TRN_CAPACITY_ENDS"] = job.capacity_ends
        if job.capacity_block:
            found["TRN_CAPACITY_FILE"] = f"{capacity_block.DIRECTORY}/{job.capacity_group or capacity_block.KEY}"
        if job.instance.ultraserver_nodes:
            found["TRN_CAPACITY_MARGIN"] = str(_ULTRASERVER_MARGIN_SECONDS)
    return found


def _cache(job: TrainingJob) -> dict[str, str]:
    """Return the variable of the compiled graphs' directory: TorchNeuron's, or that of PyTorch NeuronX's persistent
    cache.

    TorchNeuron names graphs by their content and writes them by a rename, so all jobs of a team may share a directory;
    its default is lost with the pod. Its locks stay in ``/tmp`` of the container: they hold within a node.
    """
    if job.backend == "neuron":
        directory = job.cache.directory if job.cache else f"{DATA}/neff-cache"
        return {"TORCH_NEURONX_NEFF_CACHE_DIR": directory} if job.claim or job.cache else {}
    return {"NEURON_COMPILE_CACHE_URL": job.cache.directory} if job.cache else {}
