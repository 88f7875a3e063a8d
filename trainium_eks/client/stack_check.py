"""Check that a stack of a project can be read."""

import sys
from pathlib import Path

from trainium_eks.client.failure import UsageError
from trainium_eks.plan.recording.project import InvalidConfigError, ProjectError, load_project


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
