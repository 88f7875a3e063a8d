"""Commands that submit, and commands that a submission needs: train, compile, scale, kubeconfig, secret.

The work is in modules of their own.
"""

from typing import Annotated

import typer

from trainium_eks.cli.shared.command import JOBS, App
from trainium_eks.cli.shared.options_class import Fixed
from trainium_eks.cli.shared.with_cluster_options import (
    Directory,
    Json,
    Namespace,
    Outputs,
    Stack,
    with_cluster_options,
)
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.jobs.objects.options import TrainOptions

app = App(panel=JOBS)


@app.command(example="trn train --example gradient-sum --nodes 2")
@with_cluster_options
def train(options: TrainOptions, *, cluster: ClusterOptions) -> None:
    """Train on a gang of whole nodes: all start together, restart together, end together.

    Prints rank 0's log until the job ends. Ctrl-C leaves the job running, as --detach does.

    Exit code: 0; 1 when it was refused or did not end well; 2 for a job that cannot run.
    """
    from trainium_eks.cli.jobs.submit import train as command

    raise typer.Exit(command.run(options, cluster))


@app.command("compile", example="trn compile --example bert --nodes 2")
@with_cluster_options
def compile_(options: Annotated[TrainOptions, Fixed(precompile=True)], *, cluster: ClusterOptions) -> None:
    """Fill a compile cache by a short run of the training (give the script few steps); `trn train` then finds it whole.

    Exit code: as of `trn train`.
    """
    from trainium_eks.cli.jobs.submit import train as command

    raise typer.Exit(command.run(options, cluster))


@app.command(example="trn scale trn1-32xl-ng1 4")
@with_cluster_options
def scale(
    group: Annotated[str, typer.Argument(help="Node group, by its name in the stack.")],
    nodes: Annotated[int, typer.Argument(min=0, help="Nodes that it is to have.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are Ready.")] = True,
    *,
    cluster: ClusterOptions,
) -> None:
    """Give a node group another number of nodes, within its limits, and show the change's cost an hour.

    Exit code: 0; 1 when nodes are not Ready in time; 2 for a number that the group cannot have.
    """
    from trainium_eks.cli.jobs.submit import scale as command

    raise typer.Exit(command.run(group, nodes, wait=wait, cluster=cluster))


@app.command(example="trn kubeconfig --namespace training > kubeconfig.yaml")
def kubeconfig(
    stack: Stack = "",
    namespace: Namespace = None,
    outputs: Outputs = None,
    as_json: Json = False,
    directory: Directory = None,
) -> None:
    """Print a kubeconfig with your namespace in its context: trn kubeconfig > kubeconfig.yaml."""
    from trainium_eks.cli.jobs.submit import kubeconfig as command

    raise typer.Exit(command.run(ClusterOptions(stack, namespace, outputs, None, directory, as_json=as_json)))


@app.command(example="trn tunnel --stack prod -- kubectl get nodes")
@with_cluster_options
def tunnel(
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to run with the tunnel's KUBECONFIG, after --; it ends both.")
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="INSTANCE",
            help="In the cluster's VPC; default: one tagged trainium-eks/tunnel.",
        ),
    ] = "",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of this machine; default: a free one.")] = 0,
    minutes: Annotated[float, typer.Option("--minutes", min=0, help="The tunnel's time, without a command.")] = 480,
    *,
    cluster: ClusterOptions,
) -> None:
    """Reach a private Kubernetes API from here, by Session Manager through an instance of its network.

    Prints the variable for other commands, and ends by itself; with a command, it ends with that.

    Exit code: 0; the command's; 1 when the session does not open or breaks off; 2 without the AWS CLI or its plugin.
    """
    from trainium_eks.cli.jobs.submit import tunnel as module

    raise typer.Exit(module.run(module.TunnelOptions(cluster, target, port, minutes, tuple(command or ()))))


@app.command(example="trn secret --from-aws ml/hugging-face")
@with_cluster_options
def secret(
    name: Annotated[str, typer.Argument(help="Of the Secret.")] = "hugging-face",
    from_aws: Annotated[
        str, typer.Option("--from-aws", metavar="ID", help="Name or ARN of a secret of AWS Secrets Manager.")
    ] = "",
    json_key: Annotated[str, typer.Option("--json-key", help="Where that is a JSON object with several keys.")] = "",
    delete: Annotated[bool, typer.Option("--delete", help="Take it away.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Put a token for gated models into your namespace: from the variable HF_TOKEN, a pipe, or typed unseen.

    It is never printed, and stands in no job: `trn stage` and `trn train --hf-secret` refer to it by its name.

    Exit code: 0; 1 when it is refused; 2 when there is no token.
    """
    from trainium_eks.cli.jobs.submit import secret as command

    raise typer.Exit(command.run(command.SecretOptions(cluster, name, from_aws, json_key, delete)))
