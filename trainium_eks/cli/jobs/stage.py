"""``trn stage``: submit the Job that copies a data set, or find the running one, and follow it."""

from typing import Annotated

import typer

from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.progress import shown_progress
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client import staging
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, CommandError
from trainium_eks.client.session import open_session
from trainium_eks.jobs.data.presets import PRESETS
from trainium_eks.jobs.data.staging import CONTAINER, StageRequest
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.jobs.objects.job import DATA
from trainium_eks.kube.pod_text import LINE_CHARACTERS, printable

app = App()


def _show_presets(asked: bool) -> None:
    if asked:
        for name, preset in PRESETS.items():
            size = f"; {preset.size}" if preset.size else ""
            output.write(f"{name}: {preset.about}{size}\n  {preset.source} -> {preset.to}\n")
        raise typer.Exit


@app.command(example="trn stage s3://my-data/books --to books")
@with_cluster_options
def stage(
    source: Annotated[
        str,
        typer.Argument(help="A preset's name, s3://…, https://…, hf://datasets/ORG/NAME@REV; local cloud: a path."),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="PATH", help="Directory on the team's volume; presets have their own.")
    ] = "",
    presets: Annotated[
        bool,
        typer.Option("--list", help="Show the presets and exit.", callback=_show_presets, is_eager=True),
    ] = False,
    extract: Annotated[
        bool, typer.Option("--extract", help="Unpack archives (tar, zip) and do not keep them.")
    ] = False,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="PATTERN", help="Copy only files that match PATTERN ('*.parquet')."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="Skip files that match PATTERN.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Copy again and delete the files staged earlier.")] = False,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Show the progress until the copy ends.")] = True,
    token_secret: Annotated[
        str,
        typer.Option(
            "--hf-secret",
            metavar="NAME[:KEY]",
            help="Secret with a token of the Hugging Face Hub; default: hugging-face, if it is there (trn secret).",
        ),
    ] = "",
    endpoint: Annotated[
        str, typer.Option("--endpoint", metavar="URL", help="An S3-compatible store, or a mirror of the Hub.")
    ] = "",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="Parallel downloads; default: 16.")
    ] = None,
    image: Annotated[
        str, typer.Option("--image", help="Image with boto3 and huggingface_hub, for clusters without egress.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the objects and submit nothing.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Copy a data set to the team's shared volume: a Job on the CPU pool, verified, whole or not at all.

    A killed or interrupted copy continues where it stopped; a repeated one finds all data there.

    Exit code: the Job's: 0 when the data is there, 1 when not; 2 for wrong usage.
    """
    del presets  # its callback has acted
    asked = StageRequest(
        source,
        to,
        extract=extract,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        replace=replace,
        workers=workers,
        endpoint=endpoint,
        token_secret=token_secret,
        image=image,
    )
    with open_session(cluster) as session:
        request = staging.resolve_request(session, asked)
        if dry_run:
            output.write_json({"apiVersion": "v1", "kind": "List", "items": staging.plan_objects(session, request)})
            return
        namespace = session.namespace.name
        name, is_new = staging.job_of(session, request)
        document: dict[str, object] = {"namespace": namespace, "job": name}
        if not follow:
            said = f"Job {name} in {namespace}; the same command again follows it"
            output.answer(cluster, {**document, "state": "submitted"}, said)
            return
        with shown_progress(no_color=cluster.no_color) as shown:
            if not is_new:
                shown.say(f"The Job {name} stages it already")
            try:
                end = batch_jobs.follow(session.api, namespace, name, CONTAINER, line=shown.line, waiting=shown.waiting)
            except KeyboardInterrupt:
                shown.say(f"The Job {name} is still running: the same command follows it, trn cancel {name} ends it")
                raise typer.Exit(INTERRUPTED) from None
    message = str(shown.last.get("message") or end.message)[:LINE_CHARACTERS]
    if not end.succeeded and not cluster.as_json:
        raise CommandError(f"{request.source} is not staged: {message}")
    state = "unchanged" if shown.last.get("stage") == "unchanged" else "complete"
    document |= {"state": state if end.succeeded else "failed", "message": message}
    document |= {"bytes": shown.count("bytes"), "files": shown.count("files")}
    output.answer(cluster, document, printable(message) or f"{DATA}/{request.to} is complete")
    raise typer.Exit(0 if end.succeeded else FAILED)
