"""One config change of each kind, on the dev stack with a second queue."""

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
