"""``trn serve`` and ``trn predict`` with ``--on sagemaker``: endpoints, their answers, and batch transform.

They need the stack's outputs and rights of AWS, and no cluster.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainium_eks.cli.jobs.serve.predict import Files
from trainium_eks.cli.jobs.serve.serve import SCHEMA_VERSION
from trainium_eks.cli.jobs.serve.serving import ServingOptions
from trainium_eks.cli.jobs.watch import sagemaker_watch
from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.client import train_facts
from trainium_eks.client.cluster_access import find_stack
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, WRONG_USAGE, Failure, as_typed
from trainium_eks.client.notices import notice
from trainium_eks.client.session import find_namespace
from trainium_eks.jobs.sagemaker import serving as requests
from trainium_eks.jobs.sagemaker.service import ENDPOINT, SageMakerJobs, SageMakerWork
from trainium_eks.jobs.sagemaker.serving import SageMakerServing, ServedModel
from trainium_eks.jobs.serve import serving
from trainium_eks.jobs.submit import planning
from trainium_eks.kube.pod_text import printable
from trainium_eks.model.outputs import NamespaceOutput, StackOutputs
from trainium_eks.model.validation.problems import Problem, nearest

_ONLY_ON_EKS = {"group": "--group", "devices": "--devices", "queue": "--queue"}
"""Fields of the options that mean nothing to SageMaker."""


class Place:
    """The stack and the namespace of a command.

    Raises:
        Failure: the stack is a local cloud, or has no SageMaker.
    """

    def __init__(self, cluster: ClusterOptions) -> None:
        source = find_stack(cluster.stack, cluster.outputs, cluster.directory)
        if source.paths is not None:
            raise Failure(WRONG_USAGE, "the local cloud has no SageMaker; --stack names a stack on AWS")
        self.cluster = cluster
        self.outputs: StackOutputs = source.outputs
        self.namespace: NamespaceOutput = find_namespace(source.outputs, cluster.namespace, cluster.outputs)
        where = source.outputs.sage_maker
        if where is None or not where.serving_types:
            found = requests.admitted(where, "", planning.catalogue(source.outputs), batch=False)
            raise Failure(WRONG_USAGE, "SageMaker does not serve here", found, spell=str)  # type: ignore[arg-type]
        self.where = where
        self.jobs = SageMakerJobs(source.outputs.region, where, self.namespace.name)
        self.serving = SageMakerServing(source.outputs.region, where)

    def full(self, name: str) -> str:
        """Return the name of an endpoint, which begins with the namespace's."""
        before = f"{self.namespace.name}-"
        return name if name.startswith(before) else f"{before}{name}"

    def endpoint(self, name: str) -> SageMakerWork:
        """Return an endpoint of the namespace.

        Raises:
            Failure: there is none of the name.
            ClusterError: AWS does not answer.
        """
        found = self.jobs.find(self.full(name))
        if found is not None and found.kind == ENDPOINT:
            return found
        names = [each.name for each in self.jobs.endpoints()]
        near = nearest(self.full(name), names)
        meant = f"did you mean {near}?" if near else f"there are {', '.join(names)}" if names else "there is none"
        raise Failure(WRONG_USAGE, f"no endpoint of the name {name!r} in {self.namespace.name}: {meant}")


