"""The commands of ``trn``, each in a module that is imported when the command is called."""

import io
import itertools
import os
import re
import sys
from typing import Annotated, Any

import typer

from trainium_eks import __version__
from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import ENVIRONMENT, EXIT_CODES, IMAGES, JOBS, LOCAL, App, Entry, LazyGroup
from trainium_eks.client.failure import FAILED, INTERRUPTED, TRACEBACK, failure_of, unexpected

COMMANDS = {
    "plan": Entry("environment.plan", "Show an environment's resources, cost, time to ready and rules.", ENVIRONMENT),
    "check": Entry(
        "environment.check", "Ask AWS whether an `up` would succeed: quotas, capacity, rights.", ENVIRONMENT
    ),
    "capacity": Entry("environment.capacity", "Show where to buy nodes for a run; buy and extend blocks.", ENVIRONMENT),
    "deploy": Entry("environment.deploy", "Run the real `pulumi`, after checks of tools and cost.", ENVIRONMENT),
    "doctor": Entry(
        "environment.doctor", "Name the faults of the stack, or of one job, with their remedies.", ENVIRONMENT
    ),
    "fabric": Entry("environment.fabric", "Test nodes, network and storage by a gang (docs/checks.md).", ENVIRONMENT),
    "orphans": Entry(
        "environment.orphans", "List what a stack or an interrupted update left in the account.", ENVIRONMENT
    ),
    "acceptance": Entry("environment.acceptance", "Build an environment, test it, destroy it, report.", ENVIRONMENT),
    "comment": Entry("environment.comment", "Write a pull request's effects as one comment.", ENVIRONMENT),
    "train": Entry("jobs.train", "Train on a gang of whole nodes.", JOBS),
    "scale": Entry("jobs.scale", "Change the number of nodes of a node group.", JOBS),
    "kubeconfig": Entry("jobs.kubeconfig", "Print a kubeconfig with your namespace in its context.", JOBS),
    "secret": Entry("jobs.secret", "Store a token for gated models or a tracker in a Secret.", JOBS),
    "stage": Entry("jobs.stage", "Copy a data set to the team's shared volume.", JOBS),
    "serve": Entry("jobs.serve", "Serve a trained model over HTTP.", JOBS),
    "predict": Entry("jobs.predict", "Predict all texts of a file with a trained model.", JOBS),
    "jobs": Entry("jobs.jobs", "List jobs: state, nodes and ranks, restarts, last step.", JOBS),
    "status": Entry("jobs.status", "Show one job, or the environment's cost and idle accelerators.", JOBS),
    "wait": Entry("jobs.wait", "Wait until a job has ended.", JOBS),
    "cancel": Entry("jobs.cancel", "Cancel a job; its output stays.", JOBS),
    "logs": Entry("jobs.logs", "Show a job's log: rank 0, another rank, or all.", JOBS),
    "tensorboard": Entry("jobs.tensorboard", "Open TensorBoard on a job's logs.", JOBS),
    "profile": Entry("jobs.profile", "Profile some training steps with Neuron's profiler.", JOBS),
    "image": Entry("images", "Build and push the training image.", IMAGES),
    "local": Entry("local", "Run the whole stack on this machine.", LOCAL),
}


class Commands(LazyGroup):
    """Command group that reports errors without a traceback."""

    entries = COMMANDS

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
    cls=Commands,
    help="Plan and run training environments on AWS Trainium with Amazon EKS.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
)


def _show_version(asked: bool) -> None:
    if asked:
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
