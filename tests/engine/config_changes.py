"""One config change of each kind, on the dev stack with a second queue."""

from collections.abc import Callable

from engine.rig import Config

Change = Callable[[Config], None]

_QUEUES = "trainium-eks:queues"


def second_queue(config: Config) -> None:
    """What every other change starts from."""
    config[_QUEUES].append({"name": "batch"})


def cost_center(config: Config) -> None:
    config["trainium-eks:costCenter"] = "research"


def desired_size(config: Config) -> None:
    config["trainium-eks:nodeGroups"][0]["desiredSize"] = 3


def queue_added(config: Config) -> None:
    config[_QUEUES].append({"name": "nightly"})


def queue_removed(config: Config) -> None:
    config[_QUEUES] = [queue for queue in config[_QUEUES] if queue["name"] != "batch"]


def namespace_added(config: Config) -> None:
    config["trainium-eks:namespaces"].append({"name": "vision", "queues": ["test"], "trainingUserId": 1001})


def kubernetes_version(config: Config) -> None:
    cluster = config["trainium-eks:cluster"]
    cluster["kubernetesVersion"] = "1.36"
    cluster["addons"] = {"kube-proxy": {"version": "v1.36.0-eksbuild.1"}}


def storage_size(config: Config) -> None:
    config["trainium-eks:fileSystem"]["storageCapacityGib"] = 2400


def instance_type(config: Config) -> None:
    config["trainium-eks:nodeGroups"][0]["instanceType"] = "trn1n.32xlarge"


def waiver(config: Config) -> None:
    config["trainium-eks:waivers"]["R06"]["reason"] = "Torn down every Friday."
