"""A training job in TorchX's terms, and the equivalent ``torchx run`` command. Does not import TorchX.

TorchX fills in macros for each replica (``${replica_id}``), so the job is rendered once with a mark for each macro.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from trainium_eks.jobs.objects import resources, runnable
from trainium_eks.jobs.objects.command import PORT, RankWords, rank0_host, shell
from trainium_eks.jobs.objects.environment import environment
from trainium_eks.jobs.objects.identity import ROLE
from trainium_eks.jobs.objects.job import (
    DATA,
    PRECISIONS,
    CompileCache,
    Launcher,
    Program,
    TrainingJob,
)
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.objects.pod import pod_overlay
from trainium_eks.jobs.objects.resources import Resources
from trainium_eks.model import scraping
from trainium_eks.model.catalogue.backends import Backend, backend_of
from trainium_eks.model.catalogue.instances import (
    CATALOGUE,
    INSTANCE_TYPE_LABEL,
    NVIDIA_RESOURCE,
    UnknownInstanceTypeError,
)

# TorchX' macros (torchx.specs.api.macros), and marks that stand for them until all other `$` are escaped.
_NAME, _NODE, _RANK0 = "\x01", "\x02", "\x03"
_MACROS = {_NAME: "${app_id}", _NODE: "${replica_id}", _RANK0: "${rank0_env}"}


@dataclass(frozen=True)
class Application:
    """An application with its one role, as the component hands it to TorchX."""

    name: str
    role: str
    image: str
    script: str
    """For ``bash -c``, with TorchX's macros."""
    env: Mapping[str, str]
    replicas: int
    retries: int
    cpu: int
    memory_mb: int
    gpus: int
    """Number of GPUs, apart from the other devices, because TorchX requests them, too."""
    devices: Mapping[str, int]
    """The other devices: limits alone."""
    capabilities: Mapping[str, str]
    ports: Mapping[str, int]
    mounts: Mapping[str, str]
    pod_overlay: Mapping[str, Any]


def application(
    *,
    image: str,
    script: str,
    module: str,
    script_args: str,
    nnodes: int,
    nproc_per_node: int,
    name: str,
    instance_type: str,
    bf16: bool,
    precision: str,
    cacheset: str,
    cache_options: str,
    precompile: bool,
    backend: str,
    launcher: str,
    rendezvous: str,
    claim: str,
    data: str,
    max_retries: int,
    max_restarts: int,
    failed_starts: str,
    grace: int,
    metrics: int,
    cpu: int,
    memory_mb: int,
    env: Mapping[str, str],
) -> Application:
    """Return the application for the component's options, by their own names; the component documents them."""
    try:
        instance = CATALOGUE.find(instance_type)
    except UnknownInstanceTypeError as error:
        raise ValueError(f"--instance_type: {error}") from None
    if bool(script) == bool(module):
        raise ValueError("give either --script or --module")
    program = Program(script, module, tuple(shlex.split(script_args)))
    if fault := runnable.fault_of(program):
        raise ValueError(f"{program}: {'; '.join(fault)}")
    chosen = cast("Backend", backend) if backend else backend_of(instance)
    if precision and precision not in PRECISIONS.get(chosen, ()):
        raise ValueError(f"--precision {precision}: {chosen} has {', '.join(PRECISIONS.get(chosen, ()))}")
    allowed = resources.allowed_ranks(instance)
    if nproc_per_node and nproc_per_node not in allowed and backend != "cpu":
        shown = ", ".join(map(str, allowed)) if len(allowed) < 9 else f"1 to {allowed[-1]}"
        raise ValueError(f"--nproc_per_node {nproc_per_node}: a {instance_type} has {shown}")
    whole = resources.whole_node(instance)
    share = whole
    if cpu or memory_mb:
        devices = resources.local_share(instance).devices
        share = Resources(cpu or whole.cpu, memory_mb or whole.memory_mb, devices)
    job = TrainingJob(
        name=_NAME,
        app=name,
        program=program,
        image=image,
        instance=instance,
        resources=share,
        nodes=nnodes,
        ranks_per_node=nproc_per_node or allowed[-1],
        backend=chosen,
        kind="compile" if precompile else "train",
        launcher=cast("Launcher", launcher),
        rendezvous=rendezvous,
        precision=precision or ("bf16" if bf16 else "fp32"),
        cache=CompileCache(cacheset, json.loads(cache_options)) if cacheset else None,
        claim=claim,
        options=TrainOptions(
            data=tuple(path for path in data.split(",") if path),
            failed_starts=failed_starts,
            max_restarts=max_restarts,
        ),
        env=env,
        retries=max_retries,
        grace_seconds=grace,
        metrics_port=metrics,
    )
    return _application(job)


