"""Project of a stack: its directory and its file."""

import sys
from pathlib import Path

from trainium_eks.client.failure import UsageError
from trainium_eks.plan.recording.project import InvalidConfigError, ProjectError, load_project


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


def check_stack(project: Path, stack: str) -> None:
    """Check that the project and the stack's file can be read; print their warnings."""
    try:
        settings = load_project(project).stack(stack)
    except InvalidConfigError:
        return  # recording reports the errors in the values
    except ProjectError as error:
        raise UsageError(str(error)) from None
    for warning in settings.warnings:
        sys.stderr.write(f"warning: {warning}\n")
