"""``trn predict``: predict a file with a trained classifier, or ask an endpoint of SageMaker."""

import json
from typing import Annotated

import typer

from trainium_eks.cli.shared import model_options, output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client import sagemaker, serving
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, CommandError, as_typed
from trainium_eks.client.notices import Say, notice, silent, unrepeated
from trainium_eks.client.sagemaker import ManagedJob
from trainium_eks.client.sagemaker_serving import SageMakerModels
from trainium_eks.client.serving import ModelRequest
from trainium_eks.client.session import open_session
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.jobs.objects.job import DATA
from trainium_eks.jobs.sagemaker import serving as requests
from trainium_eks.jobs.serve import serving_refusals as refusals
from trainium_eks.jobs.serve.serving import CONTAINER, PREDICT, Batch
from trainium_eks.jobs.serve.serving import job as job_of
from trainium_eks.kube.api import ApiError
from trainium_eks.kube.pod_text import LINE_CHARACTERS, json_object, printable, whole
from trainium_eks.model.validation.problems import Problem

app = App()


@app.command(example="trn predict reviews /data/reviews.jsonl --to /data/predictions.jsonl")
@with_cluster_options
def predict(
    model: Annotated[str, typer.Argument(help=model_options.MODEL)],
    input_: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="File on the volume: .jsonl, .csv or .parquet; on SageMaker, s3://….jsonl."
        ),
    ] = "",
    to: Annotated[
        str, typer.Option("--to", metavar="OUTPUT", help="File on the volume: .jsonl or .csv; on SageMaker, s3://….")
    ] = "",
    text: Annotated[
        list[str] | None, typer.Option("--text", help="Text for the endpoint MODEL on SageMaker, in place of INPUT.")
    ] = None,
    on: model_options.On = "eks",
    field: Annotated[str, typer.Option("--field", help="Column or key with the text; default: content, or text.")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite OUTPUT.")] = False,
    group: model_options.Group = None,
    instance_type: model_options.InstanceType = None,
    devices: model_options.Devices = None,
    queue: model_options.Queue = None,
    image: model_options.Image = None,
    name: Annotated[str, typer.Option("--name", help="Name of the job; default: a new one.")] = "",
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait until the job ends.")] = True,
    dry_run: model_options.DryRun = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Predict all texts of a file with a trained classifier: a Job that writes the whole output, or none. On SageMaker:
    batch transform, or with --text the answer of an endpoint.

    Exit code: the Job's: 0 when the predictions are there, 1 when not; 2 for a request that cannot run.
    """
    if text:
        if on != "sagemaker" or input_ or to:
            raise typer.BadParameter("--text asks an endpoint: with --on sagemaker, without INPUT and --to")
        _ask(cluster, model, text)
        return
    if not input_ or not to:
        raise typer.BadParameter("give INPUT and --to OUTPUT")
    wanted = serving.ModelRequest(model, name, group, instance_type, devices, queue, image)
    if on == "sagemaker":
        _transform(cluster, wanted, input_, to, field, replace=replace, follow=follow, dry_run=dry_run)
        return
    wrong = refusals.path_problems("INPUT", input_, refusals.INPUTS)
    wrong += refusals.path_problems("--to", to, refusals.OUTPUTS)
    source, target = refusals.path_on_volume(input_) or "", refusals.path_on_volume(to) or ""
    with open_session(cluster) as session:
        found = serving.find(session, wanted, PREDICT, wrong)
        batch = Batch(
            found.name, found.model, source, target, found.image, found.place, found.queue, field, replace=replace
        )
        job, namespace = job_of(batch, session.namespace), session.namespace.name
        if dry_run:
            output.write_json(job)
            return
        serving.warn_of_no_nodes(session, found.place)
        try:
            batch_jobs.submit(session.api, job, ())
        except ApiError as error:
            raise CommandError(f"the Job is refused: {error}") from None
        document: dict[str, object] = {"namespace": namespace, "job": batch.name, "output": f"{DATA}/{target}"}
        follows = f"trn logs {batch.name} follows it"
        if not follow:
            said = as_typed(f"Job {batch.name} in {namespace}; {follows}")
            output.answer(cluster, {**document, "state": "submitted"}, said)
            return
        shown = _LogDisplay(silent if cluster.as_json else notice)
        with output.still_running(f"The Job {batch.name} is still running; {follows}"):
            end = batch_jobs.follow(
                session.api, namespace, batch.name, CONTAINER, line=shown.line, waiting=shown.waiting
            )
    message = "" if end.succeeded else shown.said or end.message
    if not end.succeeded and not cluster.as_json:
        raise CommandError(f"{DATA}/{source} is not predicted: {message}")
    document |= {"state": "complete" if end.succeeded else "failed", "message": message, "rows": shown.rows}
    output.answer(cluster, document, f"{DATA}/{target}: {shown.rows:,} predictions")
    raise typer.Exit(0 if end.succeeded else FAILED)


class _LogDisplay:
    """Display of the Job's log."""

    def __init__(self, tell: Say) -> None:
        self._tell = tell
        self.waiting = unrepeated(lambda why: tell(f"Waiting: {why}"))
        """Tells the reason of a wait, once."""
        self.rows = 0
        self.said = ""
        """Last line of the log without a count."""

    def line(self, text: str) -> None:
        found = json_object(text)
        if found is not None and "predict" in found:
            self.rows = whole(found.get("rows")) or 0
            self._tell(f"{self.rows:,} rows")
        elif text.strip():
            self.said = text.strip()[:LINE_CHARACTERS]
            self._tell(self.said)


def _ask(cluster: ClusterOptions, name: str, texts: list[str]) -> None:
    """Show an endpoint's predictions of texts, the namespace's or the stack's."""
    name, answer = SageMakerModels(cluster).ask(name, texts)
    rows = answer.get("predictions") if isinstance(answer, dict) else None
    if not isinstance(rows, list) and not cluster.as_json:
        raise CommandError(f"{name} is not a classifier: {printable(json.dumps(answer))[:200]}")
    lines = (
        f"{each.get('label')}  {each.get('score'):.3f}  {printable(text)}"
        for text, each in zip(texts, rows or (), strict=False)
    )
    output.answer(cluster, {"name": name, "answer": answer}, "" if cluster.as_json else "\n".join(lines))


def _transform(
    cluster: ClusterOptions,
    wanted: ModelRequest,
    source: str,
    target: str,
    field: str,
    *,
    replace: bool,
    follow: bool,
    dry_run: bool,
) -> None:
    """Transform a file of S3, or a prefix."""
    models = SageMakerModels(cluster)
    wrong = [*requests.file_problems(source, target, models.where)]
    wrong += [Problem("--replace", "batch transform replaces its output", "leave it out")] if replace else []
    made, _ = models.planned(wanted, PREDICT, wrong, field=field)
    name = made.version
    if dry_run:
        job = requests.transform_request(made, source, target)
        output.write_json({"model": requests.model_request(made), "job": job})
        return
    models.serving.predict(made, source, target)
    if follow:
        notice(f"{name} is under way: trn logs {name} -f, trn cancel {name}")
        with output.still_running(f"The job {name} is still running; trn logs {name} follows it"):
            transform = ManagedJob(models.jobs, name)
            transform.wait()
            ended = transform.state()
        models.serving.forget(name)
        if ended.state != "Completed":
            why = f"the job is {ended.state}{sagemaker.why(ended)}; trn logs {name} shows more"
            raise CommandError(f"{source} is not predicted, {why}")
    state = "complete" if follow else "submitted"
    said = f"{target}: the predictions" if follow else as_typed(f"Job {name}; trn logs {name} -f follows it")
    document = {"namespace": made.namespace, "job": name, "output": target, "state": state}
    output.answer(cluster, document, said)
