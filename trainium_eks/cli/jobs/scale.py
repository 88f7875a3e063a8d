"""``trn scale``: the size of a node group."""

from typing import Annotated

import typer

from trainium_eks.cli.shared import examine, output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client import scaling, whole_scaling
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.notices import say, silent
from trainium_eks.client.session import open_session
from trainium_eks.jobs.submit import cluster_facts, planning
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.validation.problems import Problem, plural

app = App()


@app.command(example="trn scale trn1-32xl-ng1 4")
@with_cluster_options
def scale(
    group: Annotated[str, typer.Argument(help="Node group, by its name in the stack.")],
    nodes: Annotated[int, typer.Argument(min=0, help="New number of nodes.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the nodes are Ready.")] = True,
    all_or_nothing: Annotated[
        bool | None,
        typer.Option(
            "--all-or-nothing/--no-all-or-nothing",
            help="Reserve all missing nodes first, and go back if not all come; default: the group's.",
        ),
    ] = None,
    *,
    cluster: ClusterOptions,
) -> None:
    """Give a node group another number of nodes, within its limits, and show the change's cost an hour.

    Exit code: 0; 1 when nodes are not Ready in time; 2 for a number that the group cannot have.
    """
    tell = silent if cluster.as_json else say
    with open_session(cluster) as session:
        found = planning.find_group(session.outputs, group)
        wrong = scaling.size_problems(found, nodes) if isinstance(found, NodeGroupOutput) else found
        if wrong or not isinstance(found, NodeGroupOutput):
            raise UsageError(f"{group} was not scaled", wrong, spell=str)
        before = len(cluster_facts.nodes_of(session.api, found))
        whole = whole_scaling.is_whole(found, all_or_nothing) and nodes >= before
        if whole and not wait:
            problem = Problem("--no-wait", "all nodes or none is known only when they are Ready", "leave it out")
            raise UsageError(f"{group} was not scaled", [problem], spell=str)
        tell(scaling.cost(session, found, before, nodes))
        if nodes < before and (jobs := scaling.jobs_on(session, found)):
            tell(f"warning: {', '.join(jobs)} may run on the nodes that go; a gang that loses one starts again")
        text = f"{found.name} is to have {plural(nodes, 'node')}; `kubectl get nodes` shows them as they come."
        if not whole:
            scaling.resize(session, found, nodes, tell)
        if wait:
            try:
                if whole:
                    whole_scaling.scale(session, found, nodes, tell)
                else:
                    scaling.await_nodes(session, found, nodes, tell)
            except CommandError as failure:
                raise examine.with_closing(failure, cluster, session.namespace.name) from None
            text = f"{found.name} has {plural(nodes, 'node')}."
    output.answer(cluster, {"group": found.name, "nodes": nodes, "before": before}, text)
