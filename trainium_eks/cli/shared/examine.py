"""Examinations of a stack, or of one job, by the caller's rights; commands that run out of time end with theirs."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainium_eks.client.cluster_access import StackAccess, find_source, open_kubeconfig
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError, UsageError, as_typed
from trainium_eks.client.project import find_project
from trainium_eks.client.session import find_namespace, open_session
from trainium_eks.diagnose.cluster_state import CHECKED_KINDS, KINDS, TEAM_KINDS, ReadError, read
from trainium_eks.diagnose.diagnosis import diagnose, known_names
from trainium_eks.diagnose.findings import found as finding
from trainium_eks.diagnose.findings import unreachable
from trainium_eks.kube import pod_logs
from trainium_eks.kube.api import Api
from trainium_eks.kube.cluster import Object, namespace_of
from trainium_eks.kube.errors import ClusterError, MissingError
from trainium_eks.kube.pod_text import printable
from trainium_eks.model.finding import Report, Status
from trainium_eks.model.validation.parsing import MISSHAPEN
from trainium_eks.model.validation.problems import nearest
from trainium_eks.operate.cleanup.state import StackState, StateError
from trainium_eks.operate.verify.comparison import OBJECTS, ObjectComparison, compare
from trainium_eks.operate.verify.verify import verify
from trainium_eks.operate.verify.workloads import ENDED

PAUSE_SECONDS = 5.0
"""Longest pause between two examinations; the first pauses are shorter."""


def diagnosis(cluster: ClusterOptions, name: str = "", *, checks: bool = True, faults: bool = True) -> Report:
    """Return the findings of the stack; with a name or a namespace, the findings there, as the team's researcher.

    ``checks`` judge the stack's parts, ``faults`` nodes, jobs and pods; objects are compared with the stack's state
    where both are asked for. Raises CommandError where there is no such stack, namespace or job.
    """
    try:
        if name or cluster.namespace:
            with open_session(cluster) as session:
                return _examined(session.source, session.api, session.namespace.name, name, cluster, checks, faults)
        source = find_source(cluster.stack, cluster.outputs, cluster.kubeconfig, cluster.directory)
        with open_kubeconfig(source) as file:
            return _examined(source, Api.connect(file), "", "", cluster, checks, faults)
    except MissingError:
        raise
    except (ReadError, ClusterError) as error:
        # The API server of a local cloud does not answer where its processes have ended.
        local = find_source(cluster.stack, cluster.outputs, cluster.kubeconfig, cluster.directory).local
        ended = sorted(local.processes - local.running) if local else ()
        found = [finding(ENDED, each, "has ended", process=each) for each in ended]
        return Report({"stack": cluster.stack or None}, tuple(found) or (unreachable(error, cluster.stack),))


def until_well(look: Callable[[], Report], seconds: float, say: Callable[[str], object]) -> Report:
    """Return the first report without a failure, or the last of so many seconds."""
    deadline = time.monotonic() + seconds
    pause = PAUSE_SECONDS / 8
    while True:
        report = look()
        left = deadline - time.monotonic()
        if not report.failed or left <= 0:
            return report
        say(f"failing: {', '.join(each.id for each in report.of(Status.FAIL))}; looking again for {left:.0f} s")
        time.sleep(min(pause, left))
        pause = min(2 * pause, PAUSE_SECONDS)


def closing(cluster: ClusterOptions, name: str = "", *, checks: bool = True) -> str:
    """Return the findings as the last lines of a command that ran out of time; empty without any."""
    try:
        report = diagnosis(cluster, name, checks=checks)
    except (CommandError, ClusterError, OSError, ValueError):
        return ""  # the command's own failure is reported in any case
    failed = report.of(Status.FAIL)
    lines = [f"  {each.fault}: {each.subject}: {each.text}\n  → {each.fix}" for each in failed]
    return printable(as_typed("\n".join(["The doctor finds:", *lines]))) if lines else ""


def with_closing(failure: CommandError, cluster: ClusterOptions, namespace: str, name: str = "") -> CommandError:
    """Return the failure of a researcher's command that ran out of time, with the doctor's findings as its end."""
    said = closing(replace(cluster, namespace=namespace), name)
    failure.detail = "\n".join(filter(None, (failure.detail, said)))
    return failure


def _examined(
    source: StackAccess, api: Api, namespace: str, name: str, cluster: ClusterOptions, checks: bool, faults: bool
) -> Report:
    def log(pod: Object, previous: bool) -> list[str]:
        return pod_logs.tail(api, namespace_of(pod) or namespace, pod, previous=previous)

    kinds = (TEAM_KINDS if namespace else KINDS) if faults else CHECKED_KINDS
    found = read(api, source.outputs, kinds, namespace, source.local, log)
    if not namespace and "Pod" in found.unread and source.outputs.namespaces:
        # A researcher's own kubeconfig: of the team that it names, the first otherwise.
        first = find_namespace(source.outputs, None).name
        return _examined(source, api, first, name, cluster, checks, faults)

    if len(found.unread) == len(kinds):
        raise ReadError(f"your user may read nothing (401 or 403): {next(iter(found.unread.values()))}")
    made = ObjectComparison()
    if namespace and not name:
        made = ObjectComparison(unread={OBJECTS: "an administrator's kubeconfig compares them"})
    elif not namespace and checks and faults:
        made = _compared(source, api, cluster.directory)
    names = known_names(found)
    if name and name not in names and not any(each.startswith(f"{name}-") for each in names):
        near = nearest(name, names)
        meant = f"did you mean {near}?" if near else "`trn jobs` lists jobs, `trn doctor --list` faults and alerts"
        raise UsageError(f"{namespace} has no job {name!r}, and no fault or alert of this name: {meant}")
    report = diagnose(found, name, checked=verify(found, made) if checks else (), faults=faults)
    facts = {"stack": source.stack or None, "cluster": source.outputs.cluster_name, "server": api.server}
    simulated = list(source.local.simulated) if source.local else []
    return replace(report, facts={**facts, "local": source.local is not None, "simulated": simulated, **report.facts})


def _compared(source: StackAccess, api: Api, directory: Path | None) -> ObjectComparison:
    """Return the comparison of the stack's objects with its cluster; empty, with the reason, where the stack's state
    cannot be read or changes meanwhile."""
    teams = [each.name for each in source.outputs.namespaces]
    try:
        if source.paths is not None:
            text = source.paths.made.read_text(encoding="utf-8")
            found = compare(api, StackState.parse(text, str(source.paths.made)), source.local, teams)
            if source.paths.made.read_text(encoding="utf-8") == text:
                return found
        elif source.stack:
            return compare(api, StackState.ask(source.stack, find_project(directory)), None, teams)
        why = "outputs from a file do not name them"
    except FileNotFoundError:
        why = "an `up` is running, or has failed"
    except (StateError, CommandError, ClusterError, OSError, *MISSHAPEN) as error:
        why = str(error).partition("\n")[0]
    return ObjectComparison(unread={OBJECTS: why})
