"""A small cluster as a snapshot that is all as its stack says, and ways to spoil it."""

import re
from typing import Any

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.local_report import LocalReport
from trainium_eks.model.catalogue import addon_records, chart_workloads
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.observe.faults.catalogue import BY_NAME
from trainium_eks.operate.verify.verify import verify

Object = dict[str, Any]
Objects = dict[str, list[Object]]

NEURON, EFA, GPU = "aws.amazon.com/neuron", "vpc.amazonaws.com/efa", "nvidia.com/gpu"
FILE_SYSTEM = "fs-0123456789abcdef0"
REAL = LocalReport(
    real_volcano=True, running=frozenset({"vc-scheduler", "vc-controller-manager", "vc-webhook-manager"})
)
"""Of a machine on which Volcano's own processes run."""


def group(name, resource, efa, desired, **changes):
    """A node group of the outputs, 0 to 4 nodes."""
    type_, devices = ("trn1.32xlarge", 16) if resource == NEURON else ("p4d.24xlarge", 8)
    named = {"name": name, "eksName": f"{name}-eks", "instanceType": type_, "zoneId": "usw2-az4"}
    sizes = {"minSize": 0, "maxSize": 4, "desiredSize": desired}
    found = {"resources": {resource: devices, EFA: efa}, "labels": {f"{resource}.present": "true"}}
    return {**named, **sizes, **found, **changes}


def outputs(**changes):
    """Two Trainium nodes, a resting group, a file system, one team, one queue."""
    shared = {"fileSystemId": FILE_SYSTEM, "dnsName": f"{FILE_SYSTEM}.fsx.us-west-2.amazonaws.com"}
    data = {
        "schemaVersion": 1,
        "region": "us-west-2",
        "clusterName": "trn-dev",
        "kubeconfig": "{}",
        "updateKubeconfigCommand": "aws eks update-kubeconfig",
        "queueNames": ["test"],
        "queues": {"test": {NEURON: 64, EFA: 32}},
        "namespaces": [{"name": "training", "queues": ["test"], "serviceAccount": "trainer", "claim": "fsx-claim"}],
        "nodeGroups": [group("ng1", NEURON, 8, 2), group("rest", NEURON, 16, 0)],
        "sharedVolume": {**shared, "mountName": "abcde", "capacityGib": 1200, "bucket": ""},
        "imageRepository": None,
        "serviceAccount": "trainer",
        "rendezvous": "c10d",
        "hourlyUsd": 1.0,
    }
    return StackOutputs.parse({**data, **changes})


def node(name, eks_group, resources, **labels):
    return {
        "metadata": {"name": name, "labels": {"eks.amazonaws.com/nodegroup": eks_group, **labels}},
        "spec": {"providerID": f"aws:///us-west-2d/i-{name}"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.35.4-eks-1a2b3c4"},
            "capacity": dict(resources),
            "allocatable": dict(resources),
        },
    }


def accelerated(name, of):
    """A node of a group of the outputs, with all that its type has."""
    places = {"node.kubernetes.io/instance-type": of["instanceType"], "topology.k8s.aws/zone-id": of["zoneId"]}
    resources = {key: str(value) for key, value in of["resources"].items()}
    return node(name, of["eksName"], resources, **places, **of["labels"])


def workload(each, pods):
    counts, spec = ("availableReplicas", "readyReplicas"), {"replicas": pods}
    if each.kind == "DaemonSet":
        counts, spec = ("desiredNumberScheduled", "numberReady"), {}
    made = named(each.name, each.namespace, kind=each.kind, spec=spec)
    made["metadata"]["generation"] = 1
    return {**made, "status": {"observedGeneration": 1, **dict.fromkeys(counts, pods)}}


