"""The command ``trn doctor`` and its options."""

from typing import Annotated

import typer

from trainium_eks.cli.shared.command import ENVIRONMENT, App
from trainium_eks.cli.shared.with_cluster_options import Directory, Json, Kubeconfig, NoColor, Outputs

app = App(panel=ENVIRONMENT)


@app.command(example="trn doctor NeuronUncorrectableError")
def doctor(
    alert: Annotated[str | None, typer.Argument(help="Name of an alert.", show_default=False)] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", "-s", help="Ask this stack's Prometheus what fires now.")
    ] = None,
    outputs: Outputs = None,
    kubeconfig: Kubeconfig = None,
    as_json: Json = False,
    no_color: NoColor = False,
    directory: Directory = None,
) -> None:
    """Explain an alert and its remedy; with --stack, list the alerts that fire now; without either, list all alerts.

    Exit code: 0; with --stack, 1 when something fires or Prometheus cannot be asked; 2 for wrong usage.
    """
    from trainium_eks.cli.environment.check import doctor as command
    from trainium_eks.client.cluster_options import ClusterOptions

    cluster = ClusterOptions(stack or "", None, outputs, kubeconfig, directory, as_json=as_json, no_color=no_color)
    raise typer.Exit(command.run(cluster, alert))
