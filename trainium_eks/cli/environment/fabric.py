"""``trn fabric``: the judged reports of gangs that test the nodes and the network of node groups."""

from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import answer
from trainium_eks.cli.shared.report import table
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client import fabric as fabric_test
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED
from trainium_eks.client.session import open_session
from trainium_eks.jobs.objects.options import TrainOptions

app = App()


@app.command(example="trn fabric --group trn1-32xl-ng1 --against last")
@with_cluster_options
def fabric(
    arguments: Annotated[list[str] | None, typer.Argument(help="Further arguments for its script, after --.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Node group; default: each that has nodes.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-N", min=1, help="Nodes of the gang; default: the group's size.")
    ] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="last|FILE", help="Compare with the last good report.")
    ] = "",
    tool: Annotated[
        Literal["nccom-test", "nccl-tests"] | None,
        typer.Option("--tool", help="Run this benchmark within each node instead."),
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Container image; default: the one `trn train` uses.")
    ] = None,
    *,
    cluster: ClusterOptions,
) -> None:
    """Test the nodes, network and storage of node groups with a gang that works as trainings do (docs/checks.md).

    Exit code: 0 when nothing failed; 1 when something did or the cluster cannot be reached; 2 for wrong usage.
    """
    asked = TrainOptions(tuple(arguments or ()), image=image, group=group, nodes=nodes)
    with open_session(cluster) as session:
        results = fabric_test.test(session, asked, against, tool)
    parts = []
    for each in results:
        size = f"{len(each.report.get('nodes', ()))} nodes of {each.group.instance_type}"
        title = Text(f"{each.group.name} · {size} · {each.job}", "bold underline")
        bad, good = Text("✗ the fabric is not as it must be", "bold red"), Text("✓ fabric", "bold green")
        checks = Padding(table(each.checks), (0, 0, 0, 2), expand=False)
        parts.append(Group(title, checks, bad if each.failed else good))
    answer(cluster, {"groups": [each.to_json() for each in results]}, *parts)
    raise typer.Exit(FAILED if any(each.failed for each in results) else 0)
