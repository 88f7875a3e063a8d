"""One config change of each kind, on the dev stack with a second queue, and what it does."""

from engine.rig import called

from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.rows import providers

_QUEUES, _GROUPS = "trainium-eks:queues", "trainium-eks:nodeGroups"


def second_queue(config):
    """What every other change starts from."""
    config[_QUEUES].append({"name": "batch"})


def kubernetes_version(config):
    addons = {"kube-proxy": {"version": "v1.36.0-eksbuild.1"}}
    config["trainium-eks:cluster"].update(kubernetesVersion="1.36", addons=addons)


VISION = {"name": "vision", "queues": ["test"], "trainingUserId": 1001}

CHANGES = {
    "cost center": lambda config: config.update({"trainium-eks:costCenter": "research"}),
    "desired size": lambda config: config[_GROUPS][0].update(desiredSize=3),
    "queue added": lambda config: config[_QUEUES].append({"name": "nightly"}),
    "queue removed": lambda config: config[_QUEUES].remove({"name": "batch"}),
    "namespace added": lambda config: config["trainium-eks:namespaces"].append(VISION),
    "Kubernetes version": kubernetes_version,
    "storage size": lambda config: config["trainium-eks:fileSystem"].update(storageCapacityGib=2400),
    "instance type": lambda config: config[_GROUPS][0].update(instanceType="trn1n.32xlarge"),
    "waiver": lambda config: config["trainium-eks:waivers"]["R06"].update(reason="Torn down every Friday."),
}

GROUP = "trn-dev-cluster-trn1-32xl-ng1"

VERSION = {
    "Addon trn-dev-cluster-coredns",
    "Addon trn-dev-cluster-kube-proxy",
    "Cluster trn-dev-cluster-eks-eksCluster",
} | {
    f"NodeGroup {name}-nodes"
    for name in ("trn-dev-cluster-cpu", "trn-dev-cluster-system", "trn-dev-cluster-trn1n-32xl-ng", GROUP)
}

LARGER = {
    "LustreFileSystem trn-dev-fsx-file-system",
    "PersistentVolume trn-dev-volumes-lustre-setup",
    "PersistentVolume trn-dev-volumes-training",
    "ResourceQuota trn-dev-training-quota",
}
REPLACED = {f"NodeGroup {GROUP}-nodes"} | {
    f"Tag {GROUP}-tag-{key}" for key in ("CostCenter", "Environment", "ManagedBy", "Owner")
}
"""A node group, and the tags of its Auto Scaling group."""

OTHER_INSTANCES = {
    f"LaunchTemplate {GROUP}-template",
    "Queue trn-dev-volcano-batch",
    "Queue trn-dev-volcano-test",
    "Release trn-dev-neuron-device-plugin",
    "Release trn-dev-neuron-efa-device-plugin",
}

WHOLE_NODES = {
    f"ValidatingAdmissionPolicy trn-dev-training-admission-{kind}"
    for kind in ("deployments", "job-sets", "jobs", "pods", "pytorch-jobs", "volcano-jobs")
}
SEATS = {f"{kind} trn-dev-training-requests" for kind in ("FlowSchema", "PriorityLevelConfiguration")}

DOES = {
    "desired size": {"update": {f"NodeGroup {GROUP}-nodes"}},
    "queue added": {"create": {"Queue trn-dev-volcano-nightly"}},
    "queue removed": {"delete": {"Queue trn-dev-volcano-batch"}},
    # The job makes the teams' directories: its list is new, and a job cannot be changed.
    # A second team also bounds the first one: its jobs take whole nodes, and its requests have separate seats.
    "namespace added": {"replace": {"Job trn-dev-volumes-directories"}, "update": WHOLE_NODES},
    "Kubernetes version": {"update": VERSION},
    "storage size": {"update": LARGER},
    "instance type": {"update": OTHER_INSTANCES, "replace": REPLACED},
    "waiver": {},
}
"""Config change to what the engine does besides :func:`tagged` and :func:`of_vision`, and nothing else."""


def of_vision(graph):
    """What another namespace creates: all that has its name."""
    return {called(each.urn) for each in graph.resources if "vision" in each.name}


def tagged(graph):
    """What another cost center updates: the provider, all that takes its default tags, and that tag of Auto Scaling
    groups."""
    return {
        called(each.urn)
        for each in graph.resources
        if each.custom
        and (each.type == providers.AWS.token or registry.of(each).tagged or each.name.endswith("-tag-CostCenter"))
    }


def expected(change, built, planned):
    """Return operation to resources of a change, components among them."""
    creates = {"create": of_vision(planned) | SEATS} if change == "namespace added" else {}
    return {**DOES.get(change, {"update": tagged(built)}), **creates}
