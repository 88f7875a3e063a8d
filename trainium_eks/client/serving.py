"""Services and predictions of trained models on EKS: the validated request, the service's objects, and why it does not
answer yet."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_eks.client import reading, train_facts
from trainium_eks.client.failure import CommandError, UsageError, as_typed
from trainium_eks.client.notices import say
from trainium_eks.client.session import Session
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.jobs.objects.identity import KIND_LABEL
from trainium_eks.jobs.objects.job import DATA, REFUSED
from trainium_eks.jobs.objects.team_pod import CPU_POOL, NAME_LABEL
from trainium_eks.jobs.serve import serving, serving_refusals
from trainium_eks.jobs.serve.engines import Engine
from trainium_eks.jobs.serve.serving import ModelService, ServingNodes
from trainium_eks.jobs.submit import cluster_facts, planning
from trainium_eks.jobs.watch.profiling import output_of
from trainium_eks.kube.api import ObjectReference
from trainium_eks.kube.cluster import name_of
from trainium_eks.local import access
from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.catalogue.versions import IMAGES
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.validation.problems import Problem, nearest

_KINDS = {serving.SERVE: ("apps", "deployments"), serving.PREDICT: ("batch", "jobs")}
"""API group and plural of the created object, by kind of request."""
_TRIES = 3
"""Starts of a container that fails for an unknown reason, after which the wait ends."""

Json = dict[str, Any]


@dataclass(frozen=True)
class ModelRequest:
    """What a service and a prediction are asked with."""

    model: str
    """A job's name, or a path on the volume."""
    name: str = ""
    group: str | None = None
    instance_type: str | None = None
    devices: int | None = None
    queue: str | None = None
    image: str | None = None
    engine: Engine = "auto"

    def refusal(self, kind: str, problems: Sequence[Problem]) -> CommandError:
        """Return the failure for a model with problems; see :data:`~.serving.SERVE` for the kinds."""
        done = "served" if kind == serving.SERVE else "used"
        return UsageError(f"{self.model or 'the model'} cannot be {done}", problems, spell=str)


def find(session: Session, wanted: ModelRequest, kind: str, more: Sequence[Problem] = ()) -> ModelService:
    """Return the validated model with its nodes, queue and image; ``more`` are other problems of the command."""
    namespace = session.namespace
    group, instance, problems = _nodes(session, wanted)
    devices = wanted.devices
    if devices is None:
        devices = instance.accelerators if instance is not None and namespace.whole_nodes else 1
    where = serving.place(group, instance, devices, is_local=session.is_local)
    model, model_problems = _model(session, wanted.model)
    suffix = secrets.token_hex(3) if kind == serving.PREDICT else ""
    name = wanted.name or serving.default_name(kind, model, suffix)
    queue = wanted.queue if wanted.queue is not None else namespace.queues[0]
    image, image_problems = _image(session, wanted, where)
    may_create = cluster_facts.may_create(session.api, namespace.name, *_KINDS[kind])
    refused = serving_refusals.problems(
        namespace,
        name,
        queue,
        where,
        instance,
        devices=wanted.devices,
        may_create=may_create,
        what=_KINDS[kind][1],
        holder=_holder(session, name) if kind == serving.SERVE and may_create else "",
    )
    problems += [*model_problems, *image_problems, *refused, *more]
    if problems:
        raise wanted.refusal(kind, problems)
    return ModelService(name, model, image, where, queue, engine=wanted.engine)


def _holder(session: Session, name: str) -> str:
    """Return the object that has a Service of a name, or will make one; empty without another than the model's."""
    found = cluster_facts.services(session.api, session.namespace.name).get(name, "")
    if found in ("", f"Deployment {name}"):
        return next((f"Job {name}" for each in reading.jobs(session) if each.name == name and each.ended is None), "")
    return found


def warn_of_no_nodes(session: Session, where: ServingNodes) -> None:
    """Warn of pods without nodes: nothing but a person scales a node group for them."""
    if where.group is not None and not cluster_facts.nodes_of(session.api, where.group):
        name = where.group.name
        say(as_typed(f"warning: {name} has no nodes, and its pods wait until it has: trn scale {name} 1"))


def apply(session: Session, served: ModelService) -> None:
    """Create the Deployment of a model and its Service, or change the Deployment."""
    api = session.api
    deployment, service = serving.objects(served, session.namespace)
    there = api.get(api.reference(deployment))
    if there is not None and not _is_ours(there):
        raise UsageError(f"a Deployment {served.name} is there, and not of trn serve: choose a --name")
    if there is None:
        made = api.create(deployment)
    else:
        # Settings of an earlier request that this one has not must go, too.
        spec = _without_leftovers(there["spec"], deployment["spec"])
        changes = {"metadata": {"annotations": deployment["metadata"]["annotations"]}, "spec": spec}
        made = batch_jobs.merge(api, deployment, changes)
    if api.get(api.reference(service)) is None:
        owner = batch_jobs.owner_references({**deployment, "metadata": made["metadata"]})
        api.create({**service, "metadata": {**service["metadata"], **owner}})


