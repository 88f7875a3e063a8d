"""``trn local images``: the environments that pods of a local cloud can run in."""

import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from trainium_eks.cli.shared.console import show_sections
from trainium_eks.cli.shared.output import write_json
from trainium_eks.client.failure import WRONG_USAGE, Failure
from trainium_eks.local.images import images
from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.images.installing import Recipe, known_recipe
from trainium_eks.plan.graph import SCHEMA_VERSION


def show(*, as_json: bool) -> int:
    """Run ``trn local images``; return the exit code."""
    found = images.all_images()
    if as_json:
        document = {"schemaVersion": SCHEMA_VERSION, "images": [_to_json(each) for each in found]}
        write_json(document)
        return 0
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("image", "tag", "size", "made", "torch"):
        table.add_column(column, no_wrap=True)
    for each in found:
        made = datetime.fromtimestamp(each.made).strftime("%Y-%m-%d %H:%M") if each.made else "always there"
        table.add_row(f"{images.PREFIX}{each.name}", each.tag, _size(each), made, "yes" if each.has_torch else "no")
    show_sections([table])
    return 0


def make(name: str, requirements: Path | None) -> int:
    """Run ``trn local images make``; return the exit code."""
    short = name.removeprefix(images.PREFIX)
    if requirements is None:
        recipe = known_recipe(short)
    else:
        try:
            recipe = Recipe(short, requirements.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(WRONG_USAGE, f"{requirements} cannot be read: {error}") from None
    image = images.make(recipe, _say)
    sys.stdout.write(f"{image.reference} ({_size(image)}): pods with the image {images.PREFIX}{short} run in it.\n")
    return 0


def path(name: str) -> int:
    """``trn local images path``; the exit code."""
    image = images.find(name)
    if image is None:
        raise Failure(WRONG_USAGE, f"there is no image {name}: {images.how_to_make(name)}")
    sys.stdout.write(f"{images.ensure(image).path}\n")
    return 0


def remove(name: str) -> int:
    """``trn local images remove``; the exit code."""
    for image in images.remove(name):
        sys.stdout.write(f"Removed {image.reference} ({_size(image)}).\n")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _size(image: LocalImage) -> str:
    if not image.size_bytes:
        return "-"
    return f"{image.size_bytes / 2**30:.1f} GiB" if image.size_bytes >= 2**30 else f"{image.size_bytes / 2**20:.0f} MiB"


def _to_json(image: LocalImage) -> dict[str, object]:
    made = datetime.fromtimestamp(image.made, UTC).isoformat(timespec="seconds") if image.made else None
    return {
        "name": f"{images.PREFIX}{image.name}",
        "tag": image.tag,
        "path": str(image.path),
        "sizeBytes": image.size_bytes,
        "made": made,
        "hasTorch": image.has_torch,
    }
