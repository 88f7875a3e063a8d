"""Problems of a request to serve a model or to predict a file, found before any object is created."""

import posixpath
import re
from collections.abc import Iterator

from trainium_eks.jobs.objects.job import DATA
from trainium_eks.jobs.serve.engines import Engine
from trainium_eks.jobs.serve.serving import MODEL, ServingNodes
from trainium_eks.jobs.submit.refusals import NAME, NAME_FORM
from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.outputs import NamespaceOutput
from trainium_eks.model.validation.problems import Problem, nearest

LONGEST_NAME = 45
INPUTS, OUTPUTS = (".jsonl", ".csv", ".parquet"), (".jsonl", ".csv")
"""Endings of file names (``trainium_workloads.serving``)."""


def path_on_volume(text: str) -> str | None:
    """Return a path as people give it (``/data/x`` or ``x``), relative to the volume's root; None for one outside."""
    inside = posixpath.normpath(text.removeprefix(f"{DATA}/") if text.startswith(f"{DATA}/") else text)
    return None if inside.startswith(("/", "..")) or inside == "." else inside


def is_path(model: str) -> bool:
    """Return whether MODEL is a path, and not a job's name."""
    return "/" in model


def path_problems(option: str, text: str, endings: tuple[str, ...] = ()) -> list[Problem]:
    """Return the problems of a path on the volume."""
    if path_on_volume(text) is None:
        reason = f"it is not on the team's volume, which is {DATA} in its pods"
        return [Problem(option, reason, value=text, good=f"{DATA}{posixpath.normpath('/' + text)}")]
    if endings and not text.endswith(endings):
        allowed = tuple(f"….{each.removeprefix('.')}" for each in endings)
        return [Problem(option, "the name does not say which format it is", value=text, allowed=allowed)]
    return []


def problems(
    namespace: NamespaceOutput,
    name: str,
    queue: str,
    where: ServingNodes,
    instance: InstanceType | None,
    *,
    devices: int | None,
    may_create: bool,
    what: str,
    holder: str = "",
) -> Iterator[Problem]:
    """Yield the problems that any use of a model can have. ``holder`` is another object that has or makes a Service of
    the name, ``Job bert``."""
    if not may_create:
        reason = f"you may not create {what} in the namespace {namespace.name}"
        fix = "ask an administrator: the stack gives this right since it can serve models (pulumi up), to `principals`"
        yield Problem("", reason, fix)
    if not namespace.claim:
        reason = f"the namespace {namespace.name} has no shared volume with models"
        yield Problem("MODEL", reason, "give the stack a `fileSystem`")
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        good = re.sub(r"[^a-z0-9-]+", "-", name.lower())[:LONGEST_NAME].strip("-")
        yield Problem("--name", NAME_FORM.format(LONGEST_NAME), value=name, good=good or "serve-model")
    if holder:
        reason = f"another object ({holder}) has a Service of this name"
        yield Problem("--name", reason, value=name, good=f"serve-{name}"[:LONGEST_NAME])
    if queue not in namespace.queues:
        reason = f"it is not one of the queues of {namespace.name}"
        near = nearest(queue, namespace.queues)
        yield Problem("--queue", reason, value=queue, allowed=namespace.queues, good=near)
    yield from _device_problems(where, instance, devices, is_whole=namespace.whole_nodes)


def _device_problems(
    where: ServingNodes, instance: InstanceType | None, devices: int | None, *, is_whole: bool
) -> list[Problem]:
    if devices is None:
        return []
    if instance is None or not instance.accelerators:
        return [Problem("--devices", "the CPU pool has none", "give --group as well, or leave it out", value=devices)]
    if not 1 <= devices <= instance.accelerators:
        reason = f"a node of {where.group.name if where.group else ''} has {instance.accelerators}"
        return [Problem("--devices", reason, value=devices, good=min(max(devices, 1), instance.accelerators))]
    if is_whole and devices < instance.accelerators:
        reason = "pods of this namespace take all devices of their nodes, which other teams use, too"
        fix = "or choose a --group of smaller nodes; an administrator can set `partialNodes` of the namespace"
        return [Problem("--devices", reason, fix, value=devices, good=instance.accelerators)]
    return []


def engine_problems(engine: Engine, where: ServingNodes, *, has_image: bool) -> list[Problem]:
    """Return the problems of an engine on its nodes."""
    backend = where.backend
    reason, fix = "", ""
    if engine == "vllm":
        if where.is_local:
            reason, fix = "the local cloud has no vLLM", "give --engine transformers, which has the same API"
        elif backend == "xla":
            reason = "there is no vLLM for Inferentia2 and Trn1"
            fix = "give a --group of GPUs, of Trn2 or later, or --engine transformers on the CPU pool"
        elif backend == "neuron" and not has_image:
            reason, fix = (
                "no public image has vLLM for Neuron",
                "build one from AWS' vLLM image and name it with --image",
            )
        elif backend == "cpu" and not has_image:
            reason = "vLLM's public image needs GPUs"
            fix = "give a --group of GPUs, --engine transformers, or an --image with vLLM for CPUs"
    elif engine == "transformers" and backend in ("xla", "neuron"):
        reason = "transformers serve computes on CPUs and GPUs"
        fix = "leave --group out, or give --engine vllm (Trn2 and later)"
    return [Problem("--engine", reason, fix, value=engine)] if reason else []


def model_of(model: str, output: str) -> str:
    """Return the directory on the volume of a job's model. The model is a job's name or a path; the job's output is
    empty if unknown."""
    if is_path(model):
        return path_on_volume(model) or model
    written = output.removeprefix(f"{DATA}/") if output else f"output/{model}"
    return f"{written}/{MODEL}"
