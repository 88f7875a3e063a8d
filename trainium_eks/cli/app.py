"""Commands of ``trn`` and their options. A command imports the module with its work only when it runs."""

import io
import itertools
import os
import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trainium_eks.cli import images, local
from trainium_eks.cli.environment import acceptance, check, comment, deploy, doctor, fabric, orphans, plan
from trainium_eks.cli.jobs import (
    cancel,
    jobs,
    kubeconfig,
    logs,
    predict,
    profile,
    scale,
    secret,
    serve,
    stage,
    status,
    tensorboard,
    train,
    wait,
)
from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import ENVIRONMENT, EXIT_CODES, IMAGES, LOCAL, App
from trainium_eks.client.failure import FAILED, INTERRUPTED, TRACEBACK, failure_of, unexpected


class Commands(TyperGroup):
    """Command group that reports errors without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command and report its error, on standard error or with ``--json`` as a document."""
        as_json = "--json" in itertools.takewhile(lambda word: word != "--", ctx.args)
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader (`| head`) has gone; Python would complain again when it flushes at exit.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            sys.stderr.write("\nInterrupted.\n")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            # Typer's own have an exit code.
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                _keep_near_suggestions(vars(error))
                raise
            failure = failure_of(error)
            if failure is None and os.environ.get(TRACEBACK):
                raise
            raise typer.Exit(output.tell(failure or unexpected(error), as_json=as_json)) from None


def _keep_near_suggestions(error: dict[str, Any]) -> None:
    """Leave of typer's suggestions the one that is near: ``destory`` means neither ``deploy`` nor ``doctor``."""
    from trainium_eks.model.validation.problems import nearest

    if options := error.get("possibilities"):
        near = nearest(error["option_name"], options, least=0.75)
        error["possibilities"] = [near] if near else None
    elif "Did you mean" in error.get("message", ""):
        typed, *commands = re.findall("'([^']+)'", error["message"])
        near = nearest(typed, commands, least=0.75)
        error["message"] = f"No such command {typed!r}.{f' Did you mean {near!r}?' if near else ''}"


app = App(
    name="trn",
    panel=ENVIRONMENT,
    cls=Commands,
    help="Plan and run training environments on AWS Trainium with Amazon EKS.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
)
for part in (plan, check, deploy, doctor, fabric, orphans, acceptance, comment):
    app.add_typer(part.app)
for part in (train, scale, kubeconfig, secret, stage, serve, predict):
    app.add_typer(part.app)
for part in (jobs, status, wait, cancel, logs, tensorboard, profile):
    app.add_typer(part.app)
app.add_typer(images.app, name="image", rich_help_panel=IMAGES)
app.add_typer(local.app, name="local", rich_help_panel=LOCAL)


def _show_version(asked: bool) -> None:
    if asked:
        from trainium_eks import __version__

        typer.echo(f"trn {__version__}")
        raise typer.Exit


@app.callback()
def trn(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Plan and run training environments on AWS Trainium with Amazon EKS."""
    del version  # its callback has acted
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As standard error: what a terminal's encoding lacks is shown by its number, and ends no command.
        sys.stdout.reconfigure(errors="backslashreplace")
