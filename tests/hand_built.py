"""A small environment built by hand: every type that cost, time and comparison look at, and no program behind it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainium_eks.plan.graph import STACK_TYPE, Graph, Options, Resource

PREFIX = "urn:pulumi:dev::trainium-eks::"
STACK = f"{PREFIX}{STACK_TYPE}::trainium-eks-dev"


def urn(name: str, graph: Graph) -> str:
    """The URN of the one resource of that name."""
    [found] = [resource.urn for resource in graph.resources if resource.name == name]
    return found


class Builder:
    """Collects resources; ``made`` maps a name to its URN."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {"": STACK}
        self.resources = [Resource(STACK, STACK_TYPE, "trainium-eks-dev", custom=False)]

    def component(self, kind: str, name: str, parent: str = "", waits: tuple[str, ...] = ()) -> None:
        self._add(f"trainium-eks:index:{kind}", name, parent, custom=False, dependencies=self._urns(waits))

    def add(
        self,
        type_: str,
        name: str,
        parent: str = "",
        /,
        *,
        uses: Mapping[str, tuple[str, ...]] | None = None,
        waits: tuple[str, ...] = (),
        provider: str = "",
        options: Options = Options(),  # noqa: B008 - frozen
        **inputs: Any,
    ) -> None:
        """``uses``: input name to the resources whose outputs it takes. ``waits``: ``depends_on``."""
        properties = {key: self._urns(names) for key, names in (uses or {}).items()}
        named = {each for urns in properties.values() for each in urns} | set(self._urns(waits))
        for key in properties:
            inputs.setdefault(key, f"sim-{key}")
        self._add(
            type_,
            name,
            parent,
            inputs=inputs,
            dependencies=tuple(sorted(named)),
            property_dependencies=properties,
            provider=self.made[provider] if provider else "",
            options=options,
        )

    def graph(self, config: Mapping[str, Any] | None = None) -> Graph:
        resources = tuple(sorted(self.resources, key=lambda each: each.urn))
        config = {"region": "us-west-2", **(config or {})}
        return Graph("trainium-eks", "dev", resources, {"queueNames": ["test"]}, config, ("aws", "kubernetes"))

    def _urns(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(self.made[name] for name in names))

    def _add(self, type_: str, name: str, parent: str, **values: Any) -> None:
        self.made[name] = f"{PREFIX}{type_}::{name}"
        self.resources.append(Resource(self.made[name], type_, name, parent=self.made[parent], **values))


def environment(config: Mapping[str, Any] | None = None) -> Graph:
    """One zone's worth of the dev environment, in the order that a good design has."""
    build = Builder()
    _network(build)
    _cluster(build)
    _file_system(build)
    _volcano(build)
    return build.graph(config)


def _network(build: Builder) -> None:
    build.component("Network", "net")
    build.add("aws:kms/key:Key", "key")
    build.add("aws:ec2/vpc:Vpc", "vpc", "net", cidrBlock="10.0.0.0/16", tags={"Name": "net"})
    subnet = "aws:ec2/subnet:Subnet"
    build.add(subnet, "subnet", "net", uses={"vpcId": ("vpc",)}, cidrBlock="10.0.0.0/18", availabilityZoneId="usw2-az4")
    build.add("aws:ec2/eip:Eip", "address", "net", domain="vpc")
    build.add(
        "aws:ec2/natGateway:NatGateway", "nat", "net", uses={"subnetId": ("subnet",), "allocationId": ("address",)}
    )
    build.add(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "sts",
        "net",
        uses={"vpcId": ("vpc",)},
        vpcEndpointType="Interface",
        serviceName="com.amazonaws.us-west-2.sts",
        subnetIds=["subnet-1", "subnet-2"],
    )


