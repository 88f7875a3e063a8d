"""Components that another process builds: their children are registered with the calling engine.

The children of ``eks:index:Cluster`` come from :mod:`trainium_eks.plan.recording.eks_cluster`, as in a plan.
"""

from collections.abc import Mapping
from typing import Any

import grpc  # type: ignore[import-untyped]
from engine.simulated_aws.cloud import texts
from google.protobuf import struct_pb2  # type: ignore[import-untyped]
from pulumi.runtime.proto import provider_pb2, resource_pb2, resource_pb2_grpc

from trainium_eks.plan import sdk
from trainium_eks.plan.backend import SimulationError
from trainium_eks.plan.graph import UNKNOWN, Options, Resource
from trainium_eks.plan.recording import eks_cluster, wire

_KUSTOMIZATION = "kubernetes:kustomize/v2:Directory"

_ACCEPTED: Mapping[str, Any] = dict.fromkeys(
    ("acceptSecrets", "acceptResources", "aliasSpecs", "supportsResultReporting"), True
)

_READ_LATER = ("arn", "certificateAuthority", "endpoint", "id", "identities", "name", "vpcConfig")
"""Outputs of children that ``eks_cluster`` reads: unknown in a preview when the provider returns none."""


class ChildFailedError(Exception):
    """A child that the engine could not create; the engine reports the reason itself."""


def construct(request: provider_pb2.ConstructRequest) -> provider_pb2.ConstructResponse:
    inputs = wire.decode(request.inputs, mask=False)
    beyond = (
        eks_cluster.unsupported_inputs(inputs) if request.type == eks_cluster.TYPE else "its own provider builds it"
    )
    if beyond and request.type != _KUSTOMIZATION:
        raise SimulationError(
            f"what the component {request.type} creates is not known here ({beyond}). Use plain resources (for Helm "
            "charts: helm.v3.Release)"
        )
    with grpc.insecure_channel(request.monitorEndpoint, options=sdk.CHANNEL_OPTIONS) as channel:
        return _Construction(request, resource_pb2_grpc.ResourceMonitorStub(channel)).run()


class _Construction:
    def __init__(self, request: provider_pb2.ConstructRequest, monitor: resource_pb2_grpc.ResourceMonitorStub) -> None:
        self._request = request
        self._monitor = monitor
        self._secrets = wire.secret_texts(request.inputs)

    def run(self) -> provider_pb2.ConstructResponse:
        request = self._request
        urn = self._register(_component(request)).urn
        if request.type == _KUSTOMIZATION:
            # Its provider fetches the kustomization; the objects in it are not known here, nor in a plan.
            return self._finished(urn, {"resources": []}, "")
        component = Resource(
            urn=urn,
            type=request.type,
            name=request.name,
            parent=request.parent,
            custom=False,
            dependencies=tuple(request.dependencies),
            property_dependencies={name: tuple(came.urns) for name, came in request.inputDependencies.items()},
            options=Options(protect=request.protect),
        )
        inputs = wire.decode(request.inputs, mask=False)
        provider = request.providers.get("aws", "")
        return self._finished(urn, *eks_cluster.construct(component, inputs, provider, self._create))

    def _create(self, child: Resource) -> tuple[str, Mapping[str, Any]]:
        answer = self._register(_child(child, self._secret_in(child.inputs)))
        state = wire.decode(answer.object, mask=False)
        if self._request.dryRun:
            state = {**dict.fromkeys(_READ_LATER, UNKNOWN), **state}
        return answer.urn, {**state, "id": answer.id or UNKNOWN}

    def _register(self, request: resource_pb2.RegisterResourceRequest) -> resource_pb2.RegisterResourceResponse:
        answer: resource_pb2.RegisterResourceResponse = self._monitor.RegisterResource(request)
        if answer.result != resource_pb2.Result.SUCCESS:
            raise ChildFailedError(f"{request.type} {request.name}, a part of {self._request.name}, could not be made")
        return answer

    def _finished(self, urn: str, properties: Mapping[str, Any], came_from: str) -> provider_pb2.ConstructResponse:
        state = wire.encode(properties, secret=self._secret_in(properties))
        self._monitor.RegisterResourceOutputs(resource_pb2.RegisterResourceOutputsRequest(urn=urn, outputs=state))
        answer = provider_pb2.ConstructResponse(urn=urn, state=state)
        for name in properties if came_from else ():
            answer.stateDependencies[name].urns.append(came_from)
        return answer

    def _secret_in(self, properties: Mapping[str, Any]) -> frozenset[str]:
        """Return the names of the properties that contain the text of a secret input."""

        def hidden(value: Any) -> bool:
            return any(secret in text for text in texts(value) for secret in self._secrets if secret)

        return frozenset(name for name, value in properties.items() if hidden(value))


def _component(request: provider_pb2.ConstructRequest) -> resource_pb2.RegisterResourceRequest:
    """Return the registration of the component itself, with the options that its own process would pass on."""
    kept = ("type", "name", "parent", "dependencies", "providers", "aliases", "deletedWith")
    given = {name: getattr(request, name) for name in kept}
    found = resource_pb2.RegisterResourceRequest(**given, object=struct_pb2.Struct(), custom=False, **_ACCEPTED)
    if request.HasField("protect"):
        found.protect = request.protect
    if request.HasField("retainOnDelete"):
        found.retainOnDelete = request.retainOnDelete
    return found


def _child(child: Resource, secret: frozenset[str]) -> resource_pb2.RegisterResourceRequest:
    found = resource_pb2.RegisterResourceRequest(
        type=child.type,
        name=child.name,
        parent=child.parent,
        custom=child.custom,
        object=wire.encode(child.inputs, secret=secret),
        provider=child.provider,
        dependencies=child.dependencies,
        ignoreChanges=child.options.ignore_changes,
        protect=child.options.protect or None,
        supportsPartialValues=True,
        **_ACCEPTED,
    )
    for name, urns in child.property_dependencies.items():
        found.propertyDependencies[name].urns.extend(urns)
    return found
