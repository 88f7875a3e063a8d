"""``trn verify --fabric``: a gang on each node group that tests nodes and network, and its judged report."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainium_eks.cli.environment.check.render_verify import checks_table
from trainium_eks.cli.environment.plan.render import show_sections
from trainium_eks.cli.shared.output import write_json
from trainium_eks.client import logs, reading, scaling, submitting
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure, as_typed
from trainium_eks.client.follow import MOST_PODS, Follower
from trainium_eks.client.notices import notice
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.submit import planning
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.catalogue import fabric_floors
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.operate.verify import fabric
from trainium_eks.operate.verify.check import Check, CheckStatus

LAST = "last"
"""``--against last``: the last good report on the volume."""
_LOCAL_NODES = 4
_FAMILIES = {"nccom-test": "neuron", "nccl-tests": "nvidia"}


@dataclass(frozen=True)
class FabricOptions:
    """The options of one call."""

    group: str | None = None
    nodes: int | None = None
    image: str | None = None
    against: str = ""
    """``last``, or a file with a report; empty for no comparison."""
    tool: str | None = None
    arguments: tuple[str, ...] = ()
    """Further arguments of the gang's script."""


@dataclass(frozen=True)
class Tested:
    """Result of one node group."""

    group: NodeGroupOutput
    job: str
    report: dict[str, Any]
    checks: list[Check]

    @property
    def failed(self) -> bool:
        """Whether a check failed, or the gang's own verdict is bad."""
        return not self.report.get("ok") or any(check.status is CheckStatus.FAIL for check in self.checks)


def run(asked: FabricOptions, cluster: ClusterOptions) -> int:
    """Test the node groups one after the other; return the exit code: 0, or 1 when a check failed."""
    before = _before(asked.against)
    with open_session(cluster) as session:
        results = [_test(group, asked, before, session) for group in _groups(asked, session)]
    if cluster.as_json:
        write_json({"schemaVersion": fabric.SCHEMA_VERSION, "groups": [_document(each) for each in results]})
    else:
        show_sections([_section(each) for each in results], no_color=cluster.no_color)
    return FAILED if any(each.failed for each in results) else 0


def _before(against: str) -> dict[str, Any] | None:
    """Return the report of a file to compare with; None without a file."""
    if against in ("", LAST):
        return None
    try:
        return fabric.read_report(Path(against).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, fabric.ReportFault) as error:
        raise Failure(WRONG_USAGE, f"--against {against}: {error}; give `last` or a report of this test") from None


def _groups(asked: FabricOptions, session: Session) -> list[NodeGroupOutput]:
    """Return the requested group, else each group that has nodes."""
    outputs = session.outputs
    if asked.group is not None:
        found = planning.find_group(outputs, asked.group)
        if not isinstance(found, NodeGroupOutput):
            raise Failure(WRONG_USAGE, "no group can be tested", found, spell=str)
        return [found]
    types = planning.catalogue(outputs)
    family = _FAMILIES.get(asked.tool or "")
    groups = [
        group
        for group in outputs.node_groups
        if group.desired_size != 0 and family in (None, types[group.instance_type].family)
    ]
    if not groups and family:
        raise Failure(WRONG_USAGE, f"no node group with nodes has the devices of {asked.tool}")
    if not groups:
        title = "all node groups rest at zero nodes: `trn scale GROUP NODES` starts some, --group names one"
        raise Failure(WRONG_USAGE, title)
    return groups


def _test(group: NodeGroupOutput, asked: FabricOptions, before: dict[str, Any] | None, session: Session) -> Tested:
    prepared = submitting.prepare(_options(group, asked, session), session, notice)
    job = prepared.job
    if job.launcher == "gang":
        title = f"the fabric test needs PyTorch, which {job.image} does not have"
        fix = "`trn local images make torch` makes local/torch" if session.is_local else "name an image by --image"
        raise Failure(WRONG_USAGE, f"{title}: {fix}")
    submitting.validate(prepared, session, notice)
    if asked.nodes is not None:
        scaling.for_gang(session, group, job.nodes, notice)
    submitting.submit(prepared, session, notice)
    notice(as_typed(f"{job.name} tests {job.nodes} nodes of {group.name}; its log: trn logs {job.name} -f"))
    lines, pods = _follow(job.name, job.nodes, session)
    try:
        report = fabric.find_report(lines)
    except fabric.ReportFault as error:
        raise Failure(FAILED, f"the report of {job.name} cannot be read: {error}") from None
    if report is None:
        last = "\n".join(lines[-10:]) or "it wrote nothing"
        raise Failure(FAILED, f"{job.name} ended without a report: trn logs {job.name}", detail=last)
    checks = fabric.checks(report, group.name, pods, is_local=session.is_local)
    if asked.against:
        earlier = before if asked.against != LAST else report.get("before")
        checks += fabric.compare(report, earlier, group.name, is_local=session.is_local)
    return Tested(group, job.name, report, checks)


def _options(group: NodeGroupOutput, asked: FabricOptions, session: Session) -> TrainOptions:
    """Return the gang as `trn train` would be asked for it."""
    instance = planning.catalogue(session.outputs)[group.instance_type]
    claim = session.namespace.claim
    expected = fabric.expectation(group, instance, session.outputs, claim=claim, is_local=session.is_local)
    nodes = asked.nodes or group.desired_size or None
    if session.is_local and nodes is not None and asked.nodes is None:
        nodes = min(nodes, _LOCAL_NODES)
    arguments = ["--expect", json.dumps(expected, separators=(",", ":")), "--label", group.name]
    arguments += fabric_floors.LOCAL_ARGUMENTS if session.is_local else ()
    arguments += ["--tool", asked.tool] if asked.tool else []
    return TrainOptions(
        module=fabric.MODULE,
        arguments=(*arguments, *asked.arguments),
        image=asked.image,
        group=group.name,
        nodes=nodes,
        # The benchmark takes the devices itself, so the ranks leave them alone.
        backend="cpu" if asked.tool else None,
        ranks_per_node=1 if asked.tool else None,
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
    wanted = logs.choose(job, logs.LogOptions(follow=True, everything=nodes <= MOST_PODS))
    try:
        for batch in Follower(session, job, wanted, notice).batches():
            lines.extend(each.line.text for each in batch)
            if batch and not places:
                with contextlib.suppress(ClusterError):  # the names of pods will do
                    pods = reading.pods_of(session, job)
                    places.update({pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods})
    except KeyboardInterrupt:
        notice(as_typed(f"The job {name} goes on: trn logs {name} -f · trn cancel {name}"))
        raise
    return lines, places


def _document(tested: Tested) -> dict[str, Any]:
    return {
        "group": tested.group.name,
        "job": tested.job,
        "ok": not tested.failed,
        "checks": [check.to_json() for check in tested.checks],
        "report": tested.report,
    }


def _section(tested: Tested) -> RenderableType:
    nodes = len(tested.report.get("nodes", ()))
    title = f"{tested.group.name} · {nodes} nodes of {tested.group.instance_type} · {tested.job}"
    verdict = Text("✗ the fabric is not as it must be", "bold red") if tested.failed else Text("✓ fabric", "bold green")
    return Group(
        Text(title, "bold underline"), Padding(checks_table(tested.checks), (0, 0, 0, 2), expand=False), verdict
    )
