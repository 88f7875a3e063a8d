"""``trn local up`` and ``down``: the deployment of a stack's program on this machine."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local import inventory, toolchain
from trainium_eks.local.changes import Change, LocalCloudError
from trainium_eks.local.control_plane import processes
from trainium_eks.local.control_plane.control_plane import ControlPlane, StartResult, check_same_cluster
from trainium_eks.local.control_plane.flags import SERVICE_RANGE
from trainium_eks.local.control_plane.programs import SHIM
from trainium_eks.local.events import BackendOptions, Done, Event, Failed, from_json
from trainium_eks.local.inventory import Item
from trainium_eks.local.lock import locked
from trainium_eks.local.makers import Makers
from trainium_eks.local.nodes.addon_workloads import await_daemon_sets
from trainium_eks.local.nodes.node_pools import adopted_zones
from trainium_eks.local.nodes.resizing import with_nodes
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases import training_operator
from trainium_eks.local.releases.training_operator import OperatorSource
from trainium_eks.local.releases.volcano import CHART as VOLCANO_CHART
from trainium_eks.local.releases.volcano import Programs
from trainium_eks.local.runtime.isolation import Chosen
from trainium_eks.model.catalogue.addon_records import ADDONS
from trainium_eks.model.catalogue.versions import KUBERNETES
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording import assumptions
from trainium_eks.plan.recording.process import Live, ProgramFailedError, ProgramTimeoutError, record
from trainium_eks.plan.recording.project import load_project

PROGRAM_SECONDS = 1800.0
"""How long a whole program may take: releases wait up to ten minutes each, several one after another."""


class Reporter(Protocol):
    """A display of the progress of ``trn local up``."""

    def phase(self, text: str) -> None:
        """Show the current step, named in a few words."""

    def planned(self, graph: Graph) -> None:
        """Show the plan, recorded before anything starts."""

    def started(self, started: StartResult) -> None:
        """Show that the control plane runs."""

    def event(self, event: Event) -> None:
        """Show an event of a resource."""


@dataclass(frozen=True)
class UpRequest:
    """The options of ``trn local up``."""

    project: Path
    stack: str
    nodes: int | None = None
    """Nodes of the first accelerator group; as configured when None."""


@dataclass(frozen=True)
class Result:
    """The result of an ``up``."""

    graph: Graph
    outputs: Mapping[str, Any]
    started: StartResult
    changes: Mapping[str, Mapping[str, int]]
    not_installed: Mapping[str, str]
    notes: tuple[str, ...]
    real_volcano: bool
    seconds: float
    """Duration of the program's run and of the steps after it, without the start of the control plane."""

    @property
    def unchanged(self) -> bool:
        """Return whether the stack already matched the program."""
        return not self.started.started and not any(
            count for kind in self.changes.values() for change, count in kind.items() if change != Change.SAME
        )


class UpFailedError(LocalCloudError):
    """The error of a program that failed, or that has failed resources.

    Attributes:
        failures: URN and message of each failed resource, in order of time; empty when the program itself failed.
        detail: the program's own traceback and output.
    """

    def __init__(self, message: str, failures: tuple[tuple[str, str], ...] = (), detail: str = "") -> None:
        self.failures = failures
        self.detail = detail
        super().__init__(message)


