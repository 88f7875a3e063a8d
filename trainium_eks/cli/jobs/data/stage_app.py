"""Command ``trn stage`` and its options."""

from typing import Annotated

import typer

from trainium_eks.cli.shared.command import JOBS, App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions

app = App(panel=JOBS)


def _show_presets(asked: bool) -> None:
    if asked:
        from trainium_eks.cli.jobs.data import stage as command

        raise typer.Exit(command.show_presets())


@app.command(example="trn stage s3://my-data/books --to books")
@with_cluster_options
def stage(
    source: Annotated[
        str,
        typer.Argument(help="A preset's name, s3://…, https://…, hf://datasets/ORG/NAME@REV; local cloud: a path."),
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="PATH", help="Directory on the team's volume; presets have their own.")
    ] = None,
    presets: Annotated[
        bool,
        typer.Option("--list", help="Show the presets and exit.", callback=_show_presets, is_eager=True),
    ] = False,
    file_list: Annotated[
        bool, typer.Option("--file-list", help="SOURCE is a list of files: sha256sum's lines, URLs, or JSON.")
    ] = False,
    extract: Annotated[bool, typer.Option("--extract", help="Unpack archives (tar, zip); they are not kept.")] = False,
    include: Annotated[
        list[str] | None, typer.Option("--include", metavar="PATTERN", help="Only such files ('*.parquet').")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="No such files.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Copy anew, and throw away what was staged there before.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Show how far it is until it ends.")] = True,
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
        int | None, typer.Option("--workers", min=1, max=256, help="Files or pieces fetched at once; default: 16.")
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
    from trainium_eks.cli.jobs.data import stage as command

    asked = command.StageOptions(
        cluster,
        source,
        to=to,
        is_list=file_list,
        extract=extract,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        replace=replace,
        follow=follow,
        token_secret=token_secret,
        endpoint=endpoint,
        workers=workers,
        image=image,
        dry_run=dry_run,
    )
    raise typer.Exit(command.run(asked))