def _cluster(build: Builder) -> None:
    build.component("TrainiumCluster", "eks")
    build.add("aws:iam/role:Role", "node-role", "eks", assumeRolePolicy="{}")
    build.add("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "worker", "eks", uses={"role": ("node-role",)})
    logs = "aws:cloudwatch/logGroup:LogGroup"
    build.add(logs, "logs", "eks", uses={"kmsKeyId": ("key",)}, name="/aws/eks/dev/cluster", retentionInDays=365)
    build.add(
        "aws:eks/cluster:Cluster",
        "control-plane",
        "eks",
        uses={"vpcConfig": ("subnet",)},
        waits=("logs",),
        vpcConfig={"subnetIds": ["sim-subnet"]},
        version="1.35",
        name="dev",
        enabledClusterLogTypes=["api"],
    )
    addon = "aws:eks/addon:Addon"
    build.add(
        addon, "cni", "eks", uses={"clusterName": ("control-plane",)}, addonName="vpc-cni", addonVersion="v1.22.3"
    )
    node_group(build, "system", "m6i.xlarge", 2, 3)
    build.add(addon, "dns", "eks", uses={"clusterName": ("control-plane",)}, waits=("system",), addonName="coredns")
    node_group(build, "trn1", "trn1.32xlarge", 2, 4, accelerated=True)
    build.add(
        "pulumi:providers:kubernetes", "k8s", "eks", uses={"clusterIdentifier": ("control-plane",)}, kubeconfig="{}"
    )


def node_group(
    build: Builder, name: str, instance_type: str, nodes: int, most: int, *, accelerated: bool = False
) -> None:
    """A group with its launch template."""
    efa = [{"interfaceType": "efa" if card == 0 else "efa-only"} for card in range(8 if accelerated else 0)]
    build.add(
        "aws:ec2/launchTemplate:LaunchTemplate",
        f"{name}-template",
        "eks",
        uses={"vpcSecurityGroupIds": ("control-plane",)},
        instanceType=instance_type,
        networkInterfaces=efa,
        blockDeviceMappings=[{"ebs": {"volumeSize": 100, "volumeType": "gp3", "throughput": 500, "iops": 3000}}],
    )
    taints = [{"key": "aws.amazon.com/neuron", "value": "present", "effect": "NO_SCHEDULE"}] if accelerated else []
    build.add(
        "aws:eks/nodeGroup:NodeGroup",
        name,
        "eks",
        uses={
            "clusterName": ("control-plane",),
            "nodeRoleArn": ("node-role",),
            "subnetIds": ("subnet",),
            "launchTemplate": (f"{name}-template",),
        },
        waits=("cni", "nat", "worker"),
        launchTemplate={"id": "sim-template", "version": "1"},
        subnetIds=["sim-subnet"],
        amiType="AL2023_x86_64_NEURON" if accelerated else "AL2023_x86_64_STANDARD",
        capacityType="ON_DEMAND",
        scalingConfig={"minSize": 0, "desiredSize": nodes, "maxSize": most},
        taints=taints,
    )


def _file_system(build: Builder) -> None:
    build.component("FsxLustre", "fsx")
    build.add("aws:ec2/securityGroup:SecurityGroup", "fsx-group", "fsx", uses={"vpcId": ("vpc",)})
    build.add(
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "lustre",
        "fsx",
        uses={"subnetIds": ("subnet",), "securityGroupIds": ("fsx-group",), "kmsKeyId": ("key",)},
        subnetIds=["sim-subnet"],
        deploymentType="PERSISTENT_2",
        storageCapacity=2400,
        perUnitStorageThroughput=250,
        options=Options(protect=True),
    )


def _volcano(build: Builder) -> None:
    build.component("VolcanoStack", "volcano", waits=("dns",))
    release = "kubernetes:helm.sh/v3:Release"
    build.add(release, "volcano-release", "volcano", provider="k8s", waits=("dns",), chart="volcano", version="1.15.0")
    build.add(
        "kubernetes:scheduling.volcano.sh/v1beta1:Queue",
        "queue-test",
        "volcano",
        provider="k8s",
        waits=("volcano-release",),
        kind="Queue",
        metadata={"name": "test"},
        spec={"capability": {"aws.amazon.com/neuron": 64}},
    )


def changed(graph: Graph, name: str, /, **inputs: Any) -> Graph:
    """The graph with some inputs of one resource set anew; None takes an input away."""

    def edit(resource: Resource) -> Resource:
        if resource.name != name:
            return resource
        edited = {**resource.inputs, **inputs}
        return replace(resource, inputs={key: value for key, value in edited.items() if value is not None})

    return replace(graph, resources=tuple(map(edit, graph.resources)))


def waiting(graph: Graph, name: str, *others: str) -> Graph:
    """The graph with one resource waiting for others besides."""
    more = {urn(other, graph) for other in others}

    def edit(resource: Resource) -> Resource:
        if resource.name != name:
            return resource
        return replace(resource, dependencies=tuple(sorted({*resource.dependencies, *more})))

    return replace(graph, resources=tuple(map(edit, graph.resources)))


def without(graph: Graph, *names: str) -> Graph:
    """The graph without some resources, and without anybody waiting for them."""
    gone = {resource.urn for resource in graph.resources if resource.name in names}

    def edit(resource: Resource) -> Resource:
        kept = {
            key: tuple(each for each in urns if each not in gone)
            for key, urns in resource.property_dependencies.items()
        }
        dependencies = tuple(each for each in resource.dependencies if each not in gone)
        return replace(resource, dependencies=dependencies, property_dependencies=kept)

    return replace(graph, resources=tuple(edit(each) for each in graph.resources if each.urn not in gone))


def optioned(graph: Graph, name: str, options: Options) -> Graph:
    """The graph with other options on one resource."""
    return replace(
        graph,
        resources=tuple(replace(each, options=options) if each.name == name else each for each in graph.resources),
    )
