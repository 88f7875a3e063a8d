"""The TorchX component of this library: ``torchx run -s kubernetes … torchx_components.py:trainium_ddp``.

Needs torchx and the package trainium_eks, without its dependencies: ``pip install --no-deps trainium-eks`` brings it,
and a checkout has it.
"""

import sys
from pathlib import Path
from typing import Any, Dict  # noqa: UP035 - TorchX reads the annotations and knows these names

import torchx.specs as specs


def _library() -> Any:
    """Return the part of trainium_eks that needs no other package. TorchX executes this file inside a module of
    TorchX, so only the command line has the path of this file."""
    try:
        from trainium_eks.jobs.objects import torchx_app
    except ModuleNotFoundError:
        named = next((word.rpartition(":")[0] for word in sys.argv if word.endswith(":trainium_ddp")), "")
        sys.path.append(str(Path(named).resolve().parents[2] if named else ""))
        from trainium_eks.jobs.objects import torchx_app
    return torchx_app


def trainium_ddp(
    image: str,
    script: str = "",
    module: str = "",
    script_args: str = "",
    nnodes: int = 2,
    nproc_per_node: int = 0,
    name: str = "train",
    instance_type: str = "trn1.32xlarge",
    bf16: bool = True,
    precision: str = "",
    cacheset: str = "",
    cache_options: str = "{}",
    precompile: bool = False,
    backend: str = "",
    launcher: str = "torchrun",
    rendezvous: str = "c10d",
    claim: str = "fsx-claim",
    data: str = "",
    max_retries: int = 50,
    max_restarts: int = 0,
    failed_starts: str = "3",
    grace: int = 300,
    metrics: int = 9600,
    cpu: int = 0,
    memory_mb: int = 0,
    env: Dict[str, str] = {},  # noqa: B006, UP006 - TorchX reads the default, nothing changes it
) -> specs.AppDef:
    """Run distributed training on whole nodes of Trainium or GPUs, as `trn train` submits it.

    Args:
        image: the training image
        script: path of the training script in the image
        module: Python module to run in place of a script
        script_args: arguments for the script, quoted as for a shell
        nnodes: number of nodes
        nproc_per_node: processes on each node; 0 for one a NeuronCore or GPU
        name: name of the job; TorchX makes it unique
        instance_type: EC2 type of the nodes, a name of the catalogue
        bf16: train in BF16, with stochastic rounding on Trainium; False for FP32
        precision: to use another: tf32, fp16, fp8, as far as the backend has it
        cacheset: key of the compile cache that the job reads, or fills with --precompile; empty for none
        cache_options: JSON object with the options on which the compiled graphs depend
        precompile: compile the graphs of a short run, and train nothing
        backend: xla, neuron, cuda or cpu; empty for the instance type's own
        launcher: torchrun, or gang where the image has no torch
        rendezvous: c10d, or the endpoint of the stack's etcd
        claim: claim of the shared file system, mounted at /data; empty for none
        data: paths below /data that must be there, separated by commas
        max_retries: which fault of a pod ends the job; the gang starts again after each one before
        max_restarts: number of times that torchrun restarts failed processes within their pods
        failed_starts: failed starts in a row that end the job: N, or N:CODE,CODE; TorchX knows no code that ends it
        grace: seconds between SIGTERM and SIGKILL (TorchX 0.7.0 cannot set it: 30)
        metrics: port where rank 0 serves the training's metrics; 0 for none
        cpu: CPU limit of a pod; 0 for the whole node
        memory_mb: memory limit of a pod, MB; 0 for the whole node
        env: further environment variables: A=1,B=2
    """
    app = _library().application(**locals())
    role = specs.Role(
        name=app.role,
        image=app.image,
        entrypoint="bash",
        args=["-c", app.script],
        env=dict(app.env),
        num_replicas=app.replicas,
        max_retries=app.retries,
        retry_policy=specs.RetryPolicy.APPLICATION,
        resource=specs.Resource(
            cpu=app.cpu,
            gpu=app.gpus,
            memMB=app.memory_mb,
            devices=dict(app.devices),
            capabilities=dict(app.capabilities),
        ),
        port_map=dict(app.ports),
        mounts=[specs.VolumeMount(src=source, dst_path=target) for source, target in app.mounts.items()],
        metadata={"kubernetes": app.pod_overlay},
    )
    return specs.AppDef(name=app.name, roles=[role])