def serve(cluster: ClusterOptions, wanted: ServingOptions, *, replicas: int, wait: bool, dry_run: bool) -> int:
    """Make an endpoint, or let it answer with another model; return the exit code."""
    place = Place(cluster)
    made = replace(_planned(place, wanted, serving.SERVE), instances=replicas)
    there = place.jobs.find(made.name)
    exists = there is not None and there.kind == ENDPOINT
    if there is not None and there.state == "Failed":
        fix = f"trn serve --on sagemaker --stop {made.name} removes it"
        raise Failure(WRONG_USAGE, f"the endpoint {made.name} has failed, and takes no other model: {fix}")
    if dry_run:
        shown = {"model": requests.model_request(made), "configuration": requests.configuration_request(made)}
        return _show({**shown, "endpoint": requests.endpoint_request(made, exists=exists)})
    place.serving.serve(made, exists=exists)
    if not wait:
        return _tell(place, made, "submitted")
    try:
        while True:
            found = place.endpoint(made.name)
            if found.state == "Failed":
                why = f": {printable(found.reason)}" if found.reason else ""
                log = f"trn logs {made.name} shows its log, trn serve --on sagemaker --stop {made.name} ends it"
                raise Failure(FAILED, f"{made.name} does not answer{why}; {log}")
            if found.status == "InService":
                break
            time.sleep(sagemaker_watch.LOOK_SECONDS)
    except KeyboardInterrupt:
        sys.stderr.write(as_typed(f"\n{made.name} goes on; trn serve --on sagemaker --stop {made.name} ends it\n"))
        return INTERRUPTED
    if found.reason:  # the update was rolled back
        raise Failure(FAILED, f"{made.name} answers with its earlier model: {printable(found.reason)}")
    place.serving.tidy(made.name)
    return _tell(place, made, "ready")


def stop(cluster: ClusterOptions, name: str, *, is_also_asked: bool) -> int:
    """Delete an endpoint with its models; return the exit code."""
    if is_also_asked:
        raise Failure(WRONG_USAGE, "either a model to serve, or --stop NAME")
    place = Place(cluster)
    found = place.endpoint(name)
    place.serving.delete(found.name)
    if cluster.as_json:
        write_json({"schemaVersion": SCHEMA_VERSION, "name": found.name, "state": "stopped"})
    else:
        write(f"{found.name} is ended\n")
    return 0


def ask(cluster: ClusterOptions, name: str, texts: Sequence[str]) -> int:
    """Show an endpoint's predictions of texts, the namespace's or the stack's; return the exit code."""
    place = Place(cluster)
    found = place.jobs.find(place.full(name))
    name = found.name if found is not None and found.kind == ENDPOINT else name
    answer = place.serving.ask(name, texts)
    if cluster.as_json:
        write_json({"schemaVersion": SCHEMA_VERSION, "name": name, "answer": answer})
        return 0
    rows = answer.get("predictions") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise Failure(FAILED, f"{name} is no classifier: {printable(json.dumps(answer))[:200]}")
    for text, each in zip(texts, rows, strict=False):
        write(f"{each.get('label')}  {each.get('score'):.3f}  {printable(text)}\n")
    return 0


def predict(cluster: ClusterOptions, wanted: ServingOptions, files: Files, *, follow: bool, dry_run: bool) -> int:
    """Transform a file of S3, or a prefix; return the exit code."""
    place = Place(cluster)
    found = requests.file_problems(files.input, files.output, place.where)
    replaced = [Problem("--replace", "batch transform replaces its output", "leave it out")] if files.replace else []
    made = _planned(place, wanted, serving.PREDICT, [*found, *replaced], files.field)
    if dry_run:
        job = requests.transform_request(made, files.input, files.output)
        return _show({"model": requests.model_request(made), "job": job})
    place.serving.predict(made, files.input, files.output)
    if not follow:
        return _predicted(cluster, made, files, "submitted")
    notice(f"{made.version} is under way: trn logs {made.version} -f, trn cancel {made.version}")
    try:
        ended = sagemaker_watch.wait(place.jobs, made.version)
    except KeyboardInterrupt:
        sys.stderr.write(as_typed(f"\nThe job {made.version} goes on; trn logs {made.version} follows it\n"))
        return INTERRUPTED
    place.serving.forget(made.version)
    if ended.state != "Completed":
        why = f": {printable(ended.reason)}" if ended.reason else ""
        title = f"{files.input} is not predicted, the job is {ended.state}{why}; trn logs {made.version} shows more"
        raise Failure(FAILED, title)
    return _predicted(cluster, made, files, "complete")