def run_command(job: TrainingJob, component: str) -> list[str]:
    """Return the words of the ``torchx run`` command for a job; TorchX makes its name unique by a suffix."""
    scheduler = {"queue": job.queue, "namespace": job.namespace, "service_account": job.service_account}
    scheduler |= {"priority_class": job.options.priority}
    settings = ",".join(f"{key}={value}" for key, value in scheduler.items() if value)
    # An empty workspace: otherwise TorchX looks for a Docker daemon to build an image with.
    words = ["torchx", "run", "-s", "kubernetes", "-cfg", settings, "--workspace", "", f"{component}:trainium_ddp"]
    for option, value in _options(job).items():
        words += [f"--{option}", value]
    return words


def _options(job: TrainingJob) -> dict[str, str]:
    """Return the component's options that differ from its defaults."""
    program, whole = job.program, resources.whole_node(job.instance)
    given = {
        "image": job.image,
        "script": program.script,
        "module": program.module,
        "script_args": shlex.join(program.arguments),
        "nnodes": str(job.nodes),
        "nproc_per_node": str(job.ranks_per_node),
        "name": job.app,
        "instance_type": job.instance.name,
        "bf16": str(job.precision == "bf16"),
        "precision": "" if job.precision in ("bf16", "fp32") else job.precision,
        "cacheset": job.cache.key if job.cache else "",
        "cache_options": json.dumps(dict(job.cache.options), sort_keys=True) if job.cache and job.cache.options else "",
        "precompile": "True" if job.kind == "compile" else "",
        "backend": "" if job.backend == backend_of(job.instance) else job.backend,
        "launcher": "" if job.launcher == "torchrun" else job.launcher,
        "rendezvous": "" if job.rendezvous == "c10d" else job.rendezvous,
        "data": ",".join(job.options.data),
        "max_retries": str(job.retries),
        "max_restarts": str(job.options.max_restarts) if job.options.max_restarts else "",
        "failed_starts": job.options.failed_starts if job.options.failed_starts != "3" else "",
        "grace": str(job.grace_seconds),
        "metrics": "" if job.metrics_port == scraping.PORT else str(job.metrics_port),
        "cpu": "" if job.resources == whole else str(job.resources.cpu),
        "memory_mb": "" if job.resources == whole else str(job.resources.memory_mb),
        "env": ",".join(f"{key}={value}" for key, value in job.env.items()),
    }
    return {name: value for name, value in given.items() if value} | {"claim": job.claim}


def _application(job: TrainingJob) -> Application:
    return Application(
        name=job.app,
        role=ROLE,
        image=job.image,
        script=_with_macros(shell(job, RankWords(_NODE, rank0_host(_RANK0)))),
        env={key: _with_macros(value) for key, value in environment(job).items()},
        replicas=job.nodes,
        retries=job.retries,
        cpu=job.resources.cpu,
        memory_mb=job.resources.memory_mb,
        gpus=job.resources.devices.get(NVIDIA_RESOURCE, 0),
        devices={name: count for name, count in job.resources.devices.items() if name != NVIDIA_RESOURCE},
        capabilities={INSTANCE_TYPE_LABEL: job.instance.name},
        ports={"c10d": PORT, **({scraping.PORT_NAME: job.metrics_port} if job.metrics_port else {})},
        mounts={job.claim: DATA} if job.claim else {},
        pod_overlay=pod_overlay(job),
    )


def _with_macros(text: str) -> str:
    """Return the text with each ``$`` of the shell written twice: TorchX substitutes by ``string.Template``."""
    text = text.replace("$", "$$")
    for mark, macro in _MACROS.items():
        text = text.replace(mark, macro)
    return text
