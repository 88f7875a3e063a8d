"""``trn stage``: submit the Job that copies a data set, or find the running one, and follow it."""

import secrets
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, WRONG_USAGE, Failure
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.data import staging, tokens
from trainium_eks.jobs.data.presets import PRESETS
from trainium_eks.jobs.data.staging import StageRequest
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.jobs.objects.token_reference import DEFAULT_SECRET, missing_secret
from trainium_eks.kube.api import ApiError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.kube.pod_text import LINE_CHARACTERS, printable
from trainium_eks.model.validation.problems import Problem, nearest

SCHEMA_VERSION = 1
"""Version of the documents of ``--json``."""


@dataclass(frozen=True)
class StageOptions:
    """The options of one call."""

    cluster: ClusterOptions
    source: str
    to: str | None = None
    """None for a preset's own."""
    is_list: bool = False
    extract: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    replace: bool = False
    follow: bool = True
    token_secret: str = ""
    endpoint: str = ""
    workers: int | None = None
    image: str = ""
    dry_run: bool = False


def run(options: StageOptions) -> int:
    """Stage a data set; return the exit code."""
    with open_session(options.cluster) as session:
        request = _request(options, is_local=session.is_local)
        found = staging.problems(request, session.namespace, is_local=session.is_local)
        if not found:
            request, found = _with_token(request, session)
        if found:
            raise Failure(FAILED, f"{options.source} cannot be staged", found, spell=str)
        if options.dry_run:
            name = staging.job_name(request, secrets.token_hex(3))
            request = _with_image(request, session, make=False)
            listed = {"apiVersion": "v1", "kind": "List", "items": list(_objects(session, request, name))}
            write_json(listed)
            return 0
        name, is_new = _job(session, request)
        if not options.follow:
            return _submitted(options, session, name)
        return _follow(options, session, request, name, is_new=is_new)


def show_presets() -> int:
    """Print the presets; return the exit code."""
    from trainium_eks.cli.jobs.data.render_stage import presets_list

    write(presets_list())
    return 0


def _with_token(request: StageRequest, session: Session) -> tuple[StageRequest, list[Problem]]:
    """Return the request with the Secret of the Hub's token: the named Secret, or else the Secret of `trn secret` where
    that exists. A named Secret that does not exist is a problem."""
    name = request.token_secret.partition(":")[0] or DEFAULT_SECRET
    if not request.token_secret and not request.source.startswith("hf:"):
        return request, []
    if tokens.is_there(session.api, session.namespace.name, name):
        return replace(request, token_secret=request.token_secret or name), []
    return request, [missing_secret(name)] if request.token_secret else []


def _request(options: StageOptions, *, is_local: bool) -> StageRequest:
    preset = PRESETS.get(options.source)
    source = preset.source if preset else _as_url(options.source, is_local=is_local)
    to = options.to or (preset.to if preset else None)
    if to is None:
        raise Failure(WRONG_USAGE, "say where to: --to PATH, a directory on the team's volume, as in --to data/wiki")
    return StageRequest(
        source,
        # A training job's path is `/data/x`.
        to.removeprefix(f"{staging.DATA}/").rstrip("/"),
        is_list=options.is_list,
        extract=options.extract or bool(preset and preset.extract),
        include=options.include or (preset.include if preset else ()),
        exclude=options.exclude,
        replace=options.replace,
        workers=options.workers,
        endpoint=options.endpoint,
        token_secret=options.token_secret,
        image=options.image,
    )


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
    raise Failure(WRONG_USAGE, f"{source!r} is not {kinds}{meant}")


def _objects(session: Session, request: StageRequest, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from trainium_eks.local.images.images import workloads

    return staging.objects(
        request,
        session.namespace,
        name,
        region=session.outputs.region,
        code=staging.code_files(workloads()),
    )


def _with_image(request: StageRequest, session: Session, *, make: bool) -> StageRequest:
    """Return the request with its image: the named one; on the local cloud ``local/torch`` where it has the packages,
    else ``local/stage``. On AWS the public Python image, into which a pod installs 70 MB: a training image is 15 GB.

    Args:
        request: perhaps with an image.
        session: in which it is to run.
        make: whether ``local/stage`` is made where it is missing.
    """
    if request.image or not session.is_local:
        return request
    return replace(request, image=_local_image(make=make))


def _local_image(*, make: bool) -> str:
    from trainium_eks.local.images import images
    from trainium_eks.local.images.installing import known_recipe

    torch, recipe = images.find("torch"), known_recipe("stage")
    if torch and all(f"{package}==" in torch.requirements for package in ("boto3", "huggingface_hub")):
        return torch.reference
    found = images.find(f"{recipe.name}:{images.digest(recipe.requirements)}")
    if found is None and make:
        try:
            found = images.make(recipe, _say)
        except ClusterError as error:
            fix = "set PIP_INDEX_URL to an index that has them, or name an image of this machine with --image"
            raise Failure(FAILED, f"{error}\n{fix}") from None
    return found.reference if found else f"{images.PREFIX}{recipe.name}"


def _job(session: Session, request: StageRequest) -> tuple[str, bool]:
    """Return the Job that stages the request, and whether it is new."""
    labels = f"{staging.KIND_LABEL}={staging.KIND}"
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
        raise Failure(
            FAILED, f"{request.to} is being staged from {source} by the Job {name}: wait, or trn cancel {name}"
        )
    name = staging.job_name(request, secrets.token_hex(3))
    config_map, job = _objects(session, _with_image(request, session, make=True), name)
    try:
        batch_jobs.submit(session.api, job, (config_map,))
    except ApiError as error:
        raise Failure(FAILED, f"the Job is refused: {error}") from None
    return name, True


def _submitted(options: StageOptions, session: Session, name: str) -> int:
    if options.cluster.as_json:
        _write_json(session, name, {"state": "submitted"})
    else:
        write(f"Job {name} in {session.namespace.name}; the same command again follows it\n")
    return 0


def _follow(options: StageOptions, session: Session, request: StageRequest, name: str, *, is_new: bool) -> int:
    from trainium_eks.cli.jobs.data.render_stage import shown_progress

    with shown_progress(no_color=options.cluster.no_color) as shown:
        if not is_new:
            shown.say(f"The Job {name} stages it already")
        try:
            end = batch_jobs.follow(
                session.api,
                session.namespace.name,
                name,
                staging.CONTAINER,
                line=shown.line,
                waiting=shown.waiting,
            )
        except KeyboardInterrupt:
            shown.say(f"The Job {name} goes on; the same command follows it again, trn cancel {name} ends it")
            return INTERRUPTED
    last = shown.last
    message = str(last.get("message") or end.message)[:LINE_CHARACTERS]
    if options.cluster.as_json:
        state = str(last.get("stage")) if end.succeeded and last.get("stage") == "unchanged" else ""
        result = {"state": state or ("complete" if end.succeeded else "failed"), "message": message}
        _write_json(session, name, {**result, "bytes": shown.count("bytes"), "files": shown.count("files")})
    elif end.succeeded:
        write(f"{printable(message) or f'{staging.DATA}/{request.to} is complete'}\n")
    if not end.succeeded and not options.cluster.as_json:
        raise Failure(FAILED, f"{request.source} is not staged: {message}")
    return 0 if end.succeeded else FAILED


def _write_json(session: Session, name: str, result: dict[str, Any]) -> None:
    data = {"schemaVersion": SCHEMA_VERSION, "namespace": session.namespace.name, "job": name, **result}
    write_json(data)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
