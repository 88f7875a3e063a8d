"""Copies of data sets to a team's volume: the request with what a preset and the stack say, and its Job."""

import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.notices import say
from trainium_eks.client.session import Session
from trainium_eks.jobs.data import staging, tokens
from trainium_eks.jobs.data.presets import PRESETS
from trainium_eks.jobs.data.staging import StageRequest
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.jobs.objects.identity import KIND_LABEL
from trainium_eks.jobs.objects.job import DATA
from trainium_eks.jobs.objects.token_reference import DEFAULT_SECRET, missing_secret
from trainium_eks.kube.api import ApiError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.job_access import images, known_recipe
from trainium_eks.model.validation.problems import Problem, nearest


def resolve_request(session: Session, asked: StageRequest) -> StageRequest:
    """Return the validated request: of a preset with its source and directory, and with the Secret of the Hub's
    token."""
    preset = PRESETS.get(asked.source)
    to = asked.to or (preset.to if preset else "")
    if not to:
        raise UsageError("say where to: --to PATH, a directory on the team's volume, as in --to data/wiki")
    request = replace(
        asked,
        source=preset.source if preset else _as_url(asked.source, is_local=session.is_local),
        # A training job's path is `/data/x`.
        to=to.removeprefix(f"{DATA}/").rstrip("/"),
        extract=asked.extract or bool(preset and preset.extract),
        include=asked.include or (preset.include if preset else ()),
    )
    found = staging.problems(request, session.namespace, is_local=session.is_local)
    if not found:
        request, found = _with_token(request, session)
    if found:
        raise CommandError(f"{asked.source} cannot be staged", found, spell=str)
    return request


def plan_objects(session: Session, request: StageRequest) -> list[dict[str, Any]]:
    """Return the objects that would copy it, and make nothing."""
    name = staging.job_name(request, secrets.token_hex(3))
    return [*_objects(session, _with_image(request, session, make=False), name)]


def _with_token(request: StageRequest, session: Session) -> tuple[StageRequest, list[Problem]]:
    """Return the request with the Secret of the Hub's token: the named Secret, or else the Secret of `trn secret` where
    that exists. A named Secret that does not exist is a problem."""
    name = request.token_secret.partition(":")[0] or DEFAULT_SECRET
    if not request.token_secret and not request.source.startswith("hf:"):
        return request, []
    if tokens.token_exists(session.api, session.namespace.name, name):
        return replace(request, token_secret=request.token_secret or name), []
    return request, [missing_secret(name)] if request.token_secret else []


def _as_url(source: str, *, is_local: bool) -> str:
    """Return a path of this machine as a URL; an unknown preset is refused here, where near names are known."""
    if "://" in source:
        return source
    path = Path(source).expanduser()
    if path.exists():
        return path.resolve().as_uri()
    near = nearest(source, PRESETS)
    meant = f"; did you mean {near}?" if near else "; trn stage --list shows the presets"
    kinds = "a preset, a URL or a path of this machine" if is_local else "a preset or a URL"
    raise UsageError(f"{source!r} is not {kinds}{meant}")


def _objects(session: Session, request: StageRequest, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    code = staging.code_files(images.workloads())
    return staging.objects(request, session.namespace, name, region=session.outputs.region, code=code)


def _with_image(request: StageRequest, session: Session, *, make: bool) -> StageRequest:
    """Return the request with its image: the named one; on the local cloud ``local/torch`` where it has the packages,
    else ``local/stage``, made where it is missing. On AWS the public Python image, into which a pod installs 70 MB: a
    training image is 15 GB."""
    if request.image or not session.is_local:
        return request
    return replace(request, image=_local_image(make=make))


def _local_image(*, make: bool) -> str:
    torch, recipe = images.find("torch"), known_recipe("stage")
    if torch and all(f"{package}==" in torch.requirements for package in ("boto3", "huggingface_hub")):
        return torch.reference
    found = images.find(f"{recipe.name}:{images.digest(recipe.requirements)}")
    if found is None and make:
        try:
            found = images.make(recipe, say)
        except ClusterError as error:
            fix = "set PIP_INDEX_URL to an index that has them, or name an image of this machine with --image"
            raise CommandError(f"{error}\n{fix}") from None
    return found.reference if found else f"{images.PREFIX}{recipe.name}"


def job_of(session: Session, request: StageRequest) -> tuple[str, bool]:
    """Return the Job that stages the request, and whether it is new."""
    labels = f"{KIND_LABEL}={staging.KIND}"
    for job in session.api.list("batch/v1", "Job", namespace=session.namespace.name, labels=labels):
        annotations, name = job["metadata"].get("annotations") or {}, job["metadata"]["name"]
        if annotations.get(staging.TO_ANNOTATION) != request.to or batch_jobs.end_of(job) is not None:
            continue
        if batch_jobs.is_left_over(job, time.time()):
            session.api.delete(session.api.reference(job), propagation="Background")
            continue
        if annotations.get(staging.REQUEST_ANNOTATION) == request.digest:
            return name, False
        source = annotations.get(staging.SOURCE_ANNOTATION)
        raise CommandError(f"{request.to} is being staged from {source} by the Job {name}: wait, or trn cancel {name}")
    name = staging.job_name(request, secrets.token_hex(3))
    config_map, job = _objects(session, _with_image(request, session, make=True), name)
    try:
        batch_jobs.submit(session.api, job, (config_map,))
    except ApiError as error:
        raise CommandError(f"the Job is refused: {error}") from None
    return name, True
