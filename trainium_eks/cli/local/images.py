"""``trn local images``: the environments that pods of a local cloud can run in."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import show_sections
from trainium_eks.cli.shared.output import write_json
from trainium_eks.client.failure import UsageError
from trainium_eks.local.images import images
from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.images.installing import Recipe, known_recipe
from trainium_eks.plan.graph import SCHEMA_VERSION

app = App(otherwise="local", help="Environments for pods that run: images `local/…`.", invoke_without_command=True)


@app.callback()
def show(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON and nothing else.")] = False,
) -> None:
    """List the images that pods of local clouds can have; they are shared by all stacks of this user."""
    if context.invoked_subcommand is not None:
        return

    found = images.all_images()
    if as_json:
        write_json({"schemaVersion": SCHEMA_VERSION, "images": [_to_json(each) for each in found]})
        return
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("image", "tag", "size", "made", "torch"):
        table.add_column(column, no_wrap=True)
    for each in found:
        made = datetime.fromtimestamp(each.made).strftime("%Y-%m-%d %H:%M") if each.made else "always there"
        table.add_row(f"{images.PREFIX}{each.name}", each.tag, _size(each), made, "yes" if each.has_torch else "no")
    show_sections([table])


@app.command(example="trn local images make torch")
def make(
    name: Annotated[str, typer.Argument(help="`torch`, or any name together with --requirements.")],
    requirements: Annotated[
        Path | None, typer.Option("--requirements", "-r", metavar="FILE", help="Requirements file for pip.")
    ] = None,
) -> None:
    """Make an image: a virtual environment in the cache, with the packages of the requirements file."""
    short = name.removeprefix(images.PREFIX)
    if requirements is None:
        recipe = known_recipe(short)
    else:
        try:
            recipe = Recipe(short, requirements.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{requirements} cannot be read: {error}") from None
    image = images.make(recipe, lambda line: typer.echo(line, err=True))
    typer.echo(f"{image.reference} ({_size(image)}): pods with the image {images.PREFIX}{short} run in it.")


@app.command(example="trn local images path torch")
def path(name: Annotated[str, typer.Argument(help="Image's name, optionally with its tag: torch:<tag>.")]) -> None:
    """Print an image's directory: its programs, `python` first among them, are in `bin` there."""
    image = images.find(name)
    if image is None:
        raise UsageError(f"there is no image {name}: {images.how_to_make(name)}")
    typer.echo(images.ensure(image).path)


@app.command(example="trn local images remove torch")
def remove(name: Annotated[str, typer.Argument(help="Image's name; with `:<tag>` only that tag.")]) -> None:
    """Remove an image from the cache."""
    for image in images.remove(name):
        typer.echo(f"Removed {image.reference} ({_size(image)}).")


def _size(image: LocalImage) -> str:
    if not image.size_bytes:
        return "-"
    return f"{image.size_bytes / 2**30:.1f} GiB" if image.size_bytes >= 2**30 else f"{image.size_bytes / 2**20:.0f} MiB"


def _to_json(image: LocalImage) -> dict[str, object]:
    made = datetime.fromtimestamp(image.made, UTC).isoformat(timespec="seconds") if image.made else None
    return {
        "name": f"local/{image.name}",
        "tag": image.tag,
        "path": str(image.path),
        "sizeBytes": image.size_bytes,
        "made": made,
        "hasTorch": image.has_torch,
    }