def _planned(
    place: Place, wanted: ServingOptions, kind: str, more: Sequence[Problem] = (), field: str = ""
) -> ServedModel:
    """Return the validated request.

    Raises:
        Failure: with all problems.
        ClusterError: AWS does not answer.
    """
    found = [
        Problem(option, "it is for models on EKS", "leave it out, or take --on eks")
        for name, option in _ONLY_ON_EKS.items()
        if getattr(wanted, name) is not None
    ]
    catalogue = planning.catalogue(place.outputs)
    instance = requests.admitted(place.where, wanted.instance_type or "", catalogue, batch=kind == serving.PREDICT)
    image, no_image, _ = train_facts.registry_image(wanted.image, place.outputs)
    data, missing = _model(place, wanted.model)
    found += [each for each in (no_image, missing) if each is not None] + [*more]
    words = wanted.model.removeprefix(f"{place.namespace.name}-") if "/" not in wanted.model else ""
    made = ServedModel(
        name=place.full(wanted.name or serving.default_name(kind, words)),
        unique=train_facts.unique(),
        namespace=place.namespace.name,
        where=place.where,
        data=data,
        image=image,
        instance=next(iter(catalogue.values())) if isinstance(instance, list) else instance,
        engine=wanted.engine,
        field=field,
    )
    found += [*(instance if isinstance(instance, list) else ()), *requests.problems(made)]
    if found:
        done = "served" if kind == serving.SERVE else "used"
        raise Failure(WRONG_USAGE, f"{wanted.model or 'the model'} cannot be {done}", found, spell=str)
    return made


def _model(place: Place, model: str) -> tuple[str, Problem | None]:
    """Return the S3 URI of a model, and its problem."""
    if model.startswith("s3://") and model.endswith(".tar.gz"):
        return model, None
    if not model or "/" in model:
        fix = "give a SageMaker training job's name, or s3://…/model.tar.gz"
        return "", Problem("MODEL", "SageMaker reads no model of the team's volume", fix, value=model or None)
    job = place.jobs.find(model)
    if job is None or not job.model:
        names = [each.name for each in place.jobs.jobs(None)]
        fix = "trn jobs --all lists them; a job on EKS leaves its model on the volume, so leave --on sagemaker out"
        return "", Problem(
            "MODEL", "SageMaker has no training job of the name", fix, value=model, good=nearest(model, names)
        )
    if job.state != "Completed":
        reason = f"the job is {job.state}, and a job writes its model when it is Completed"
        return "", Problem("MODEL", reason, f"wait for its end: trn logs {model} -f", value=model)
    return job.model, None


def _show(document: dict[str, Any]) -> int:
    write_json(document)
    return 0


def _tell(place: Place, made: ServedModel, state: str) -> int:
    if place.cluster.as_json:
        shown = {"name": made.name, "namespace": made.namespace, "state": state, "model": made.data}
        more = {"image": made.image, "instanceType": made.instance_type, "instances": made.instances}
        write_json({"schemaVersion": SCHEMA_VERSION, **shown, **more})
        return 0
    is_ready = "answers" if state == "ready" else "is being started"
    lines = [
        f"{made.name} {is_ready} on {made.instances} x {made.instance_type}, which are paid for until its end",
        f'  a classifier: trn predict {made.name} --on sagemaker --text "…"',
        f"  its end: trn serve --on sagemaker --stop {made.name}",
    ]
    write(as_typed("\n".join(lines)) + "\n")
    return 0


def _predicted(cluster: ClusterOptions, made: ServedModel, files: Files, state: str) -> int:
    if cluster.as_json:
        where = {"namespace": made.namespace, "job": made.version, "output": files.output}
        write_json({"schemaVersion": SCHEMA_VERSION, **where, "state": state})
    elif state == "complete":
        write(f"{files.output}: the predictions\n")
    else:
        write(as_typed(f"Job {made.version}; trn logs {made.version} -f follows it\n"))
    return 0
