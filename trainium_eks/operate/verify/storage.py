"""Storage: each team's claim is bound to a volume, one class is the default, and the nodes know the drivers."""

from collections.abc import Iterator

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.kube.cluster import is_ready, name_of
from trainium_eks.model.catalogue import addon_records
from trainium_eks.model.finding import Finding, failed, not_applicable, passed
from trainium_eks.model.outputs import SharedVolumeOutput
from trainium_eks.observe.faults.catalogue import BY_NAME

DEFAULT_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
UNREGISTERED = "driver-not-registered"


def checks(cluster: ClusterState) -> Iterator[Finding]:
    """Check claims, the default class and the drivers. Volumes and classes are compared as objects of the stack."""
    outputs = cluster.outputs
    volume = outputs.shared_volume
    if volume is None:
        yield not_applicable("storage/claims", "shared volume", "the stack has no file system")
    else:
        for namespace in outputs.namespaces:
            yield _claim(namespace.name, namespace.claim, volume, cluster)
        if not outputs.namespaces:
            yield not_applicable("storage/claims", "shared volume", "the stack has no namespace that claims it")
    yield _default_class(cluster)
    yield from _drivers(cluster)


def _drivers(cluster: ClusterState) -> Iterator[Finding]:
    """Check that the kubelets know the storage drivers: as many as have a ready pod of the driver's DaemonSet."""
    known = {
        name_of(each): [one["name"] for one in each["spec"].get("drivers") or ()] for each in cluster.of("CSINode")
    }
    nodes = [name_of(each) for each in cluster.of("Node") if is_ready(each)]
    lacking: dict[str, list[str]] = {}
    for addon in addon_records.ADDONS.values():
        for workload in addon.workloads if addon.driver else ():
            daemon = cluster.find("DaemonSet", workload.name, workload.namespace)
            if addon.driver and daemon:
                running = min(int((daemon.get("status") or {}).get("numberReady", 0)), len(nodes))
                without = [node for node in nodes if addon.driver.name not in known.get(node, ())]
                lacking[workload.name] = without if len(nodes) - len(without) < running else []
    faults = [f"{node}: without the driver of {daemon}" for daemon, without in lacking.items() for node in without]
    if faults:
        again = f"kubectl -n kube-system rollout restart daemonset {next(each for each in lacking if lacking[each])}"
        remedy = BY_NAME[UNREGISTERED].mend(restore=again if cluster.local is None else cluster.deploy)
        yield failed("storage/drivers", "drivers", "not known to all nodes", remedy, faults, fault=UNREGISTERED)
    elif lacking:
        yield passed("storage/drivers", "drivers", f"{', '.join(lacking)}: known to the nodes where they run")


def _claim(namespace: str, claim_name: str, volume: SharedVolumeOutput, cluster: ClusterState) -> Finding:
    id_, subject = f"storage/claim/{namespace}", f"{namespace}/{claim_name or 'claim'}"
    if not claim_name:
        return failed(id_, subject, "the outputs name no claim, though the stack has a file system", cluster.deploy)
    claim = cluster.find("PersistentVolumeClaim", claim_name, namespace)
    if claim is None:
        remedy, about = f"{cluster.deploy} makes it again", (f"PersistentVolumeClaim {namespace}/{claim_name}",)
        return failed(id_, subject, "does not exist", remedy, fault="claim-missing", objects=about)
    phase = claim.get("status", {}).get("phase", "unknown")
    name = claim.get("spec", {}).get("volumeName", "")
    if phase != "Bound":
        fault = "claim-not-bound"
        remedy = BY_NAME[fault].mend(namespace=namespace, claim=claim_name, deploy=cluster.deploy)
        detail = f"is {phase}: its volume {name} is gone" if phase == "Lost" else f"is {phase}, not Bound"
        return failed(id_, subject, detail, remedy, fault=fault, objects=(f"PersistentVolume {name}",))
    persistent = cluster.find("PersistentVolume", name)
    if persistent is None:
        return failed(
            id_,
            subject,
            f"is bound to {name}, which does not exist",
            f"delete the claim; {cluster.deploy} makes both again",
            objects=(f"PersistentVolume {name}",),
        )
    return passed(id_, subject, f"Bound, {volume.file_system_id}, {volume.capacity_gib} GiB")


def _default_class(cluster: ClusterState) -> Finding:
    id_, subject = "storage/class/default", "default class"
    marked = [
        name_of(each)
        for each in cluster.of("StorageClass")
        if (each["metadata"].get("annotations") or {}).get(DEFAULT_ANNOTATION) == "true"
    ]
    if len(marked) == 1:
        return passed(id_, subject, marked[0])
    if not marked:
        return failed(
            id_,
            subject,
            "no class is the default: a claim without a class waits for ever",
            f"{cluster.deploy} makes it again",
            fault="storage-class-missing",
        )
    remedy = f"leave one: kubectl annotate storageclass {marked[-1]} {DEFAULT_ANNOTATION}-"
    detail = f"{', '.join(marked)} all are: the newest wins"
    return failed(id_, subject, detail, remedy, fault="storage-class-missing")
