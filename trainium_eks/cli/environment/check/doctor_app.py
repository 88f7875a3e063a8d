"""The command ``trn doctor`` and its options."""

from typing import Annotated

import typer

from trainium_eks.cli.shared.command import ENVIRONMENT, App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions

app = App(panel=ENVIRONMENT)


@app.command(example="trn doctor bert-tiny")
@with_cluster_options
def doctor(
    name: Annotated[
        str | None, typer.Argument(help="Name of a job, or of a fault or an alert to explain.", show_default=False)
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List all faults and alerts.")] = False,
    firing: Annotated[bool, typer.Option("--alerts", help="Ask the stack's Prometheus what fires now.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Name each fault of the stack, or of one job, with its cause and remedy. The command changes nothing.

    With the name of a fault or an alert: print its page. A job of such a name is asked for with --namespace.

    Exit code: 0 when no fault is found; 1 when one is, or an alert fires; 2 for wrong usage.
    """
    from trainium_eks.cli.environment.check import doctor as command

    raise typer.Exit(command.run(cluster, name, listing=listing, firing=firing))
