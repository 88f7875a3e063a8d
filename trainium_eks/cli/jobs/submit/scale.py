"""``trn scale``: the size of a node group."""

import contextlib
import sys
import time
from collections.abc import Callable

from trainium_eks.aws.sessions import Aws, AwsError, NotAllowed
from trainium_eks.cli.shared.cluster_options import ClusterOptions
from trainium_eks.cli.shared.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.cli.shared.session import Session, open_session
from trainium_eks.jobs.submit import cluster_facts, planning
from trainium_eks.kube.api import ApiError, NoSuchKind
from trainium_eks.kube.cluster import is_ready
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.validation.problems import Problem
from trainium_eks.plan.graph import SCHEMA_VERSION

READY_SECONDS = 1800.0
"""Longest wait for nodes. An accelerator node is Ready some minutes after EC2 has it; EC2 may take longer."""

LOOK_SECONDS = 10.0

Say = Callable[[str], None]


def run(name: str, nodes: int, *, wait: bool, cluster: ClusterOptions) -> int:
    """Run ``trn scale``; return the exit code."""
    with open_session(cluster) as session:
        group = _group(session, name)
        wrong = size_problem(group, nodes)
        if wrong is not None:
            raise Failure(WRONG_USAGE, f"{name} was not scaled", [wrong], spell=str)
        before = len(cluster_facts.nodes_of(session.api, group))
        say: Say = (lambda _: None) if cluster.as_json else _say
        say(cost(session, group, before, nodes))
        if nodes < before:
            _warn_of_jobs(session, group, say)
        resize(session, group, nodes, say)
        if wait:
            try:
                await_nodes(session, group, nodes, say)
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


def for_gang(session: Session, group: NodeGroupOutput, nodes: int, say: Say) -> None:
    """Scale up a group that has fewer nodes than a gang needs; do not wait for nodes on AWS, as the gang does.

    A caller without permission gets a warning, and the job waits until somebody with permission or an autoscaler scales
    the group.

    Raises:
        ClusterError: EKS refuses for another reason.
    """
    there = len(cluster_facts.nodes_of(session.api, group))
    if there >= nodes:
        return
    say(cost(session, group, there, nodes))
    try:
        resize(session, group, nodes, say)
    except NotAllowed as error:
        say(f"warning: {error}")
        say(f"  The job waits for {nodes} nodes: ask whoever may run `trn scale {group.name} {nodes}`.")


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


def cost(session: Session, group: NodeGroupOutput, before: int, after: int) -> str:
    """Return a line with the cost of the change."""
    price = planning.catalogue(session.outputs).price(group.instance_type)
    start = f"{group.name}: {before} to {after} nodes of {group.instance_type}"
    if session.is_local:
        return f"{start}, simulated."
    if price is None:
        return f"{start}; their price is not known."
    change = (after - before) * price.hourly_usd
    how = {"capacity-block": "; paid with the Capacity Block", "reservation": "; paid with the reservation"}
    return f"{start}: {change:+,.2f} USD an hour (On-Demand {price.region}, {price.date}){how.get(group.capacity, '')}."


def resize(session: Session, group: NodeGroupOutput, nodes: int, say: Say) -> None:
    """Set the number of nodes: at EKS, or in the local cloud, which has the nodes at once.

    Raises:
        ClusterError: refused.
    """
    paths = session.source.paths
    if paths is not None:
        from trainium_eks.local.nodes import resizing

        resizing.resize(paths, group.eks_name, nodes, planning.catalogue(session.outputs), say)
    else:
        Aws(session.outputs.region).scale(session.outputs.cluster_name, group.eks_name, nodes)
    if group.desired_size is not None and group.desired_size != nodes:
        say(
            f"  The stack's config says {group.desired_size}: the next `up` sets it back. "
            f"`ignoreDesiredSize: true` on {group.name} leaves the size alone."
        )


def await_nodes(session: Session, group: NodeGroupOutput, nodes: int, say: Say) -> None:
    """Wait until the group has this many Ready nodes, and no more.

    Raises:
        ClusterError: AWS cannot be asked.
        Failure: not in time, with the issues that EKS reports.
    """
    deadline, told_of, issues = time.monotonic() + READY_SECONDS, -1, tuple[str, ...]()
    while True:
        found = cluster_facts.nodes_of(session.api, group)
        ready = sum(map(is_ready, found))
        if ready != told_of:
            say(f"  {ready} of {nodes} nodes are Ready")
            told_of = ready
        if ready >= nodes and len(found) == nodes:
            return
        if not session.is_local:
            issues = _new_issues(session, group, issues, say)
        if time.monotonic() > deadline:
            detail = (
                "\n".join(issues)
                or "EKS says nothing of it: `aws eks describe-nodegroup` and the group's Auto Scaling activities"
            )
            raise Failure(
                FAILED, f"{group.name}: {ready} of {nodes} nodes are Ready after {READY_SECONDS:g} s", detail=detail
            )
        time.sleep(LOOK_SECONDS if not session.is_local else 0.2)


def _new_issues(session: Session, group: NodeGroupOutput, before: tuple[str, ...], say: Say) -> tuple[str, ...]:
    """Return the issues that EKS reports for the group; print the new ones."""
    try:
        issues = Aws(session.outputs.region).group_size(session.outputs.cluster_name, group.eks_name).issues
    except AwsError:
        return before  # the nodes show in the cluster all the same
    for issue in issues:
        if issue not in before:
            say(f"  {issue}")
    return issues


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