def up(asked: UpRequest, reporter: Reporter) -> Result:
    """Make a stack on this machine match its program. After a failure or a kill, the same command continues the work.

    Raises:
        ProjectError: no project, no stack.
        InvalidConfigError: the stack's config is refused; nothing was started.
        ProgramFailedError: the program raised before anything was started.
        UpFailedError: a resource failed on the way; completed resources stay.
        ClusterError: any other failure.
    """
    answers = _answers(asked)
    adjust = with_nodes(asked.nodes, load_project(asked.project).name)
    reporter.phase("Reading the program")
    plan = record(asked.project, asked.stack, adjust=adjust, assumptions=answers or assumptions.Assumptions())
    if answers is None and plan.placeholders:
        raise UpFailedError(
            f"the program looks things up: {'; '.join(plan.placeholders)}\n"
            f"Give the answers in answers.{asked.stack}.yaml beside the stack's config"
        )
    if plan.not_simulated:
        answers = answers or assumptions.Assumptions()
    reporter.planned(plan)
    minor, paths = kubernetes_minor(plan), Paths.of(asked.project, asked.stack)
    check_same_cluster(paths, minor, service_range(plan))  # before programs are built for nothing
    binaries = toolchain.provide(*toolchain.kubernetes(minor), progress=reporter.phase)
    programs = {name: binary.path for name, binary in binaries.items()}
    volcano = _volcano(plan, reporter.phase)
    operator = OperatorSource.of(plan, reporter.phase, os.environ)
    with locked(paths, f"trn local up --stack {asked.stack}"):
        reporter.phase("Starting Kubernetes")
        processes.trim_logs(paths)
        plane = ControlPlane(paths, programs, kubernetes_minor=minor, service_range=service_range(plan))
        started = plane.start(reporter.phase)
        reporter.started(started)
        begun = time.monotonic()
        before = inventory.load(paths)
        inventory.begin(paths, plan, before)
        tally = _Tally(reporter)
        addons = {str(each.inputs.get("addonName")) for each in plan.of_type("aws:eks/addon:Addon")}
        options = BackendOptions(
            root=str(paths.root),
            project=str(asked.project),
            helm=str(programs["helm"]),
            server=started.server,
            instance_types=plan.config.get("instanceTypes") or {},
            adopted_zones=adopted_zones(plan.config),
            csi_drivers=[each.driver.name for each in ADDONS.values() if each.driver and each.name in addons],
            volcano={name: str(path) for name, path in volcano.paths.items()},
            volcano_missing=volcano.missing,
        )
        graph = _run_program(asked, adjust, answers, options, tally)
        now = inventory.list_items(graph)
        tally.changes["simulated"] = inventory.count_simulated(before, now)
        _delete_all(inventory.find_removed(before, now), Makers(paths, asked.project, programs["helm"]), tally)
        tally.notes += training_operator.settle(graph, paths, operator, reporter.phase)
        tally.notes += await_daemon_sets(plane.get, reporter.phase)
        tally.notes += [f"not simulated, so not made on this machine: {type_}" for type_ in plan.unjudged]
        if isolation := Chosen.load(paths.pods):
            tally.notes += isolation.sentences()
        outputs = _outputs(graph, paths, asked.stack)
        result = Result(
            graph=graph,
            outputs=outputs,
            started=started,
            changes={kind: dict(counts) for kind, counts in sorted(tally.changes.items())},
            not_installed={**tally.not_installed, **_kustomizations(graph, operator)},
            notes=tuple(tally.notes),
            real_volcano=any(each.name == "vc-controller-manager" for each in processes.running(paths)),
            seconds=time.monotonic() - begun,
        )
        processes.write_json(paths.outputs, outputs)
        processes.write_json(paths.report, _report(result, paths))
        inventory.complete(paths, now)
    return result


def down(paths: Paths, stack: str) -> tuple[str, ...]:
    """End a stack's processes and remove all its files but the cached binaries and charts.

    Return the names of the ended processes.
    """
    if not paths.root.exists():
        return tuple(processes.stop(paths))
    with locked(paths, f"trn local down --stack {stack}"):
        ended = tuple(processes.stop(paths))
        try:
            shutil.rmtree(paths.root)
        except OSError as error:
            raise LocalCloudError(f"{error.filename} cannot be removed: {error.strerror}") from None
    if paths.root.parent.is_dir() and not any(paths.root.parent.iterdir()):
        paths.root.parent.rmdir()
    return ended


def kubernetes_minor(graph: Graph) -> str:
    """Return the Kubernetes version of the program's cluster; the library's default for a program without a cluster."""
    clusters = graph.of_type("aws:eks/cluster:Cluster")
    return next((str(each.inputs["version"]) for each in clusters if each.inputs.get("version")), KUBERNETES)


def service_range(graph: Graph) -> str:
    """Return the service CIDR of the program's cluster; the local cloud's default where the cluster names none."""
    networks = (each.inputs.get("kubernetesNetworkConfig") or {} for each in graph.of_type("aws:eks/cluster:Cluster"))
    return next((str(each["serviceIpv4Cidr"]) for each in networks if each.get("serviceIpv4Cidr")), SERVICE_RANGE)


def _volcano(graph: Graph, progress: Callable[[str], None]) -> Programs:
    """Return Volcano's programs, for a stack that installs it."""
    releases = graph.of_type("kubernetes:helm.sh/v3:Release")
    if not any(each.inputs.get("chart") == VOLCANO_CHART for each in releases):
        return Programs()
    return Programs.provided(progress, os.environ)


