"""Checks of workloads: the deployments and DaemonSets of add-ons and charts exist and are ready, on every node that
needs them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.kube.cluster import Object
from trainium_eks.model.catalogue import addon_records
from trainium_eks.model.catalogue import chart_workloads as model
from trainium_eks.model.catalogue.chart_workloads import ETCD_CHART, Workload
from trainium_eks.model.catalogue.instances import EFA_RESOURCE, NEURON_RESOURCE, NVIDIA_RESOURCE
from trainium_eks.model.finding import Finding, Status, failed, not_applicable, not_checked, passed
from trainium_eks.model.validation.problems import plural
from trainium_eks.observe.faults.catalogue import BY_NAME
from trainium_eks.operate.verify import scheduling

DEVICE_PLUGINS: Mapping[str, str] = {
    "neuron-helm-chart": NEURON_RESOURCE,
    "nvidia-device-plugin": NVIDIA_RESOURCE,
    "aws-efa-k8s-device-plugin": EFA_RESOURCE,
}
"""Charts that a stack has when a group's nodes have the resource."""

ENDED = "local-process-ended"
"""Fault of a process of the local cloud that does not run any more."""

OPTIONAL: Mapping[str, str] = {
    "neuron-monitor": NEURON_RESOURCE,
    "dcgm-exporter": NVIDIA_RESOURCE,
    "training-operator": NVIDIA_RESOURCE,
    "kubeflow-trainer": NVIDIA_RESOURCE,
    "efa-exporter": EFA_RESOURCE,
}
"""Charts that the config can turn off without a trace in the outputs: each is recognised by its namespace."""

OBSERVING = ("kube-prometheus-stack", "fluent-bit")
"""Charts that the config can turn on for any groups."""

FSX_EXPORTER = "prometheus-yet-another-cloudwatch-exporter"
"""Exporter of the file system's metrics, where there is a file system."""

RELEASES: Mapping[str, str] = {"neuron-helm-chart": "neuron", FSX_EXPORTER: "fsx-exporter"}
"""Name of a chart's release, where it is not the chart's."""


PROCESSES: Mapping[str, str] = {
    "volcano-scheduler": "vc-scheduler",
    "volcano-controllers": "vc-controller-manager",
    "volcano-admission": "vc-webhook-manager",
}
"""Deployment of Volcano's chart to the program that it runs."""

_RESOURCES: Mapping[str, str] = {"neuron": NEURON_RESOURCE, "nvidia": NVIDIA_RESOURCE, "efa": EFA_RESOURCE}


def plugins(cluster: ClusterState) -> Iterator[Finding]:
    """Check EKS add-ons, device plugins, etcd for the rendezvous, and optional charts where they are installed."""
    offered = {resource for group in cluster.outputs.node_groups for resource in group.resources}
    for addon in addon_records.installed():
        region, name = cluster.outputs.region, cluster.outputs.cluster_name
        why = f"aws eks describe-addon --region {region} --cluster-name {name} --addon-name {addon.name}"
        for workload in addon.workloads:
            yield _judge(cluster, addon.name, workload, why)
    for chart, resource in DEVICE_PLUGINS.items():
        if resource in offered:
            yield from _of_chart(cluster, chart)
    for chart, resource in OPTIONAL.items():
        if resource in offered:
            yield from _of_optional(cluster, chart)
    for chart in (*OBSERVING, *((FSX_EXPORTER,) if cluster.outputs.shared_volume else ())):
        yield from _of_optional(cluster, chart)
    if cluster.outputs.rendezvous != "c10d":
        yield from _of_chart(cluster, ETCD_CHART)


def processes(cluster: ClusterState) -> Iterator[Finding]:
    """Check that the local cloud's processes of the last `up` still run. Another section has Volcano's."""
    for program in sorted((cluster.local.processes if cluster.local else frozenset()) - {*PROCESSES.values()}):
        id_ = f"server/{program}"
        if cluster.local and program not in cluster.local.running:
            yield failed(id_, program, "has ended", BY_NAME[ENDED].mend(process=program), fault=ENDED)
        else:
            yield passed(id_, program, "runs on this machine")


def volcano(cluster: ClusterState) -> Iterator[Finding]:
    """Check Volcano's three processes, and the controller that keeps its HyperNodes."""
    local = cluster.local
    for workload in model.charts()[scheduling.VOLCANO]:
        id_, program = f"volcano/{workload.name}", PROCESSES[workload.name]
        if local is None or local.missing(scheduling.VOLCANO):
            yield _judge(cluster, scheduling.VOLCANO, workload, _status_of(scheduling.VOLCANO, workload), id_=id_)
        elif not local.real_volcano:
            reason = scheduling.simulated_volcano(cluster, program, "its pods are only simulated")
            yield not_checked(id_, workload.name, reason)
        # A local cluster's pods are simulated even where the processes are real: these run beside it.
        elif program in local.running:
            yield passed(id_, workload.name, f"{program} runs on this machine")
        else:
            remedy = f"trn local logs {program}; {cluster.deploy}"
            yield failed(id_, workload.name, f"{program} has ended", remedy, fault="volcano-process-down")
    yield _judge(
        cluster,
        model.HYPERNODES.name,
        model.HYPERNODES,
        "kubectl get events -n volcano-system",
        id_="volcano/hypernodes",
    )