def objects():
    """What the cluster of :func:`outputs` holds: three system nodes and two of ng1."""
    ng1 = group("ng1", NEURON, 8, 2)
    pods = {"all": 5, "neuron": 2, "efa": 2, "nvidia": 0, "none": 2}
    charts = ("neuron-helm-chart", "aws-efa-k8s-device-plugin", "neuron-monitor", "volcano")
    made = {
        "Node": [node(f"system{number}", "system-eks", {}) for number in range(3)]
        + [accelerated(f"trn{number}", ng1) for number in range(2)],
        "Namespace": [named(name, status={"phase": "Active"}) for name in ("training", "neuron-monitor")],
        "ServiceAccount": [named("trainer", "training")],
        "PersistentVolumeClaim": [
            named("fsx-claim", "training", spec={"volumeName": "pv-training"}, status={"phase": "Bound"})
        ],
        "PersistentVolume": [volume()],
        "StorageClass": [named("fsx", provisioner="fsx.csi.aws.com"), named("gp3", provisioner="ebs.csi.aws.com")],
        "Queue": [named("test", spec={"capability": {NEURON: 64, EFA: "32"}}, status={"state": "Open"})],
        "HyperNode": [
            hypernode("tier1-a", 1, "trn0"),
            hypernode("tier1-b", 1, "trn1"),
            hypernode("tier2-a", 2, "tier1-a", "tier1-b"),
        ],
        "MutatingWebhookConfiguration": [webhook(each) for each in ("jobs-mutate", "queues-mutate")],
        "ValidatingWebhookConfiguration": [
            webhook(f"{each}-validate") for each in ("cronjobs", "hypernodes", "jobs", "podgroups", "queues")
        ],
    }
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    the(made, "StorageClass", "gp3")["metadata"]["annotations"] = default
    made["CSINode"] = csi_nodes(made["Node"])
    running = [each for addon in addon_records.installed() for each in addon.workloads]
    running += [chart_workloads.HYPERNODES, *(each for chart in charts for each in chart_workloads.charts()[chart])]
    for each in running:
        count = 0 if each.kind == "DaemonSet" and each.nodes == "none" else pods[each.nodes]
        made.setdefault(each.kind, []).append(workload(each, count))
    return made


def named(name, namespace="", **fields):
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **fields}


def csi_nodes(nodes):
    drivers = [{"name": f"{each}.csi.aws.com"} for each in ("ebs", "fsx")]
    return [named(each["metadata"]["name"], spec={"drivers": drivers}) for each in nodes]


def volume():
    """The team's, as LustreVolumes makes it."""
    attributes = {"dnsname": f"{FILE_SYSTEM}.fsx.us-west-2.amazonaws.com", "mountname": "abcde/training"}
    handle = f"{FILE_SYSTEM}::training"
    csi = {"driver": "fsx.csi.aws.com", "volumeHandle": handle, "volumeAttributes": attributes}
    return named("pv-training", spec={"capacity": {"storage": "1200Gi"}, "csi": csi})


def hypernode(name, tier, *members, created="2026-05-01T10:00:00Z"):
    """One of nodes in tier 1, of other HyperNodes above, that a person made."""
    type_ = "Node" if tier == 1 else "HyperNode"
    named_members = [{"type": type_, "selector": {"exactMatch": {"name": each}}} for each in members]
    made = named(name, spec={"tier": tier, "members": named_members})
    made["metadata"]["creationTimestamp"] = created
    return made


def webhook(name):
    """A configuration of Volcano's, with the authority that its manager writes."""
    hooks = [{"name": "x.volcano.sh", "clientConfig": {"caBundle": "Y2E="}}]
    return named(f"volcano-admission-service-{name}", webhooks=hooks)


def the(made, kind, name):
    [found] = [each for each in made[kind] if each["metadata"]["name"] == name]
    return found


def without(made, kind, name):
    made[kind].remove(the(made, kind, name))


def unfilled(finding):
    """Names of the remedy that a finding leaves to its reader, in capitals."""
    names = re.findall(r"\{(\w+)\}", BY_NAME[finding.fault].remedy) if finding.fault in BY_NAME else ()
    return {each for each in names if re.search(rf"\b{each.upper()}\b", finding.fix)}


def judged(spoil=lambda _: None, *, local=None, stack=None, version="v1.35.4", unread=None, unserved=frozenset()):
    """All checks by id, of the sound cluster after something was done to it."""
    made = objects()
    spoil(made)
    held = {kind: tuple(found) for kind, found in made.items()}
    checks = verify(ClusterState(stack or outputs(), version, held, unserved, unread or {}, local=local))
    by_id = {check.id: check for check in checks}
    assert len(by_id) == len(checks), "two checks have the same id"
    return by_id
