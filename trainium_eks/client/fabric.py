"""A gang on each node group that tests nodes and network, and its judged report."""

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainium_eks.client import reading
from trainium_eks.client.failure import CommandError, UsageError, as_typed
from trainium_eks.client.follow import MOST_PODS
from trainium_eks.client.logs import LogOptions
from trainium_eks.client.notices import notice
from trainium_eks.client.session import Session
from trainium_eks.client.team import Job, Team
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.submit import planning
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.catalogue import fabric_floors
from trainium_eks.model.finding import Finding, Status
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.operate.verify import fabric

LAST = "last"
"""``--against last``: the last good report on the volume."""
_LOCAL_NODES = 4
_FAMILIES = {"nccom-test": "neuron", "nccl-tests": "nvidia"}


@dataclass(frozen=True)
class GroupTest:
    """Result of one node group."""

    group: NodeGroupOutput
    job: str
    report: dict[str, Any]
    checks: list[Finding]

    @property
    def failed(self) -> bool:
        """Whether a check failed, or the gang's own verdict is bad."""
        return not self.report.get("ok") or any(check.status is Status.FAIL for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "group": self.group.name,
            "job": self.job,
            "ok": not self.failed,
            "findings": [each.to_json() for each in self.checks],
            "report": self.report,
        }


def test(session: Session, options: TrainOptions, against: str, tool: str | None) -> list[GroupTest]:
    """Test the node groups one after the other.

    ``options`` has group, nodes, image and further arguments of the gang's script; ``against`` is ``last``, or a file
    with a report to compare with.
    """
    before = None
    if against not in ("", LAST):
        try:
            before = fabric.read_report(Path(against).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, fabric.ReportFaultError) as error:
            raise UsageError(f"--against {against}: {error}; give `last` or a report of this test") from None
    return [_test(group, options, tool, against, before, session) for group in _groups(options, tool, session)]


def _groups(options: TrainOptions, tool: str | None, session: Session) -> list[NodeGroupOutput]:
    """Return the requested group, else each group that has nodes."""
    outputs = session.outputs
    if options.group is not None:
        found = planning.find_group(outputs, options.group)
        if not isinstance(found, NodeGroupOutput):
            raise UsageError("no group can be tested", found, spell=str)
        return [found]
    types = outputs.catalogue
    family = _FAMILIES.get(tool or "")
    groups = [
        group
        for group in outputs.node_groups
        if group.desired_size != 0 and family in (None, types[group.instance_type].family)
    ]
    if not groups and family:
        raise UsageError(f"no node group with nodes has the devices of {tool}")
    if not groups:
        raise UsageError("all node groups rest at zero nodes: `trn scale GROUP NODES` starts some, --group names one")
    return groups


def _test(
    group: NodeGroupOutput,
    options: TrainOptions,
    tool: str | None,
    against: str,
    before: dict[str, Any] | None,
    session: Session,
) -> GroupTest:
    team = Team(session)
    submission = team.plan(_options(group, options, tool, session))
    job = submission.job
    if job.launcher == "gang":
        title = f"the fabric test needs PyTorch, which {job.image} does not have"
        fix = "`trn local images make torch` makes local/torch" if session.is_local else "name an image by --image"
        raise UsageError(f"{title}: {fix}")
    team.create(submission)
    notice(as_typed(f"{job.name} tests {job.nodes} nodes of {group.name}; its log: trn logs {job.name} -f"))
    lines, pods = _follow(job.name, job.nodes, session)
    try:
        report = fabric.find_report(lines)
    except fabric.ReportFaultError as error:
        raise CommandError(f"the report of {job.name} cannot be read: {error}") from None
    if report is None:
        last = "\n".join(lines[-10:]) or "it wrote nothing"
        raise CommandError(f"{job.name} ended without a report: trn logs {job.name}", detail=last)
    checks = fabric.checks(report, group.name, pods, is_local=session.is_local)
    if against:
        earlier = before if against != LAST else report.get("before")
        checks += fabric.compare(report, earlier, group.name, is_local=session.is_local)
    return GroupTest(group, job.name, report, checks)


def _options(group: NodeGroupOutput, options: TrainOptions, tool: str | None, session: Session) -> TrainOptions:
    """Return the options by which `trn train` would submit the gang."""
    instance = session.outputs.catalogue[group.instance_type]
    claim = session.namespace.claim
    expected = fabric.expectation(group, instance, session.outputs, claim=claim, is_local=session.is_local)
    nodes = options.nodes or group.desired_size or None
    if session.is_local and nodes is not None and options.nodes is None:
        nodes = min(nodes, _LOCAL_NODES)
    arguments = ["--expect", json.dumps(expected, separators=(",", ":")), "--label", group.name]
    arguments += fabric_floors.LOCAL_ARGUMENTS if session.is_local else ()
    arguments += ["--tool", tool] if tool else []
    return replace(
        options,
        module=fabric.MODULE,
        arguments=(*arguments, *options.arguments),
        group=group.name,
        nodes=nodes,
        scale=options.nodes is not None,
        # The benchmark takes the devices itself, so the ranks leave them alone.
        backend="cpu" if tool else None,
        ranks_per_node=1 if tool else None,
        precision="fp32",
        retries=1,
        metrics=False,
    )


def _follow(name: str, nodes: int, session: Session) -> tuple[list[str], dict[str, str]]:
    """Read the logs until the job has ended; return their lines, and the nodes of the pods by name.

    Live, because Volcano deletes the pods of a gang of which one died.
    """
    lines: list[str] = []
    places: dict[str, str] = {}
    job = reading.find(session, name)
    options = LogOptions(follow=True, everything=nodes <= MOST_PODS)
    try:
        for batch in Job.of(session, job).log(options).batches:
            lines.extend(each.line.text for each in batch)
            if batch and not places:
                with contextlib.suppress(ClusterError):  # the names of pods will do
                    pods = reading.pods_of(session, job)
                    places.update({pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods})
    except KeyboardInterrupt:
        notice(as_typed(f"The job {name} is still running: trn logs {name} -f · trn cancel {name}"))
        raise
    return lines, places