def _of_chart(cluster: ClusterState, chart: str) -> Iterator[Finding]:
    for workload in model.charts()[chart]:
        yield _judge(cluster, chart, workload, _status_of(chart, workload))


def _of_optional(cluster: ClusterState, chart: str) -> Iterator[Finding]:
    for workload in model.charts()[chart]:
        there = cluster.find("Namespace", workload.namespace) is not None
        if there or cluster.missing(chart):
            yield _judge(cluster, chart, workload, _status_of(chart, workload))
        else:
            reason = f"off in this stack: there is no namespace {workload.namespace}"
            yield not_applicable(_id(chart, workload), workload.name, reason)


def _judge(cluster: ClusterState, owner: str, workload: Workload, why: str, *, id_: str = "") -> Finding:
    """Check one workload; ``why`` is the command that shows why its owner did not make it."""
    check = _of_workload(cluster, owner, workload, why, id_ or _id(owner, workload))
    about = (f"{workload.kind} {workload.namespace}/{workload.name}",)
    data = {"fault": _fault_of(owner, workload), "objects": about}
    return replace(check, data=data) if check.status is Status.FAIL else check


def _fault_of(owner: str, workload: Workload) -> str:
    """Return the fault of a workload that does not run."""
    if owner == scheduling.VOLCANO:
        return "volcano-process-down"
    if owner in DEVICE_PLUGINS:
        return "plugin-not-running"
    return "dns-not-running" if workload.name == "coredns" else "workload-not-running"


def _of_workload(cluster: ClusterState, owner: str, workload: Workload, why: str, id_: str) -> Finding:
    found = cluster.find(workload.kind, workload.name, workload.namespace)
    if found is None:
        reason = cluster.missing(owner, RELEASES.get(owner, owner))
        if reason:
            return not_checked(id_, workload.name, reason)
        if workload.kind == "DaemonSet" and workload.nodes == "none":
            return not_applicable(id_, workload.name, "there is no node for it")
        remedy = f"{why}; {cluster.deploy} makes it" if cluster.local is None else f"{cluster.deploy} makes it"
        detail = f"{workload.kind} {workload.namespace}/{workload.name} does not exist"
        return failed(id_, workload.name, detail, remedy)
    if workload.kind == "DaemonSet":
        return _daemon_set(id_, workload, found, _nodes_for(cluster, workload))
    return _replicas(id_, workload, found)


def _nodes_for(cluster: ClusterState, workload: Workload) -> Sequence[Object]:
    if workload.nodes == "all":
        return cluster.of("Node")
    return () if workload.nodes == "none" else cluster.nodes_with(_RESOURCES[workload.nodes])


def _daemon_set(id_: str, workload: Workload, found: Object, nodes: Sequence[Object]) -> Finding:
    status = found.get("status") or {}
    desired, ready = int(status.get("desiredNumberScheduled", 0)), int(status.get("numberReady", 0))
    if _is_stale(found):
        return failed(id_, workload.name, "its controller has not seen its latest version", _rollout(workload))
    if not nodes and not desired:
        return not_applicable(id_, workload.name, "there is no node for it")
    if desired < len(nodes):
        # The controller counts no node that the pods do not select, or with a taint that they do not tolerate.
        look = f"kubectl -n {workload.namespace} get daemonset {workload.name} -o yaml"
        remedy = f"compare its affinity and tolerations with the nodes' labels and taints: {look}; {workload.remedy}"
        return failed(id_, workload.name, f"is meant for {desired} of {plural(len(nodes), 'node')}", remedy)
    if ready < desired:
        look = f"kubectl -n {workload.namespace} get pods -o wide | grep {workload.name}"
        detail = f"ready on {ready} of {plural(desired, 'node')}"
        return failed(id_, workload.name, detail, f"{look}, then describe one; {workload.remedy}")
    return passed(id_, workload.name, f"ready on {plural(ready, 'node')}")


def _replicas(id_: str, workload: Workload, found: Object) -> Finding:
    wants = int((found.get("spec") or {}).get("replicas", 1))
    status = found.get("status") or {}
    has = int(status.get("availableReplicas" if workload.kind == "Deployment" else "readyReplicas", 0))
    if _is_stale(found):
        return failed(id_, workload.name, "its controller has not seen its latest version", _rollout(workload))
    if not wants:
        scale = f"kubectl -n {workload.namespace} scale {workload.kind.lower()} {workload.name} --replicas=1"
        return failed(id_, workload.name, "is scaled to zero", f"{scale}; {workload.remedy}")
    if has < wants:
        look = f"kubectl -n {workload.namespace} describe {workload.kind.lower()} {workload.name}"
        return failed(id_, workload.name, f"{has} of {wants} available", f"{look}; {workload.remedy}")
    return passed(id_, workload.name, f"{has} of {wants} available")


def _is_stale(found: Object) -> bool:
    """Return whether its status is about an earlier form of it."""
    seen = (found.get("status") or {}).get("observedGeneration", 0)
    return int(seen) < int(found["metadata"].get("generation", 0))


def _rollout(workload: Workload) -> str:
    return f"kubectl -n {workload.namespace} rollout status {workload.kind.lower()}/{workload.name}"


def _status_of(chart: str, workload: Workload) -> str:
    return f"helm -n {workload.namespace} status {RELEASES.get(chart, chart)}"


def _id(owner: str, workload: Workload) -> str:
    return f"plugins/{owner}/{workload.name}"
