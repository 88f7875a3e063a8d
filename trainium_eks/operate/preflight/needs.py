"""Needs of a recorded program in an AWS account, read from its resources."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.config.capacity import CapacityBlock
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.node_labels import POOL_LABEL
from trainium_eks.model.validation.config_model import ConfigModelError, read
from trainium_eks.model.validation.problems import join
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import at, items, leaves, mapping, number, text
from trainium_eks.plan.rules._autoscaled import Pool, node_pools
from trainium_eks.plan.rules._endpoint import Endpoint, endpoints
from trainium_eks.plan.rules._images import CACHE_RULE, images
from trainium_eks.plan.subjects import ADDON, ASSOCIATION, CLUSTER, FILE_SYSTEM, VPC, NodeGroup

SIMULATED = re.compile(r"\bsim-[0-9a-f]{8}|(?<!\d)0{12}(?!\d)")
"""Values that recording invents: the end of a generated name, and the account."""

PRIVATE_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[^\s\"'@:]+[:@][^\s\"']+")
"""An image of a private ECR registry, with its tag or digest."""

BUYING = {"SPOT": "spot", "CAPACITY_BLOCK": "capacity-block"}


_POOL_FIELDS = {
    "capacity.id": "capacity_reservation_ids",
    "capacity.zone_id": "zone_id",
    "desired_size": "max_nodes",
    "max_size": "max_nodes",
}
"""Field of a node group to that of a pool of Karpenter with the same meaning."""


@dataclass(frozen=True)
class Group:
    """Nodes of one kind: a managed node group, or a pool of Karpenter."""

    name: str
    """As the config calls it: ``trn1-32xl-ng1``, ``system``."""
    path: str
    """Path of its size in the config, as Python spells it: ``node_groups[0]``; empty where it cannot be seen."""
    instance_type: str
    """``trn1.32xlarge``; empty where it cannot be seen."""
    instance: InstanceType | None
    zones: tuple[str, ...]
    """Zone ids (zone names, where the program gives those)."""
    desired: int
    maximum: int
    buying: str
    """``on-demand``, ``spot``, ``reservation`` or ``capacity-block``."""
    reservation: str
    """Id of its Capacity Reservation or Block; empty without one."""
    placement_group: str
    """Name of an existing placement group; empty for none, and for one that the stack makes."""
    ami_type: str
    release: str
    """AMI release, ``1.35.8-20260930``."""
    root_gib: int
    interfaces: int
    karpenters: bool = False
    """Whether Karpenter starts the nodes, one by one, and none on an ``up``."""

    def field(self, name: str) -> str:
        """Return the name in the group's own config section for a field of a node group."""
        return _POOL_FIELDS.get(name, name) if self.karpenters else name

    @property
    def vcpus(self) -> int:
        """Return the vCPUs of one node, as EC2's quotas count them; 0 for a type that the catalogue does not know."""
        return self.instance.vcpus if self.instance else 0

    @property
    def quota(self) -> str:
        """Return the code of the EC2 quota that its launches count against; empty for Capacity Blocks, which count
        against none (EC2 user guide, Capacity Blocks), and where none is known."""
        if self.instance is None or self.buying == "capacity-block":
            return ""
        return self.instance.quota_spot if self.buying == "spot" else self.instance.quota_on_demand


@dataclass(frozen=True)
class FileSystem:
    """A Lustre file system."""

    deployment_type: str
    """``PERSISTENT_2``, ``SCRATCH_2``."""
    storage_gib: int


@dataclass(frozen=True)
class Bucket:
    """An existing bucket."""

    name: str
    use: str
    """``the file system's link``, ``namespace research``."""
    path: str
    key: str = ""
    """ARN of its KMS key by the config; empty for none."""

    @property
    def key_path(self) -> str:
        """Return the path of its key in the config."""
        return f"{self.path}_key_arn"


