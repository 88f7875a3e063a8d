"""The directory of a project."""

from pathlib import Path

from trainium_eks.client.failure import UsageError


def find_project(directory: Path | None) -> Path:
    """Return the project directory: the given one, or the nearest with a Pulumi.yaml from here upwards, as `pulumi`
    does."""
    start = (directory or Path()).resolve()
    places = (start,) if directory else (start, *start.parents)
    for place in places:
        if any((place / f"Pulumi{suffix}").is_file() for suffix in (".yaml", ".yml")):
            return place
    if directory and not start.is_dir():
        raise UsageError(f"{directory} is not a directory")
    where = f"{directory} has" if directory else "this directory and those above it have"
    raise UsageError(f"{where} no Pulumi.yaml; name the project with --directory")
