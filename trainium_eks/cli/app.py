"""Commands of ``trn`` and their options. A command imports the module with its work only when it runs."""

import io
import itertools
import os
import re
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trainium_eks.cli.environment import check, comment, doctor, orphans, plan
from trainium_eks.cli.images import image_app
from trainium_eks.cli.jobs import (
    cancel,
    fabric,
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
from trainium_eks.cli.local import local_app
from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import ENVIRONMENT, EXIT_CODES, IMAGES, LOCAL, RUNS_HERE, App
from trainium_eks.cli.shared.options import Directory, Stack
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
for part in (plan, check, doctor, orphans, comment):
    app.add_typer(part.app)
for part in (train, scale, kubeconfig, secret, stage, serve, predict, fabric):
    app.add_typer(part.app)
for part in (jobs, status, wait, cancel, logs, tensorboard, profile):
    app.add_typer(part.app)
app.add_typer(image_app.app, name="image", rich_help_panel=IMAGES)
app.add_typer(local_app.app, name="local", rich_help_panel=LOCAL)


class Operation(StrEnum):
    """Operation of `trn deploy`."""

    preview = "preview"
    up = "up"
    destroy = "destroy"


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


@app.command(example="trn upgrade --stack prod --to 1.36 --keep-nodes")
def upgrade(
    to: Annotated[str, typer.Option("--to", metavar="VERSION", help="Kubernetes minor version: 1.36.")] = "",
    keep_nodes: Annotated[
        bool, typer.Option("--keep-nodes", help="With --to: accelerator nodes stay as they are; jobs run on.")
    ] = False,
    ami: Annotated[
        str, typer.Option("--ami", metavar="RELEASE", help="AMI release of every accelerator group: 1.35.8-20260930.")
    ] = "",
    addon: Annotated[
        list[str] | None, typer.Option("--addon", metavar="NAME=BUILD", help="EKS add-on; may be repeated.")
    ] = None,
    sdk: Annotated[
        list[str] | None,
        typer.Option("--sdk", metavar="TARGET=IMAGE", help="Image that training images are built on: trn1=<image>."),
    ] = None,
    stack: Stack = "",
    write: Annotated[bool, typer.Option("--write", help="Change the stack's file; without it nothing is written.")] = (
        False
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text; NO_COLOR does the same.")] = False,
    directory: Directory = None,
) -> None:
    """Show an upgrade's changes, their order and duration, and the work that they disturb. Uses no network.

    Compares the config with its upgraded copy.
    Without a version, shows until when EKS supports the present version and the next.

    Exit code: 0; 1 when AWS would refuse a change or the new config is invalid; 2 for wrong usage.
    """
    from trainium_eks.cli.environment.change import upgrade as command
    from trainium_eks.operate.upgrade.settings import UpgradeTargets

    def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
        split = [text.partition("=") for text in texts or ()]
        if any(not (name and value) for name, _, value in split):
            raise typer.BadParameter("expected <name>=<value>", param_hint=option)
        return {name: value for name, _, value in split}

    if keep_nodes and not to:
        raise typer.BadParameter("goes with --to", param_hint="--keep-nodes")
    asked = UpgradeTargets(to, ami, pairs(addon, "--addon"), pairs(sdk, "--sdk"), keep_nodes)
    options = command.UpgradeOptions(stack, asked, directory, write=write, as_json=as_json, no_color=no_color)
    raise typer.Exit(command.run(options))


@app.command(context_settings={"ignore_unknown_options": True}, example="trn deploy preview --stack dev -- --diff")
def deploy(
    context: typer.Context,
    operation: Annotated[Operation, typer.Argument(help="preview, up or destroy.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Further arguments for pulumi, after --.")] = None,
    stack: Stack = "",
    directory: Directory = None,
) -> None:
    """Run the real `pulumi`, after checking the tools it needs and showing the hourly cost.

    `up` first runs the checks of `trn check` (not with --skip-check) and, at a terminal, asks you to accept the cost.
    It does not start while pods hold claims that it would delete; with --wait-for-pods it waits for them.
    `destroy` names the jobs that end and exports files that S3 lacks (not with --no-export; --export-minutes=120).
    """
    from trainium_eks.cli.environment.change import deploy as command

    if context.obj == RUNS_HERE:
        raise typer.BadParameter(f"the local cloud of {stack} runs here; name the stack on AWS", param_hint="--stack")
    raise typer.Exit(command.record_and_run(operation.value, stack, directory, arguments or []))