@dataclass
class _Tally:
    """A counter of events, which passes each event on to the reporter."""

    reporter: Reporter
    changes: dict[str, Counter[str]] = field(default_factory=dict)
    not_installed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        match event:
            case Done():
                self.notes += event.notes
                if event.not_installed:
                    self.not_installed[event.name] = event.not_installed
                elif event.change is not Change.KEPT:
                    self.changes.setdefault(event.kind, Counter())[event.change] += 1
            case Failed():
                self.failures.append((event.urn, event.message))
        self.reporter.event(event)


def _answers(asked: UpRequest) -> assumptions.Assumptions | None:
    """Return what the project's own file answers for other stacks; None without such a file."""
    try:
        return assumptions.of_stack(asked.project, asked.stack)
    except assumptions.AssumptionsError as error:
        raise UpFailedError(str(error)) from None


def _run_program(
    asked: UpRequest,
    adjust: Callable[..., Any],
    answers: assumptions.Assumptions | None,
    options: BackendOptions,
    tally: _Tally,
) -> Graph:
    def heard(event: Mapping[str, Any]) -> None:
        tally(from_json(event))

    live = Live("trainium_eks.local.backend:open_backend", asdict(options), heard)
    try:
        return record(
            asked.project, asked.stack, adjust=adjust, live=live, timeout_seconds=PROGRAM_SECONDS, assumptions=answers
        )
    except ProgramFailedError as error:
        if tally.failures:
            raise UpFailedError("the stack is not complete", tuple(tally.failures)) from None
        raise UpFailedError(
            f"the program failed: {error.message}", detail=f"{error.traceback}\n{error.output}"
        ) from None
    except ProgramTimeoutError as error:
        raise UpFailedError(str(error), tuple(tally.failures)) from None


def _delete_all(left: list[Item], makers: Makers, tally: _Tally) -> None:
    """Delete the resources that are no longer in the program, newest first."""
    if protected := [each.urn for each in left if each.protect]:
        listed = "\n".join(f"  {urn}" for urn in protected)
        raise UpFailedError(f"these are no longer in the program but protected, so nothing was deleted:\n{listed}")
    deletable = {each.urn: each for each in left if not each.retain}
    for each in reversed(left):
        # A claim is deleted with its namespace, even while pods hold it.
        deleted = deletable.get(each.deleted_with, each)
        try:
            if not each.retain:
                makers.delete(deleted.kind, deleted.reference)
        except ClusterError as error:
            tally(Failed(each.urn, str(error)))
            text = "what is no longer in the program could not be deleted"
            raise UpFailedError(text, tuple(tally.failures)) from None
        name = each.urn.rpartition("::")[2]
        tally(Done(each.urn, each.kind, name, Change.KEPT if each.retain else Change.DELETED))


def _outputs(graph: Graph, paths: Paths, stack: str) -> dict[str, Any]:
    """Return the program's outputs with a kubeconfig that works here: on AWS, it would get its tokens from AWS."""
    outputs = dict(graph.outputs)
    if "kubeconfig" in outputs:
        outputs["kubeconfig"] = paths.kubeconfig.read_text(encoding="utf-8")
    if "updateKubeconfigCommand" in outputs:
        outputs["updateKubeconfigCommand"] = f"trn kubeconfig --admin --stack {stack} > kubeconfig"
    return outputs


def _report(result: Result, paths: Paths) -> dict[str, Any]:
    """Return the report that ``trn doctor`` reads (:mod:`trainium_eks.operate.verify.local_report`)."""
    return {
        "schemaVersion": 1,
        "local": True,
        "notInstalled": [{"name": name, "reason": why} for name, why in sorted(result.not_installed.items())],
        "simulated": sorted(result.graph.simulated),
        "realVolcano": result.real_volcano,
        "processes": sorted({each.name for each in processes.running(paths)} - {SHIM}),
    }


def _kustomizations(graph: Graph, operator: OperatorSource) -> dict[str, str]:
    """Return a reason for each kustomization, which Pulumi's Kubernetes provider would build but nothing here does."""
    reason = "Pulumi's Kubernetes provider builds it from files that it fetches; not made here"
    if operator.program is not None:
        reason = "its program runs on this machine instead of in a Deployment"
    return {each.name: reason for each in graph.of_type("kubernetes:kustomize/v2:Directory")}
