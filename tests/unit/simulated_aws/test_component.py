"""Components that another process builds, with an engine's monitor played by the test."""

import json
import re
from concurrent import futures

import grpc
import pulumi
import pulumi_eks as eks
import pytest
from engine.client import STACK, urn
from google.protobuf import empty_pb2
from pulumi.runtime import rpc
from pulumi.runtime.proto import provider_pb2, resource_pb2, resource_pb2_grpc

from trainium_eks.plan.backend import Registration
from trainium_eks.plan.graph import Options
from trainium_eks.plan.recording import wire
from trainium_eks.plan.resource_types.simulation import Simulation

ARGUMENTS = {
    "name": "training",
    "service_role": "role",
    "authentication_mode": "API",
    "skip_default_node_group": True,
    "skip_default_security_groups": True,
    "use_default_vpc_cni": True,
    "coredns_addon_options": {"enabled": False},
    "kube_proxy_addon_options": {"enabled": False},
    "vpc_id": "vpc-1",
    "subnet_ids": ["subnet-1", "subnet-2"],
}
INPUTS = {re.sub("_([a-z])", lambda found: found[1].upper(), key): value for key, value in ARGUMENTS.items()}
PROVIDER = f"{urn('pulumi:providers:aws', 'main')}::some-id"
PARENT = urn("trainium-eks:index:TrainiumCluster", "above")


def made_urn(request):
    return f"{STACK}::{request.parent.split('::')[2]}${request.type}::{request.name}"


class Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    """Answers as an engine with the simulation behind it, and keeps what it is asked."""

    def __init__(self):
        self.requests = []
        self.outputs = {}

    def RegisterResource(self, request, _context):  # noqa: N802
        self.requests.append(request)
        made = made_urn(request)
        if not request.custom:
            return resource_pb2.RegisterResourceResponse(urn=made)
        inputs = wire.decode(request.object, mask=False)
        asked = Registration(made, request.type, request.name, request.parent, inputs, "", (), Options(), False)
        identity, computed = Simulation().create(asked)
        state = wire.encode({**inputs, **computed})
        return resource_pb2.RegisterResourceResponse(urn=made, id=identity, object=state)

    def RegisterResourceOutputs(  # noqa: N802
        self, request, _context
    ):
        self.outputs[request.urn] = wire.decode(request.outputs, mask=False)
        return empty_pb2.Empty()


@pytest.fixture
def monitor():
    return Monitor()


@pytest.fixture
def construct(clouds, monitor):
    server = grpc.server(futures.ThreadPoolExecutor(4))
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(monitor, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def constructed(secret=frozenset(), **options):
        request = provider_pb2.ConstructRequest(
            type="eks:index:Cluster",
            name="it",
            parent=PARENT,
            inputs=wire.encode(INPUTS, secret=secret),
            providers={"aws": PROVIDER},
            monitorEndpoint=f"127.0.0.1:{port}",
            **options,
        )
        request.inputDependencies["subnetIds"].urns.append("urn:subnet")
        return clouds.attach("eks").stub.Construct(request)

    yield constructed
    server.stop(None).wait()


def test_the_cluster_has_the_children_that_a_plan_has(construct, monitor, record):
    def program():
        above = pulumi.ComponentResource("trainium-eks:index:TrainiumCluster", "above")
        eks.Cluster("it", eks.ClusterArgs(**ARGUMENTS), pulumi.ResourceOptions(parent=above))

    answer = construct(protect=True, retainOnDelete=True, dependencies=["urn:earlier"], deletedWith="urn:other")
    recorded = {resource.urn: resource for resource in record(program, stack="dev").descendants(answer.urn)}
    first, *children = monitor.requests
    assert {made_urn(request) for request in children} == set(recorded)
    for request in children:
        child = recorded[made_urn(request)]
        assert wire.decode(request.object, mask=False) == child.inputs
        assert (tuple(request.ignoreChanges), request.custom) == (child.options.ignore_changes, child.custom)
        assert request.protect or not request.custom
    assert (first.protect, first.retainOnDelete, first.deletedWith) == (True, True, "urn:other")
    assert (list(first.dependencies), dict(first.providers)) == (["urn:earlier"], {"aws": PROVIDER})


def test_its_outputs_come_from_the_cluster(construct, monitor):
    answer = construct()
    outputs = wire.decode(answer.state, mask=False)
    assert json.loads(outputs["kubeconfigJson"]) == outputs["kubeconfig"]
    assert outputs["eksCluster"] == "training"
    cluster = answer.state.fields["eksCluster"].struct_value.fields
    assert cluster[rpc._special_sig_key].string_value == rpc._special_resource_sig
    assert monitor.outputs == {answer.urn: outputs}
    assert set(answer.stateDependencies["kubeconfig"].urns) == {cluster["urn"].string_value}


def test_what_came_in_as_a_secret_goes_on_as_one(construct, monitor):
    answer = construct(frozenset({"name"}))
    objects = {request.type: request.object for request in monitor.requests}
    assert "name" in wire.secret_keys(objects["aws:eks/cluster:Cluster"])
    assert "kubeconfig" in wire.secret_keys(objects["pulumi:providers:kubernetes"])
    assert {"kubeconfig", "kubeconfigJson"} <= wire.secret_keys(answer.state)
    assert "endpoint" not in wire.secret_keys(answer.state)
