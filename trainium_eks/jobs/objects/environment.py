"""Environment variables of a job's containers, by the devices of its nodes. Each stands beside its source."""

from trainium_eks.jobs.objects.job import DATA, TrainingJob
from trainium_eks.jobs.objects.options import Backend

_ALWAYS = {
    # Lines come as they are printed, not in blocks of 8 KiB: a log that is followed would be minutes behind.
    "PYTHONUNBUFFERED": "1",
    # Some libraries ask for the user's name, and a UID of a team is in no image's /etc/passwd (Python, getpass).
    "LOGNAME": "training",
    # One thread a process; a rank on each core would otherwise start as many threads as there are cores (torchrun sets
    # the same and warns of it).
    "OMP_NUM_THREADS": "1",
}

_EFA = {
    # Neuron documentation, "How to prepare trn1.32xlarge for multi-node execution"; EFA guide of EC2. FI_EFA_FORK_SAFE
    # is left out: only kernels before 5.15 need it, and AL2023 has 6.1 or later.
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_DEVICE_RDMA": "1",
}

_BACKENDS: dict[Backend, dict[str, str]] = {
    "xla": {
        # PyTorch/XLA's choice of runtime (Neuron documentation, PyTorch NeuronX environment variables).
        "PJRT_DEVICE": "NEURON",
        # Bootstrap of the collectives: the pod's one interface, whatever the node's are called.
        "CCOM_SOCKET_IFNAME": "eth0",
        # glibc's arenas, one a thread, otherwise take tens of GB with 32 ranks (AWS' Neuron training samples).
        "MALLOC_ARENA_MAX": "64",
    },
    "neuron": {"CCOM_SOCKET_IFNAME": "eth0", "MALLOC_ARENA_MAX": "64"},
    "cuda": {
        # NCCL documentation: any interface but loopback. The pod has one.
        "NCCL_SOCKET_IFNAME": "^lo",
        # A collective that hangs ends the process, which restarts the gang (PyTorch, ProcessGroupNCCL).
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    },
    "cpu": {},
}


def environment(job: TrainingJob) -> dict[str, str]:
    """Return the variables of every container of a job, in the order in which they are set."""
    found = {**_ALWAYS, **_BACKENDS[job.backend], **_fabric(job), **_precision(job), **_ours(job), **_cache(job)}
    if job.launcher == "torchrun":
        # torchrun ends processes 30 s after SIGTERM, whatever the pod's grace period (pytorch #119856; since 2.12).
        found["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(max(job.grace_seconds - 10, 1))
    return {**found, **job.env}


def _fabric(job: TrainingJob) -> dict[str, str]:
    return dict(_EFA) if job.instance.has_efa and job.backend != "cpu" else {}


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
