"""One config change of each kind, on the dev stack with a second queue."""

from collections.abc import Callable, Mapping

from engine.rig import Config

Change = Callable[[Config], object]

_QUEUES, _GROUPS = "trainium-eks:queues", "trainium-eks:nodeGroups"


def second_queue(config):
    """What every other change starts from."""
    config[_QUEUES].append({"name": "batch"})


def kubernetes_version(config):
    addons = {"kube-proxy": {"version": "v1.36.0-eksbuild.1"}}
    config["trainium-eks:cluster"].update(kubernetesVersion="1.36", addons=addons)


VISION = {"name": "vision", "queues": ["test"], "trainingUserId": 1001}

CHANGES: Mapping[str, Change] = {
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


def every_feature(config):
    """Everything that can be on at once, on any of the repository's stacks."""

    def section(name):
        found: Config = config.setdefault(f"trainium-eks:{name}", {})
        return found

    account = "arn:aws:iam::111122223333"
    types = {each["instanceType"] for each in config[_GROUPS]}
    config[_GROUPS] += [
        {"name": name, "instanceType": type_, "maxSize": 1}
        for name, type_ in (("neuron", "trn1.2xlarge"), ("gpu", "p5.4xlarge"))
        if type_ not in types
    ]
    pool = {"name": "inference", "instanceType": "inf2.48xlarge", "maxNodes": 2}
    section("autoscaling")["karpenter"] = {"acceleratorPools": [pool]}
    section("autoscaling").pop("clusterAutoscaler", None)
    if "trainium-eks:existingNetwork" not in config:
        section("network").update(natGateways="per-zone", interfaceEndpoints=["ecr.api", "ecr.dkr", "sts", "logs"])
    section("cluster")["adminPrincipals"] = [f"{account}:role/oncall"]
    section("fileSystem").update(durability={"type": "s3"}, onDemand=True, metadataIops=6000)
    section("volcano").update(rendezvous="etcd", scaleFromZero=True, reclaim=True, replicas=3)
    for each in config["trainium-eks:namespaces"]:
        each.update(principals=[f"{account}:role/{each['name']}"], dataBucket="data-sets")
    section("imageRepository")["keptImages"] = 10
    section("neuronAddons")["schedulerExtension"] = True
    section("gpuAddons")["trainers"] = ["v2"]
    section("observability").update(
        metrics={"managedPrometheus": True, "alerts": {"topicArn": "arn:aws:sns:us-west-2:111122223333:oncall"}},
        grafana={"managed": {}},
        logs={"retentionDays": 365, "system": True},
    )
    section("idleGuard").update(warnAfterMinutes=10, removeAfterMinutes=60)
    section("budget").update(hourlyUsd=10_000, nodes=200, alert={"monthlyUsd": 1000, "emails": ["a@example.com"]})
