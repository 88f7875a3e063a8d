"""Common part of ``trn serve`` and ``trn predict``: the model, and the nodes that can run it."""

import secrets
import sys
from dataclasses import dataclass

from trainium_eks.client import reading, train_facts
from trainium_eks.client.failure import WRONG_USAGE, Failure, as_typed
from trainium_eks.client.session import Session
from trainium_eks.jobs.data.staging import CPU_POOL, DATA
from trainium_eks.jobs.serve import serving, serving_refusals
from trainium_eks.jobs.serve.engines import Engine
from trainium_eks.jobs.serve.serving import ServingNodes
from trainium_eks.jobs.submit import cluster_facts, planning
from trainium_eks.jobs.watch.profiling import output_of
from trainium_eks.local.runtime import beneath
from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.catalogue.versions import IMAGES
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.validation.problems import Problem, nearest

_KINDS = {serving.SERVE: ("apps", "deployments"), serving.PREDICT: ("batch", "jobs")}
"""API group and plural of the created object, by kind of request."""


@dataclass(frozen=True)
class ServingOptions:
    """Common options of both commands."""

    model: str
    """A job's name, or a path on the volume."""
    name: str = ""
    group: str | None = None
    instance_type: str | None = None
    devices: int | None = None
    queue: str | None = None
    image: str | None = None
    engine: Engine = "auto"


@dataclass(frozen=True)
class Found:
    """A validated request."""

    name: str
    model: str
    """Directory on the volume, relative to its root."""
    place: ServingNodes
    queue: str
    image: str


def find(session: Session, wanted: ServingOptions, kind: str, more: tuple[Problem, ...] = ()) -> Found:
    """Return the validated model, nodes, queue and image.

    Args:
        session: of the researcher.
        wanted: by the command.
        kind: :data:`~.serving.SERVE` or :data:`~.serving.PREDICT`.
        more: other problems of the command.

    Raises:
        Failure: with all problems.
        ClusterError: the cluster does not answer.
    """
    namespace = session.namespace
    group, instance, problems = _nodes(session, wanted)
    devices = 1 if wanted.devices is None else wanted.devices
    where = serving.place(group, instance, devices, is_local=session.is_local)
    model, model_problems = _model(session, wanted.model)
    suffix = secrets.token_hex(3) if kind == serving.PREDICT else ""
    name = wanted.name or serving.default_name(kind, model, suffix)
    queue = wanted.queue if wanted.queue is not None else namespace.queues[0]
    image, image_problems = _image(session, wanted, where)
    problems += [*model_problems, *image_problems]
    may_create = cluster_facts.may_create(session.api, namespace.name, *_KINDS[kind])
    problems += serving_refusals.problems(
        namespace,
        name,
        queue,
        where,
        instance,
        devices=wanted.devices,
        may_create=may_create,
        what=_KINDS[kind][1],
    )
    problems += more
    if problems:
        done = "served" if kind == serving.SERVE else "used"
        raise Failure(WRONG_USAGE, f"{wanted.model or 'the model'} cannot be {done}", problems, spell=str)
    return Found(name, model, where, queue, image)


def _image(session: Session, wanted: ServingOptions, where: ServingNodes) -> tuple[str, list[Problem]]:
    """Return the image for the engine, and the problems of both."""
    found = serving_refusals.engine_problems(wanted.engine, where, has_image=wanted.image is not None)
    if found or (wanted.engine == "vllm" and wanted.image is None):
        return IMAGES["vllm"], found
    image, missing, has_torch = train_facts.image_of(wanted.image, session)
    if missing is not None:
        return image, [missing]
    if not has_torch:
        fix = "make one: trn local images make torch"
        return image, [Problem("--image", "a model needs an image with PyTorch", fix, value=image)]
    return image, []


def warn_of_no_nodes(session: Session, where: ServingNodes) -> None:
    """Warn on stderr of pods without nodes: nothing but a person scales a node group for them."""
    if where.group is None or cluster_facts.nodes_of(session.api, where.group):
        return
    name = where.group.name
    sys.stderr.write(as_typed(f"warning: {name} has no nodes, and its pods wait until it has: trn scale {name} 1\n"))


def _nodes(
    session: Session, wanted: ServingOptions
) -> tuple[NodeGroupOutput | None, InstanceType | None, list[Problem]]:
    """Return the requested node group and its instance type; None for the CPU pool."""
    if wanted.group in (None, CPU_POOL) and wanted.instance_type is None:
        return None, None, []
    found = planning.find_group(session.outputs, wanted.group, wanted.instance_type)
    if not isinstance(found, NodeGroupOutput):
        return None, None, list(found)
    return found, planning.catalogue(session.outputs)[found.instance_type], []


def _model(session: Session, model: str) -> tuple[str, list[Problem]]:
    """Return the model's directory, relative to the volume's root, and its problems."""
    if not model:
        return "", [
            Problem("MODEL", "it is required and missing", "give a job's name, or a model's directory on the volume")
        ]
    if serving_refusals.is_path(model):
        found = serving_refusals.path_problems("MODEL", model)
        directory = serving_refusals.model_of(model, "")
    else:
        found = []
        jobs = reading.jobs(session)
        job = next((each for each in jobs if each.name == model), None)
        directory = serving_refusals.model_of(model, output_of(job.source) if job else "")
        if job is not None and job.ended is None:
            fix = f"wait for its end: trn status {model}"
            found.append(Problem("MODEL", f"the job {model} has not ended, and writes its model at its end", fix))
        if job is None and not session.is_local:
            found += _unknown([each.name for each in jobs], model)
    return directory, found or _missing(session, directory)


def _unknown(names: list[str], model: str) -> list[Problem]:
    """Return a problem for a misspelt job; none for other names, because a removed job may have left its model."""
    near = nearest(model, names)
    if near is None:
        return []
    fix = f"did you mean {near}? A job that was removed left its model at {DATA}/output/{model}/model: give that path"
    return [Problem("MODEL", f"there is no job {model!r}", fix)]


def _missing(session: Session, directory: str) -> list[Problem]:
    """Return a problem for a missing model; none on AWS, where the volume cannot be read from here."""
    paths = session.source.paths
    if paths is None or not session.namespace.claim:
        return []
    claim = paths.claims / session.namespace.name / session.namespace.claim
    for name in ("config.json", "adapter_config.json"):
        config = beneath.real_path(claim, f"{directory}/{name}")
        if config is not None and config.is_file():
            return []
    reason = f"there is no model at {DATA}/{directory}"
    return [Problem("MODEL", reason, "train one: trn train --example finetune")]
