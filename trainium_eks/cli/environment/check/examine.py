"""Examinations of a stack, or of one job, by the caller's rights; commands that run out of time end with theirs."""

from dataclasses import replace
from datetime import UTC, datetime

from trainium_eks.cli.environment.check.compare import compared
from trainium_eks.client.cluster_access import StackAccess, find_source, open_kubeconfig
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import WRONG_USAGE, Failure, as_typed
from trainium_eks.client.session import find_namespace, open_session
from trainium_eks.kube import cluster as snapshots
from trainium_eks.kube import pod_logs
from trainium_eks.kube.api import Api
from trainium_eks.kube.api_reader import ApiReader
from trainium_eks.kube.cluster import Object, ReadError, namespace_of
from trainium_eks.kube.errors import ClusterError, MissingError
from trainium_eks.kube.pod_text import printable
from trainium_eks.model.validation.problems import nearest
from trainium_eks.operate.doctor.diagnosis import diagnose, known_names
from trainium_eks.operate.doctor.examination import KINDS, TEAM_KINDS, Examination
from trainium_eks.operate.doctor.findings import Diagnosis, unreachable
from trainium_eks.operate.doctor.findings import found as finding
from trainium_eks.operate.verify.examined import Examined, Made
from trainium_eks.operate.verify.made import OBJECTS
from trainium_eks.operate.verify.workloads import ENDED


def diagnosis(cluster: ClusterOptions, name: str = "", *, with_checks: bool = True) -> Diagnosis:
    """Return the faults of the stack; with a name or a namespace, the faults there, as the team's researcher.

    Args:
        cluster: options of the command.
        name: of a job, a service or a pod.
        with_checks: whether failed checks of ``trn verify`` are findings as well.

    Raises:
        Failure: there is no such stack, namespace or job.
    """
    try:
        if name or cluster.namespace:
            with open_session(cluster) as session:
                return _examined(session.source, session.api, session.namespace.name, name, with_checks, cluster)
        source = find_source(cluster.stack, cluster.outputs, cluster.kubeconfig, cluster.directory)
        with open_kubeconfig(source) as file:
            return _examined(source, Api.connect(file), "", "", with_checks, cluster)
    except MissingError:
        raise
    except (ReadError, ClusterError) as error:
        return _without_processes(cluster) or unreachable(error, cluster.stack)


def _without_processes(cluster: ClusterOptions) -> Diagnosis | None:
    """Return the ended processes of a local cloud, whose API server does not answer; None where all run."""
    local = find_source(cluster.stack, cluster.outputs, cluster.kubeconfig, cluster.directory).local
    ended = sorted(local.processes - local.running) if local else ()
    return Diagnosis(tuple(finding(ENDED, each, "has ended", process=each) for each in ended)) if ended else None


def closing(cluster: ClusterOptions, name: str = "", *, with_checks: bool = True) -> str:
    """Return the findings as the last lines of a command that ran out of time; empty without any.

    Args:
        cluster: options of the command.
        name: see :func:`diagnosis`, as the next.
        with_checks: whether failed checks are among them.
    """
    try:
        found = diagnosis(cluster, name, with_checks=with_checks)
    except (Failure, ClusterError, OSError, ValueError):
        return ""  # the command's own failure is told all the same
    lines = [f"  {each.fault}: {each.about}: {each.sentence}\n  → {each.remedy}" for each in found.findings]
    return printable(as_typed("\n".join(["The doctor finds:", *lines]))) if lines else ""


def with_closing(failure: Failure, cluster: ClusterOptions, namespace: str, name: str = "") -> Failure:
    """Return the failure of a researcher's command that ran out of time, with the doctor's findings as its end.

    Args:
        failure: of the command.
        cluster: options of the command.
        namespace: of the team.
        name: see :func:`diagnosis`.
    """
    said = closing(replace(cluster, namespace=namespace), name)
    detail = "\n".join(filter(None, (failure.detail, said)))
    return Failure(failure.code, failure.title, failure.problems, detail, failure.spell, failure.setting)


def _examined(
    source: StackAccess, api: Api, namespace: str, name: str, with_checks: bool, cluster: ClusterOptions
) -> Diagnosis:
    kinds = TEAM_KINDS if namespace else KINDS
    found = snapshots.read(ApiReader(api, namespace), kinds)
    if not namespace and "Pod" in found.unread and source.outputs.namespaces:
        # A researcher's own kubeconfig: of the team that it names, the first otherwise.
        return _examined(source, api, find_namespace(source.outputs, None).name, name, with_checks, cluster)

    if len(found.unread) == len(kinds):
        raise ReadError(f"your user may read nothing (401 or 403): {next(iter(found.unread.values()))}")

    def log(pod: Object, previous: bool) -> list[str]:
        return pod_logs.tail(api, namespace_of(pod) or namespace, pod, previous=previous)

    made = Made(unread={OBJECTS: "an administrator's kubeconfig compares them"})
    if not namespace:
        made = compared(source, api, cluster.directory) if with_checks else Made()
    examined = Examined(source.outputs, found, source.local, Made() if name else made)
    examination = Examination(examined, datetime.now(UTC), log, namespace)
    names = known_names(examination)
    if name and name not in names and not any(each.startswith(f"{name}-") for each in names):
        near = nearest(name, names)
        meant = f"did you mean {near}?" if near else "`trn jobs` lists jobs, `trn doctor --list` faults and alerts"
        raise Failure(WRONG_USAGE, f"{namespace} has no job {name!r}, and no fault or alert is called so: {meant}")
    return diagnose(examination, name, with_checks=with_checks)
