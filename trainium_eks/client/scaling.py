"""Size of a node group: its change, and the wait for its nodes."""

import time

from trainium_eks.aws.sessions import Aws, AwsError
from trainium_eks.client.failure import CommandError
from trainium_eks.client.notices import Say, unrepeated
from trainium_eks.client.session import Session
from trainium_eks.jobs.submit import cluster_facts
from trainium_eks.kube.api import ApiError, NoSuchKindError
from trainium_eks.kube.cluster import is_ready
from trainium_eks.local import job_access
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.validation.problems import Problem, plural

READY_SECONDS = 1800.0
"""Longest wait for nodes. An accelerator node is Ready some minutes after EC2 has it; EC2 may take longer."""

LOOK_SECONDS = 10.0


def size_problems(group: NodeGroupOutput, nodes: int) -> list[Problem]:
    """Return the problem of a number of nodes outside the group's limits."""
    if group.min_size <= nodes <= group.max_size:
        return []
    word, limit, verb = "most", group.max_size, "raise `maxSize`"
    if nodes < group.min_size:
        word, limit, verb = "least", group.min_size, "lower `minSize`"
    fix = f"or {verb} of {group.name} in the stack's config, and bring it up"
    return [Problem("NODES", f"{group.name} has at {word} {plural(limit, 'node')}", fix, value=nodes, good=limit)]


def jobs_on(session: Session, group: NodeGroupOutput) -> list[str]:
    """Return the team's jobs on the group's instance type: EKS chooses the nodes that go."""
    try:
        jobs = cluster_facts.volcano_jobs(session.api, session.namespace.name)
    except (NoSuchKindError, ApiError):
        return []
    return [*cluster_facts.running_on(jobs, group.instance_type)]


def cost(session: Session, group: NodeGroupOutput, before: int, after: int) -> str:
    """Return a line with the cost of the change."""
    price = session.outputs.catalogue.price(group.instance_type)
    start = f"{group.name}: {before} to {plural(after, 'node')} of {group.instance_type}"
    if session.is_local:
        return f"{start}, simulated."
    if price is None:
        return f"{start}; their price is not known."
    change = (after - before) * price.hourly_usd
    how = {"capacity-block": "; paid with the Capacity Block", "reservation": "; paid with the reservation"}
    return f"{start}: {change:+,.2f} USD an hour (On-Demand {price.region}, {price.date}){how.get(group.capacity, '')}."


def resize(session: Session, group: NodeGroupOutput, nodes: int, say: Say) -> None:
    """Set the number of nodes: at EKS, or in the local cloud, which has the nodes at once."""
    paths = session.source.paths
    if paths is not None:
        job_access.resize_group(paths, group.eks_name, nodes, session.outputs.catalogue, say)
    else:
        Aws(session.outputs.region).scale(session.outputs.cluster_name, group.eks_name, nodes)
    warn_of_config(group, nodes, say)


def warn_of_config(group: NodeGroupOutput, nodes: int, say: Say) -> None:
    """Print the size that the next update would give the group, where it is another one."""
    if group.desired_size is not None and group.desired_size != nodes:
        say(
            f"  The stack's config says {group.desired_size}: the next `up` sets it back. "
            f"`ignoreDesiredSize: true` on {group.name} leaves the size alone."
        )


def await_nodes(session: Session, group: NodeGroupOutput, nodes: int, say: Say, seconds: float | None = None) -> None:
    """Wait until the group has this many Ready nodes, and no more; else fail with the issues that EKS reports.
    ``seconds``: the longest wait, by default :data:`READY_SECONDS`."""
    seconds = READY_SECONDS if seconds is None else seconds
    deadline, issues, tell_news = time.monotonic() + seconds, tuple[str, ...](), unrepeated(say)
    while True:
        found = cluster_facts.nodes_of(session.api, group)
        ready = sum(map(is_ready, found))
        tell_news(f"  {ready} of {nodes} nodes are Ready")
        if ready >= nodes and len(found) == nodes:
            return
        if not session.is_local:
            issues = _new_issues(session, group, issues, say)
        if time.monotonic() > deadline:
            detail = (
                "\n".join(issues)
                or "EKS says nothing of it: `aws eks describe-nodegroup` and the group's Auto Scaling activities"
            )
            raise CommandError(
                f"{group.name}: {ready} of {nodes} nodes are Ready after {seconds:.0f} s",
                detail=detail,
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