def _without_leftovers(there: Mapping[str, Any], wanted: Json) -> Json:
    """Return the spec as a merge patch that takes away another place's settings: nodes, queue and scheduler."""
    pod, wanted_pod = there["template"]["spec"], wanted["template"]["spec"]
    selector = dict.fromkeys(pod.get("nodeSelector") or {}) | wanted_pod["nodeSelector"]
    annotations = there["template"]["metadata"].get("annotations") or {}
    metadata = wanted["template"]["metadata"]
    metadata = {**metadata, "annotations": dict.fromkeys(annotations) | metadata.get("annotations", {})}
    changed = {**wanted_pod, "nodeSelector": selector, "schedulerName": wanted_pod.get("schedulerName")}
    return {**wanted, "template": {"metadata": metadata, "spec": changed}}


def stop(session: Session, name: str) -> None:
    """End a service. The Deployment owns the Service, so they are deleted together."""
    namespace, reference = session.namespace.name, _reference(session, name)
    deployment = session.api.get(reference)
    if deployment is None or not _is_ours(deployment):
        labels = f"{KIND_LABEL}={serving.SERVE}"
        there = session.api.list("apps/v1", "Deployment", namespace=namespace, labels=labels)
        meant = meaning(name, [name_of(each) for each in there])
        raise UsageError(f"nothing of the name {name!r} is served in {namespace}: {meant}")
    session.api.delete(reference, propagation="Background")


def meaning(name: str, names: Sequence[str]) -> str:
    """Return what may be meant by an unknown name."""
    near = nearest(name, names)
    return f"did you mean {near}?" if near else f"there are {', '.join(names)}" if names else "there is none"


def pods(session: Session, name: str) -> list[Json]:
    """Return the pods of a service."""
    labels = f"{NAME_LABEL}={name},{KIND_LABEL}={serving.SERVE}"
    return session.api.list("v1", "Pod", namespace=session.namespace.name, labels=labels)


def why_not_ready(session: Session, name: str) -> tuple[str, bool]:
    """Return the reason why a service does not answer with its newest model yet, empty when it does; and whether it
    never will."""
    deployment = session.api.get(_reference(session, name))
    if deployment is None:
        raise CommandError(f"{name} was ended")
    status, wanted = deployment.get("status") or {}, deployment["spec"]["replicas"]
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    is_seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    if is_seen and all(status.get(each, 0) == wanted for each in counts):
        return "", False
    pod = max(pods(session, name), key=lambda each: str(each["metadata"]["creationTimestamp"]), default=None)
    if pod is None:
        return "waiting for its pods", False
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        states = (each.get("state") or {}, each.get("lastState") or {})
        end = next((state["terminated"] for state in states if "terminated" in state), None)
        if end is not None:
            is_last = end.get("exitCode") == REFUSED or each.get("restartCount", 0) >= _TRIES
            return str(end.get("message") or f"its container ended with {end.get('exitCode')}").strip(), is_last
    return batch_jobs.why_waiting(pod) or "the model is being loaded", False


def _reference(session: Session, name: str) -> ObjectReference:
    return ObjectReference("apps/v1", "Deployment", session.namespace.name, name)


def _is_ours(deployment: Mapping[str, Any]) -> bool:
    return (deployment["metadata"].get("labels") or {}).get(KIND_LABEL) == serving.SERVE


def _image(session: Session, wanted: ModelRequest, where: ServingNodes) -> tuple[str, list[Problem]]:
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


def _nodes(session: Session, wanted: ModelRequest) -> tuple[NodeGroupOutput | None, InstanceType | None, list[Problem]]:
    """Return the requested node group and its instance type; None for the CPU pool."""
    if wanted.group in (None, CPU_POOL) and wanted.instance_type is None:
        return None, None, []
    found = planning.find_group(session.outputs, wanted.group, wanted.instance_type)
    if not isinstance(found, NodeGroupOutput):
        return None, None, list(found)
    return found, session.outputs.catalogue[found.instance_type], []


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
    namespace = session.namespace
    for name in ("config.json", "adapter_config.json"):
        config = access.find_file(paths, namespace.name, namespace.claim, f"{directory}/{name}")
        if config is not None and config.is_file():
            return []
    reason = f"there is no model at {DATA}/{directory}"
    return [Problem("MODEL", reason, "train one: trn train --example finetune")]
