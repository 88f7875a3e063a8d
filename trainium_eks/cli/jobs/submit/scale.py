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
"""How long nodes are awaited. An accelerator node is Ready some minutes after EC2 has it; EC2 may take longer."""

LOOK_SECONDS = 10.0

Say = Callable[[str], None]


def run(name: str, nodes: int, *, wait: bool, cluster: ClusterOptions) -> int:
    """``trn scale``; the exit code."""
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
            await_nodes(session, group, nodes, say)
        if cluster.as_json:
            document = {"schemaVersion": SCHEMA_VERSION, "group": group.name, "nodes": nodes, "before": before}
            write_json(document)
        elif wait:
            write(f"{group.name} has {nodes} nodes.\n")
        else:
            write(f"{group.name} is to have {nodes} nodes; `kubectl get nodes` shows them as they come.\n")
    return 0


def for_gang(session: Session, group: NodeGroupOutput, nodes: int, say: Say) -> None:
    """Gives a group as many nodes as a gang has, where it has fewer; does not wait for them on AWS, as the gang does.

    A caller who may not change the group is told, and the job waits for whoever may, or for an autoscaler.

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
    """Why a group cannot have so many nodes."""
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
    """What the change costs, in a line."""
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
    """Asks for a number of nodes: EKS, or the local cloud, whose nodes are there when it returns.

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
    """Until the group has this many Ready nodes, and no more.

    Raises:
        ClusterError: AWS cannot be asked.
        Failure: not in time, with what EKS says is wrong.
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
    """What EKS says is wrong with the group; new ones are told."""
    try:
        issues = Aws(session.outputs.region).group_size(session.outputs.cluster_name, group.eks_name).issues
    except AwsError:
        return before  # the nodes show in the cluster all the same
    for issue in issues:
        if issue not in before:
            say(f"  {issue}")
    return issues


def _warn_of_jobs(session: Session, group: NodeGroupOutput, say: Say) -> None:
    """EKS chooses the nodes that go. Of other teams' jobs a researcher sees nothing."""
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
