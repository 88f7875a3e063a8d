"""``trn serve``: start, change and end a service that answers with a trained model."""

import time
from dataclasses import replace
from typing import Annotated

import typer

from trainium_eks.cli.shared import model_options, output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client import serving
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError, UsageError, as_typed
from trainium_eks.client.notices import notice, silent, unrepeated
from trainium_eks.client.sagemaker_serving import SageMakerModels
from trainium_eks.client.serving import ModelRequest
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.sagemaker import serving as requests
from trainium_eks.jobs.serve.engines import Engine
from trainium_eks.jobs.serve.serving import PORT, SERVE, ModelService, objects
from trainium_eks.kube.api import ApiError
from trainium_eks.kube.cluster import is_running, name_of

LOOK_SECONDS = 0.5

app = App()


@app.command(example="trn serve reviews --replicas 2")
@with_cluster_options
def serve(
    model: Annotated[str | None, typer.Argument(help=model_options.MODEL)] = None,
    on: model_options.On = "eks",
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, help="Number of pods, or of SageMaker's instances.")
    ] = 1,
    group: model_options.Group = None,
    instance_type: model_options.InstanceType = None,
    devices: model_options.Devices = None,
    queue: model_options.Queue = None,
    image: model_options.Image = None,
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="LitServe for a classifier; transformers (CPU, GPU) or vllm (GPU, Trn2 and later; its own image) for "
            "text by OpenAI's API; auto: the first or the second, by the model.",
        ),
    ] = "auto",
    name: Annotated[str, typer.Option("--name", help="Name of the service; default: serve-<job>.")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the model has answered a request.")] = True,
    stop: Annotated[str | None, typer.Option("--stop", "--delete", metavar="NAME", help="Delete this service.")] = None,
    dry_run: model_options.DryRun = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Serve a trained model over HTTP: a Deployment and a Service in your namespace, ready once it has answered.

    A classifier answers POST /predict, a model that generates text OpenAI's POST /v1/chat/completions. The same command
    again with another model changes the service without a gap. On SageMaker: an endpoint.

    Exit code: 0; 1 when the model does not answer; 2 for a request that cannot run.
    """
    if stop is not None:
        if model is not None:
            raise UsageError("either a model to serve, or --stop NAME")
        _stop(cluster, stop, is_endpoint=on == "sagemaker")
        return
    wanted = ModelRequest(model or "", name, group, instance_type, devices, queue, image, engine)
    work = _on_sagemaker if on == "sagemaker" else _on_eks
    work(cluster, wanted, replicas, wait=wait, dry_run=dry_run)


def _stop(cluster: ClusterOptions, name: str, *, is_endpoint: bool) -> None:
    if is_endpoint:
        models = SageMakerModels(cluster)
        name = models.endpoint(name).name
        models.serving.delete(name)
    else:
        with open_session(cluster) as session:
            serving.stop(session, name)
    output.answer(cluster, {"name": name, "state": "stopped"}, f"{name} is ended")


def _on_eks(cluster: ClusterOptions, wanted: ModelRequest, replicas: int, *, wait: bool, dry_run: bool) -> None:
    with open_session(cluster) as session:
        served = replace(serving.find(session, wanted, SERVE), replicas=replicas)
        if dry_run:
            listed = [*objects(served, session.namespace)]
            output.write_json({"apiVersion": "v1", "kind": "List", "items": listed})
            return
        serving.warn_of_no_nodes(session, served.place)
        try:
            serving.apply(session, served)
        except ApiError as error:
            raise CommandError(f"{served.name} is refused: {error}") from None
        if wait:
            _await(session, cluster, served.name)
        _tell(session, cluster, served, "ready" if wait else "submitted")


def _await(session: Session, cluster: ClusterOptions, name: str) -> None:
    tell = silent if cluster.as_json else unrepeated(notice)
    with output.still_running(f"{name} is still running; trn serve --stop {name} ends it"):
        while True:
            why, is_last = serving.why_not_ready(session, name)
            if is_last:
                from trainium_eks.cli.shared import examine

                last = f"\n{why}" if why else ""
                title = f"{name} does not answer; trn serve --stop {name} ends it{last}"
                raise examine.with_closing(CommandError(title), cluster, session.namespace.name, name)
            if not why:
                return
            tell(why)
            time.sleep(LOOK_SECONDS)


def _tell(session: Session, cluster: ClusterOptions, served: ModelService, state: str) -> None:
    namespace = session.namespace.name
    url = served.url(namespace)
    shown = {"name": served.name, "namespace": namespace, "state": state, "url": url, "model": served.model}
    document = {**shown, "image": served.image, "replicas": served.replicas, "port": PORT}
    lines = [f"{served.name} {'answers' if state == 'ready' else 'is being started'} in the namespace at {url}"]
    if session.is_local:
        # kubectl port-forward is refused there, and pods' addresses are not of this machine.
        running = (name_of(pod) for pod in serving.pods(session, served.name) if is_running(pod))
        before = f"trn local exec {next(running, 'POD')} --namespace {namespace} -- "
    else:
        lines.append(f"  from here: kubectl port-forward service/{served.name} {PORT}")
        before, url = "", f"http://127.0.0.1:{PORT}"
    if served.engine in ("auto", "classifier"):
        lines.append(f'  a classifier: {before}curl --json \'{{"texts": ["…"]}}\' {url}/predict')
    if served.engine != "classifier":
        said = f'{{"model": "{served.name}", "messages": [{{"role": "user", "content": "…"}}], "max_tokens": 50}}'
        lines.append(f"  a chat: {before}curl --json '{said}' {url}/v1/chat/completions")
    lines.append(f"  its end: trn serve --stop {served.name}")
    output.answer(cluster, document, as_typed("\n".join(lines)))


def _on_sagemaker(cluster: ClusterOptions, wanted: ModelRequest, replicas: int, *, wait: bool, dry_run: bool) -> None:
    """Make an endpoint, or let it answer with another model."""
    models = SageMakerModels(cluster)
    made, exists = models.planned(wanted, SERVE, instances=replicas)
    if dry_run:
        shown = {"model": requests.model_request(made), "configuration": requests.configuration_request(made)}
        output.write_json({**shown, "endpoint": requests.endpoint_request(made, exists=exists)})
        return
    models.serving.serve(made, exists=exists)
    end = f"trn serve --on sagemaker --stop {made.name}"
    if wait:
        with output.still_running(f"{made.name} is still running; {end} ends it"):
            models.await_ready(made.name)
    document = {"name": made.name, "namespace": made.namespace, "state": "ready" if wait else "submitted"}
    document |= {"model": made.data, "image": made.image, "instanceType": made.instance_type}
    is_ready = "answers" if wait else "is being started"
    text = (
        f"{made.name} {is_ready} on {made.instances} x {made.instance_type}, which are paid for until its end\n"
        f'  a classifier: trn predict {made.name} --on sagemaker --text "…"\n  its end: {end}'
    )
    output.answer(cluster, {**document, "instances": made.instances}, as_typed(text))
