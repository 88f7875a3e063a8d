"""Components that another process builds, with an engine's monitor played by the test."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any

import grpc
import pytest
from engine.client import STACK, Clouds, urn
from google.protobuf import empty_pb2
from pulumi.runtime import rpc
from pulumi.runtime.proto import provider_pb2, resource_pb2, resource_pb2_grpc

from trainium_eks.plan.backend import Registration
from trainium_eks.plan.graph import Graph, Options
from trainium_eks.plan.recording import wire
from trainium_eks.plan.resource_types.simulation import Simulation

CLUSTER = "eks:index:Cluster"
INPUTS: Mapping[str, Any] = {
    "name": "training",
    "serviceRole": "role",
    "authenticationMode": "API",
    "skipDefaultNodeGroup": True,
    "skipDefaultSecurityGroups": True,
    "useDefaultVpcCni": True,
    "corednsAddonOptions": {"enabled": False},
    "kubeProxyAddonOptions": {"enabled": False},
    "vpcId": "vpc-1",
    "subnetIds": ["subnet-1", "subnet-2"],
}
PROVIDER = f"{urn('pulumi:providers:aws', 'main')}::some-id"
PARENT = urn("trainium-eks:index:TrainiumCluster", "above")


def made_urn(request: resource_pb2.RegisterResourceRequest) -> str:
    return f"{STACK}::{request.parent.split('::')[2]}${request.type}::{request.name}"


class Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    """Answers as an engine with the simulation behind it, and keeps what it is asked."""

    def __init__(self) -> None:
        self.requests: list[resource_pb2.RegisterResourceRequest] = []
        self.outputs: dict[str, dict[str, Any]] = {}
        self.refused = ""
        self.silent = False

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest, _context: object) -> Any:  # noqa: N802
        self.requests.append(request)
        if request.type == self.refused:
            return resource_pb2.RegisterResourceResponse(result=resource_pb2.Result.FAIL)
        made = made_urn(request)
        if not request.custom:
            return resource_pb2.RegisterResourceResponse(urn=made)
        inputs = wire.decode(request.object, mask=False)
        if self.silent:
            return resource_pb2.RegisterResourceResponse(urn=made, object=wire.encode(inputs))
        asked = Registration(made, request.type, request.name, request.parent, inputs, "", (), Options(), False)
        identity, computed = Simulation().create(asked)
        state = wire.encode({**inputs, **computed})
        return resource_pb2.RegisterResourceResponse(urn=made, id=identity, object=state)

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest, _context: object
    ) -> empty_pb2.Empty:
        self.outputs[request.urn] = wire.decode(request.outputs, mask=False)
        return empty_pb2.Empty()

    def of(self, type_: str) -> resource_pb2.RegisterResourceRequest:
        (found,) = (request for request in self.requests if request.type == type_)
        return found


Construct = Callable[..., provider_pb2.ConstructResponse]


@pytest.fixture
def monitor() -> Monitor:
    return Monitor()


@pytest.fixture
def construct(clouds: Clouds, monitor: Monitor) -> Iterator[Construct]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(monitor, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def constructed(
        inputs: Mapping[str, Any] = INPUTS, *, secret: frozenset[str] = frozenset(), **options: Any
    ) -> provider_pb2.ConstructResponse:
        request = provider_pb2.ConstructRequest(
            type=options.pop("type", CLUSTER),
            name="it",
            parent=PARENT,
            inputs=wire.encode(inputs, secret=secret),
            providers={"aws": PROVIDER},
            monitorEndpoint=f"127.0.0.1:{port}",
            **options,
        )
        request.inputDependencies["subnetIds"].urns.append("urn:subnet")
        answer: provider_pb2.ConstructResponse = clouds.attach("eks").stub.Construct(request)
        return answer

    yield constructed
    server.stop(None).wait()


def test_the_cluster_has_the_children_that_a_plan_has(
    construct: Construct, monitor: Monitor, record: Callable[..., Graph]
) -> None:
    def program() -> None:
        import pulumi
        import pulumi_eks as eks

        with_off = eks.CoreDnsAddonOptionsArgs(enabled=False)
        eks.Cluster(
            "it",
            name="training",
            service_role="role",
            authentication_mode=eks.AuthenticationMode.API,
            skip_default_node_group=True,
            skip_default_security_groups=True,
            use_default_vpc_cni=True,
            coredns_addon_options=with_off,
            kube_proxy_addon_options=eks.KubeProxyAddonOptionsArgs(enabled=False),
            vpc_id="vpc-1",
            subnet_ids=["subnet-1", "subnet-2"],
            opts=pulumi.ResourceOptions(parent=pulumi.ComponentResource("trainium-eks:index:TrainiumCluster", "above")),
        )

    answer = construct()
    graph = record(program, stack="dev")
    recorded = {resource.urn: resource for resource in graph.descendants(answer.urn)}
    registered = {made_urn(request): request for request in monitor.requests[1:]}
    assert set(registered) == set(recorded)
    for child, request in registered.items():
        assert wire.decode(request.object, mask=False) == recorded[child].inputs
        assert tuple(request.ignoreChanges) == recorded[child].options.ignore_changes
        assert request.custom == recorded[child].custom


def test_the_component_comes_first_with_the_options_it_was_given(construct: Construct, monitor: Monitor) -> None:
    construct(protect=True, retainOnDelete=True, dependencies=["urn:earlier"], deletedWith="urn:other")
    first = monitor.requests[0]
    assert (first.type, first.name, first.parent, first.custom) == (CLUSTER, "it", PARENT, False)
    assert (first.protect, first.retainOnDelete, first.deletedWith) == (True, True, "urn:other")
    assert list(first.dependencies) == ["urn:earlier"]
    assert dict(first.providers) == {"aws": PROVIDER}
    assert all(request.protect for request in monitor.requests if request.custom)


def test_its_outputs_come_from_the_cluster(construct: Construct, monitor: Monitor) -> None:
    answer = construct()
    outputs = wire.decode(answer.state, mask=False)
    assert json.loads(outputs["kubeconfigJson"]) == outputs["kubeconfig"]
    assert outputs["eksCluster"] == "training"
    cluster = answer.state.fields["eksCluster"].struct_value.fields
    assert cluster[rpc._special_sig_key].string_value == rpc._special_resource_sig
    assert monitor.outputs == {answer.urn: outputs}
    assert set(answer.stateDependencies["kubeconfig"].urns) == {cluster["urn"].string_value}


def test_what_came_in_as_a_secret_goes_on_as_one(construct: Construct, monitor: Monitor) -> None:
    answer = construct({**INPUTS, "name": "hidden-name"}, secret=frozenset({"name"}))
    assert "name" in wire.secret_keys(monitor.of("aws:eks/cluster:Cluster").object)
    assert "kubeconfig" in wire.secret_keys(monitor.of("pulumi:providers:kubernetes").object)
    assert {"kubeconfig", "kubeconfigJson"} <= wire.secret_keys(answer.state)
    assert "endpoint" not in wire.secret_keys(answer.state)