class Needs:
    """The needs of one environment."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.stack = graph.stack

    @cached_property
    def config(self) -> StackConfig | None:
        """Return the environment's config; None for another program's."""
        try:
            return read(StackConfig, dict(self.graph.config))
        except ConfigModelError:
            return None

    @cached_property
    def region(self) -> str:
        """Return the region of the program's provider, or of its config; empty without one."""
        named = (text(each.inputs.get("region")) for each in self.graph.of_type("pulumi:providers:aws"))
        return next(filter(None, named), "") or text(self.graph.config.get("region"))

    @property
    def accounts(self) -> tuple[str, ...]:
        """Return the only accounts that the environment may be built in; empty for any."""
        return tuple(str(each).zfill(12) for each in items(self.graph.config.get("allowedAccountIds")))

    @cached_property
    def cluster_name(self) -> str:
        """Return the cluster's name; for a generated name the part before Pulumi's random ending, with its dash."""
        names = [plane.name for plane in self.graph.control_planes]
        return SIMULATED.sub("", names[0]) if names else ""

    @cached_property
    def kubernetes(self) -> str:
        """Return the minor version of the control plane; empty without one."""
        found = (text(plane.read("version", "version")[1]) for plane in self.graph.control_planes)
        return next(filter(None, found), "")

    @cached_property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the access settings of each cluster's API endpoint."""
        return tuple(endpoints(self.graph))

    @cached_property
    def addons(self) -> Mapping[str, str]:
        """Return EKS add-ons, each with its pinned version (empty for EKS' default)."""
        each = self.graph.of_type(ADDON)
        return {text(a.inputs.get("addonName")): text(a.inputs.get("addonVersion")) for a in each}

    @cached_property
    def admins(self) -> Mapping[str, str]:
        """Return the ARNs that get an access entry, each with the name of the resource that creates the entry."""
        entries = self.graph.of_type("aws:eks/accessEntry:AccessEntry")
        return {text(each.inputs.get("principalArn")): each.name for each in entries}

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Return every managed node group, and every pool of Karpenter, once for each of its reservations."""
        pools = (group for pool in node_pools(self.graph) for group in self._pool(pool))
        return (*(self._group(group) for group in self.graph.node_groups), *pools)

    @cached_property
    def blocks(self) -> Mapping[str, CapacityBlock]:
        """Return the Capacity Blocks with start, end and nodes in the config, by their node groups."""
        groups = self.config.node_groups if self.config else ()
        found = {each.name: each.capacity for each in groups}
        return {name: each for name, each in found.items() if isinstance(each, CapacityBlock) and each.nodes}

    @property
    def vpcs(self) -> int:
        """Return the number of VPCs that the program creates."""
        return len(self.graph.of_type(VPC))

    @property
    def elastic_ips(self) -> int:
        """Return the number of Elastic IP addresses that the program allocates."""
        return len(self.graph.of_type("aws:ec2/eip:Eip"))

    @cached_property
    def file_systems(self) -> tuple[FileSystem, ...]:
        """Return the Lustre file systems that the program creates."""
        return tuple(
            FileSystem(text(each.inputs.get("deploymentType")), _whole(each.inputs.get("storageCapacity")))
            for each in self.graph.of_type(FILE_SYSTEM)
        )

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        """Return the existing buckets that the program uses, each once."""
        return tuple({bucket.name: bucket for bucket in self._buckets()}.values())

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """Return the ARN of each existing KMS key, with the service through which the stack's roles use it."""
        topic = text(at(self.graph.config, "observability.metrics.alerts.topicKeyArn"))
        found = {each.key: "s3" for each in self.buckets if each.key}
        return {**found, **({topic: "sns"} if topic else {})}

    @cached_property
    def repositories(self) -> tuple[str, ...]:
        """Return the names of the ECR repositories that the program creates."""
        return self._fixed("aws:ecr/repository:Repository", "name")

    @cached_property
    def log_groups(self) -> tuple[str, ...]:
        """Return the fixed names of log groups; a generated name, with Pulumi's random ending, cannot be taken."""
        return self._fixed("aws:cloudwatch/logGroup:LogGroup", "name")

    @cached_property
    def placement_groups(self) -> frozenset[str]:
        """Return the existing placement groups that nodes launch into."""
        return frozenset(group.placement_group for group in self.groups if group.placement_group)

    @cached_property
    def images(self) -> tuple[str, ...]:
        """Return the images of private ECR registries in Kubernetes objects and charts."""
        found: dict[str, None] = {}
        for resource in self.graph.resources:
            if resource.type.startswith("kubernetes:"):
                for _, value in leaves(resource.inputs):
                    for image in PRIVATE_IMAGE.finditer(text(value)):
                        found.setdefault(image[0])
        # A cache's image is there after its first pull.
        caches = tuple(f"/{each}/" for each in self.caches)
        return tuple(image for image in found if not SIMULATED.search(image) and not any(map(image.count, caches)))

    @cached_property
    def caches(self) -> Mapping[str, str]:
        """Return the prefix of each pull-through cache rule, with the ARN of its secret; empty for none."""
        rules = self.graph.of_type(CACHE_RULE)
        return {text(e.inputs.get("ecrRepositoryPrefix")): text(e.inputs.get("credentialArn")) for e in rules}

    @cached_property
    def uncached(self) -> tuple[str, ...]:
        """Return the images of charts and pods that do not come from an ECR registry, without tags."""
        found = (each for _, of_resource in images(self.graph) for each in of_resource)
        return tuple(sorted({each for each in found if ".dkr.ecr." not in each}))

    @cached_property
    def linked_services(self) -> tuple[str, ...]:
        """Return the services that need a service-linked role in the account."""
        uses = {
            "eks.amazonaws.com": self.graph.of_type(CLUSTER),
            "eks-nodegroup.amazonaws.com": self.graph.node_groups,
            "autoscaling.amazonaws.com": self.graph.node_groups,
            "spot.amazonaws.com": [group for group in self.groups if group.buying == "spot"],
            "fsx.amazonaws.com": self.graph.of_type(FILE_SYSTEM),
            "pullthroughcache.ecr.amazonaws.com": list(filter(None, self.caches.values())),
            "sagemaker.application-autoscaling.amazonaws.com": self.graph.of_type("aws:appautoscaling/target:Target"),
        }
        return tuple(service for service, needed in uses.items() if needed)

    @property
    def permissions_boundary(self) -> str:
        """Return the ARN of the policy that bounds the program's roles; empty without one."""
        return text(self.graph.config.get("permissionsBoundary"))

    def _group(self, group: NodeGroup) -> Group:
        inputs, settings = group.resource.inputs, group.settings
        name = text(mapping(inputs.get("labels")).get(POOL_LABEL)) or group.resource.name
        placement = text(at(settings, "placement.groupName"))
        is_made_here = self.graph.named(placement, "aws:ec2/placementGroup:PlacementGroup") is not None
        disks = (at(each, "ebs.volumeSize") for each in items(settings.get("blockDeviceMappings")))
        reservation = text(group.reservation)
        buying = BUYING.get(text(inputs.get("capacityType")), "reservation" if reservation else "on-demand")
        return Group(
            name=name,
            path=self._path(name),
            instance_type=group.type_name,
            instance=group.instance,
            zones=tuple(dict.fromkeys(filter(None, map(self.graph.zone_of, items(inputs.get("subnetIds")))))),
            desired=_whole(at(inputs, "scalingConfig.desiredSize")),
            maximum=_whole(at(inputs, "scalingConfig.maxSize")),
            buying=buying,
            reservation=reservation,
            placement_group="" if is_made_here else placement,
            ami_type=text(inputs.get("amiType")),
            release=text(inputs.get("releaseVersion")),
            root_gib=sum(_whole(size) for size in disks) or _whole(inputs.get("diskSize")),
            interfaces=len(group.interfaces) or 1,
        )

    def _pool(self, pool: Pool) -> Iterator[Group]:
        """Yield a pool at its limit, once for each reservation; of several types the smallest stands for all, because
        the limit counts CPUs."""
        instance = min(pool.instances, key=lambda each: each.vcpus, default=None)
        terms = [text(at(each, "id")) for each in items(pool.settings.get("capacityReservationSelectorTerms"))]
        disks = (at(each, "ebs.volumeSize") for each in items(pool.settings.get("blockDeviceMappings")))
        sizes = (text(each).removesuffix("Gi") for each in disks)
        name = text(at(pool.resource.inputs, "metadata.name"))
        for reservation in filter(None, terms) if any(terms) else ("",):
            yield Group(
                name=name,
                path=self._pool_path(name),
                instance_type=instance.name if instance else "",
                instance=instance,
                zones=tuple(dict.fromkeys(filter(None, map(self.graph.zone_of, pool.subnets)))),
                desired=0,
                maximum=pool.maximum if reservation == (terms or [""])[0] else 0,
                buying="reservation" if reservation else "on-demand",
                reservation=reservation,
                placement_group="",
                ami_type="",
                release="",
                root_gib=sum(int(size) for size in sizes if size.isdigit()),
                interfaces=len(items(pool.settings.get("networkInterfaces"))) or 1,
                karpenters=True,
            )

    def _pool_path(self, name: str) -> str:
        section = "autoscaling.karpenter"
        own = [text(at(each, "name")) for each in items(at(self.graph.config, f"{section}.acceleratorPools"))]
        return f"{section}.accelerator_pools[{own.index(name)}]" if name in own else ""

    def _path(self, name: str) -> str:
        own = [text(at(each, "name")) for each in items(self.graph.config.get("nodeGroups"))]
        if name in own:
            return join("node_groups", own.index(name))
        return {"system": "cluster.system_nodes", "cpu": "cluster.cpu_nodes"}.get(name, "")

    def _buckets(self) -> Iterator[Bucket]:
        for link in self.graph.of_type(ASSOCIATION):
            name = text(link.inputs.get("dataRepositoryPath")).removeprefix("s3://").split("/")[0]
            if name and not SIMULATED.search(name):
                key = text(at(self.graph.config, "fileSystem.durability.bucketKeyArn"))
                yield Bucket(name, "the file system's link", "file_system.durability.bucket", key)
        for index, namespace in enumerate(items(self.graph.config.get("namespaces"))):
            name = text(at(namespace, "dataBucket"))
            if name:
                key = text(at(namespace, "dataBucketKeyArn"))
                yield Bucket(name, f"namespace {text(at(namespace, 'name'))}", f"namespaces[{index}].data_bucket", key)

    def _fixed(self, type_: str, key: str) -> tuple[str, ...]:
        names = (text(each.inputs.get(key)) for each in self.graph.of_type(type_))
        return tuple(name for name in names if name and not SIMULATED.search(name))


def _whole(value: object) -> int:
    return int(number(value) or 0)
