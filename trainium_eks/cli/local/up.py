"""``trn local up``: the stack, brought to this machine."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from trainium_eks.cli.local import progress
from trainium_eks.cli.shared import recording
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.options import Directory, NoColor, Stack
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, CommandError, UsageError
from trainium_eks.client.project import find_project
from trainium_eks.client.stack_check import check_stack
from trainium_eks.local import deployment
from trainium_eks.local.deployment import UpFailedError
from trainium_eks.model.finding import Report
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.plan.recording.process import ProgramFailedError, ProgramTimeoutError, ProjectError
from trainium_eks.plan.recording.project import InvalidConfigError

WELL_WITHIN_SECONDS = 30.0
"""Seconds for which an ``up`` repeats failing checks at its end."""

app = App(otherwise="local")


@app.command(example="trn local up --nodes 4")
def up(
    stack: Stack = "",
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=0, max=5000, help="Nodes of the first node group; default: the config.")
    ] = None,
    no_color: NoColor = False,
    directory: Directory = None,
) -> None:
    """Start Kubernetes here and deploy the stack's program to it. Can be repeated at any time.

    Exit code: 0; 1 when something failed; 2 for wrong usage.
    """
    project = find_project(directory)
    check_stack(project, stack)
    with _failures(project, stack):
        with progress.reporter(no_color=no_color) as reporter:
            result = deployment.up(deployment.UpRequest(project, stack, nodes), reporter)
            found = _checks(stack, directory, result.outputs, reporter.phase)
        progress.show(result, stack, found, no_color=no_color)
    if found is not None and found.failed:
        from trainium_eks.cli.shared import examine

        said = examine.closing(ClusterOptions(stack, directory=directory), checks=False)
        sys.stdout.write(f"{said}\n" if said else "")
        raise typer.Exit(FAILED)


def _checks(
    stack: str, directory: Path | None, outputs: Mapping[str, Any], phase: Callable[[str], None]
) -> Report | None:
    """Return the doctor's checks; None for a program without a training stack's outputs.

    Failing checks are repeated for some seconds, because controllers answer an ``up`` with a delay.
    """
    from trainium_eks.cli.shared import examine

    try:
        StackOutputs.parse(outputs)
    except ConfigModelError:
        return None
    phase("Checking the cluster")
    cluster = ClusterOptions(stack, directory=directory)
    return examine.until_well(lambda: examine.diagnosis(cluster, faults=False), WELL_WITHIN_SECONDS, phase)


@contextmanager
def _failures(project: Path, stack: str) -> Iterator[None]:
    """Raise a :class:`CommandError` in place of the errors of a program and of its resources."""
    try:
        yield
    except InvalidConfigError as error:
        raise recording.refusal(error, project, stack, "nothing was started") from None
    except ProjectError as error:
        raise UsageError(str(error)) from None
    except ProgramFailedError as error:
        raise CommandError(f"the program failed: {error.message}", detail=error.traceback) from None
    except ProgramTimeoutError as error:
        raise CommandError(str(error)) from None
    except UpFailedError as error:
        parts = ["  {}\n    {}".format(urn, message.replace("\n", "\n    ")) for urn, message in error.failures]
        detail = "\n".join([*parts, error.detail.strip()]).rstrip()
        raise CommandError(str(error), detail=detail) from None
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. Finished steps are kept; the same command continues from there.\n")
        raise typer.Exit(INTERRUPTED) from None
