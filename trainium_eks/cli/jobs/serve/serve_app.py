"""The commands ``trn serve`` and ``trn predict``, and their options."""

from typing import Annotated

import typer

from trainium_eks.cli.shared.command import JOBS, App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.jobs.objects.options import Service
from trainium_eks.jobs.serve.engines import Engine

app = App(panel=JOBS)

_MODEL = "A job of `trn train`, or a model's directory on the team's volume; on SageMaker, s3://…/model.tar.gz."
On = Annotated[
    Service, typer.Option("--on", metavar="eks|sagemaker", help="Service that runs the model; docs/sagemaker.md.")
]

Group = Annotated[str | None, typer.Option("--group", help="Node group with accelerators; default: the CPU pool.")]
InstanceType = Annotated[
    str | None, typer.Option("--instance-type", help="Or the group of this EC2 type; SageMaker's type.")
]
Devices = Annotated[
    int | None, typer.Option("--devices", min=1, help="Accelerators of a pod, with --group; default: 1.")
]
Image = Annotated[
    str | None, typer.Option("--image", help="With PyTorch and trainium_workloads; default: as of `trn train`.")
]
Engines = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="LitServe for a classifier; transformers (CPU, GPU) or vllm (GPU, Trn2 and later; its own image) for text "
        "by OpenAI's API; auto: the first or the second, by the model.",
    ),
]
Queue = Annotated[str | None, typer.Option("--queue", help="Of pods with accelerators; default: the namespace's.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the objects and make nothing.")]


@app.command(example="trn serve reviews --replicas 2")
@with_cluster_options
def serve(
    model: Annotated[str | None, typer.Argument(help=_MODEL)] = None,
    on: On = "eks",
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Pods, or instances, that answer.")] = 1,
    group: Group = None,
    instance_type: InstanceType = None,
    devices: Devices = None,
    queue: Queue = None,
    image: Image = None,
    engine: Engines = "auto",
    name: Annotated[str, typer.Option("--name", help="Of the service; default: serve-<job>.")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the model answers.")] = True,
    stop: Annotated[
        str | None, typer.Option("--stop", "--delete", metavar="NAME", help="End this service instead.")
    ] = None,
    dry_run: DryRun = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Let a trained model answer over HTTP: a Deployment and a Service in your namespace, ready once it has answered.

    A classifier answers POST /predict, a model that generates text OpenAI's POST /v1/chat/completions. The same command
    again with another model changes the service without a gap. On SageMaker: an endpoint.

    Exit code: 0; 1 when the model does not answer; 2 for a request that cannot run.
    """
    from trainium_eks.cli.jobs.serve import serve, serve_sagemaker
    from trainium_eks.cli.jobs.serve.serving import ServingOptions

    command = serve_sagemaker if on == "sagemaker" else serve
    if stop is not None:
        raise typer.Exit(command.stop(cluster, stop, is_also_asked=model is not None))
    wanted = ServingOptions(model or "", name, group, instance_type, devices, queue, image, engine)
    run = serve_sagemaker.serve if on == "sagemaker" else serve.run
    raise typer.Exit(run(cluster, wanted, replicas=replicas, wait=wait, dry_run=dry_run))


@app.command(example="trn predict reviews /data/reviews.jsonl --to /data/predictions.jsonl")
@with_cluster_options
def predict(
    model: Annotated[str, typer.Argument(help=_MODEL)],
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
        list[str] | None, typer.Option("--text", help="In place of INPUT: ask the endpoint MODEL on SageMaker.")
    ] = None,
    on: On = "eks",
    field: Annotated[str, typer.Option("--field", help="With the text; default: content, or text.")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Even if OUTPUT is there.")] = False,
    group: Group = None,
    instance_type: InstanceType = None,
    devices: Devices = None,
    queue: Queue = None,
    image: Image = None,
    name: Annotated[str, typer.Option("--name", help="Of the job; default: a new one.")] = "",
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait until it ends.")] = True,
    dry_run: DryRun = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Predict all texts of a file with a trained classifier: a Job that writes the whole output, or none. On SageMaker:
    batch transform, or with --text the answer of an endpoint.

    Exit code: the Job's: 0 when the predictions are there, 1 when not; 2 for a request that cannot run.
    """
    from trainium_eks.cli.jobs.serve import predict, serve_sagemaker
    from trainium_eks.cli.jobs.serve.serving import ServingOptions

    if text:
        if on != "sagemaker" or input_ or to:
            raise typer.BadParameter("--text asks an endpoint: with --on sagemaker, without INPUT and --to")
        raise typer.Exit(serve_sagemaker.ask(cluster, model, text))
    if not input_ or not to:
        raise typer.BadParameter("give INPUT and --to OUTPUT")
    wanted = ServingOptions(model, name, group, instance_type, devices, queue, image)
    files = predict.Files(input_, to, field, replace=replace)
    run = serve_sagemaker.predict if on == "sagemaker" else predict.run
    raise typer.Exit(run(cluster, wanted, files, follow=follow, dry_run=dry_run))
