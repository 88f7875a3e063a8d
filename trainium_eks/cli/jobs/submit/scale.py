"""``trn scale``: the size of a node group."""

import contextlib
import sys

from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.client import scaling
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import WRONG_USAGE, Failure
from trainium_eks.client.notices import Say
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.submit import cluster_facts, planning
from trainium_eks.kube.api import ApiError, NoSuchKind
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.validation.problems import Problem
from trainium_eks.plan.graph import SCHEMA_VERSION


def run(name: str, nodes: int, *, wait: bool, cluster: ClusterOptions) -> int:
    """Run ``trn scale``; return the exit code."""
    with open_session(cluster) as session:
        group = _group(session, name)
        wrong = size_problem(group, nodes)
        if wrong is not None:
            raise Failure(WRONG_USAGE, f"{name} was not scaled", [wrong], spell=str)
        before = len(cluster_facts.nodes_of(session.api, group))
        say: Say = (lambda _: None) if cluster.as_json else _say
        say(scaling.cost(session, group, before, nodes))
        if nodes < before:
            _warn_of_jobs(session, group, say)
        scaling.resize(session, group, nodes, say)
        if wait:
            try:
                scaling.await_nodes(session, group, nodes, say)
            except Failure as failure:
                from trainium_eks.cli.environment.check import examine

                raise examine.with_closing(failure, cluster, session.namespace.name) from None
        if cluster.as_json:
            document = {"schemaVersion": SCHEMA_VERSION, "group": group.name, "nodes": nodes, "before": before}
            write_json(document)
        elif wait:
            write(f"{group.name} has {nodes} nodes.\n")
        else:
            write(f"{group.name} is to have {nodes} nodes; `kubectl get nodes` shows them as they come.\n")
    return 0


def size_problem(group: NodeGroupOutput, nodes: int) -> Problem | None:
    """Return the problem of a number of nodes outside the group's limits; None within them."""
    if nodes > group.max_size:
        fix = f"or raise `maxSize` of {group.name} in the stack's config, and bring it up"
        reason = f"{group.name} has at most {group.max_size} nodes"
        return Problem("NODES", reason, fix, value=nodes, good=group.max_size)
    if nodes < group.min_size:
        fix = f"or lower `minSize` of {group.name} in the stack's config, and bring it up"
        reason = f"{group.name} has at least {group.min_size} nodes"
        return Problem("NODES", reason, fix, value=nodes, good=group.min_size)
    return None


def _warn_of_jobs(session: Session, group: NodeGroupOutput, say: Say) -> None:
    """Warn of jobs on the group's instance type, because EKS chooses the nodes that go. A researcher sees only the
    team's own jobs."""
    with contextlib.suppress(NoSuchKind, ApiError):
        jobs = cluster_facts.running_on(
            cluster_facts.volcano_jobs(session.api, session.namespace.name), group.instance_type
        )
        if jobs:
            say(f"warning: {', '.join(jobs)} may run on the nodes that go; a gang that loses one starts again")


def _group(session: Session, name: str) -> NodeGroupOutput:
    found = planning.find_group(session.outputs, name)
    if not isinstance(found, NodeGroupOutput):
        raise Failure(WRONG_USAGE, f"{name} was not scaled", found, spell=str)
    return found


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
