"""Backends of PyTorch, and the environment variables of their processes. Each variable has its source next to it."""

from typing import Literal

from trainium_eks.model.catalogue.instances import InstanceType

Backend = Literal["xla", "neuron", "cuda", "cpu"]

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


def backend_of(instance: InstanceType) -> Backend:
    """Return the backend that a type's images have."""
    if instance.family == "neuron":
        return "xla" if instance.accelerator == "Trainium" else "neuron"
    return "cuda" if instance.family == "nvidia" else "cpu"


def device_environment(backend: Backend, instance: InstanceType) -> dict[str, str]:
    """Return the variables of a process that trains on a backend, on nodes of a type."""
    found = {**_ALWAYS, **_BACKENDS[backend]}
    if instance.ultraserver_nodes and backend != "cpu":
        # Mode x1, the node by itself (Neuron's guide for UltraServers); the launcher of a larger part sets another.
        found["NEURON_RT_ULTRASERVER_MODE"] = "4"
    return {**found, **(_EFA if instance.has_efa and backend != "cpu" else {})}
