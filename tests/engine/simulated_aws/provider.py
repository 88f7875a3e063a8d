"""Pulumi's provider protocol for the simulated clouds."""
# ruff: noqa: N802 (the methods are named as the RPCs)

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import yaml
from engine.simulated_aws import component, diff_response
from engine.simulated_aws.checked import checked
from engine.simulated_aws.cloud import Account, Cloud, CloudError, ResourceRequest, type_of
from engine.simulated_aws.component import ChildFailedError
from google.protobuf import empty_pb2, struct_pb2  # type: ignore[import-untyped]
from grpc import ServicerContext
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from trainium_eks.plan.backend import SimulationError
from trainium_eks.plan.graph import Options, Resource
from trainium_eks.plan.recording import wire
from trainium_eks.plan.resource_types import registry, sdk_inputs

# The engine adds these to a provider's inputs for itself.
_ENGINES_OWN = frozenset({"version", "pluginDownloadURL", "pluginChecksums", "__internal"})


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """Simulated provider of one package (``aws``, ``eks`` or ``kubernetes``) for every engine that attaches.

    Each provider resource of a program has a separate connection, which distinguishes two providers of one package. A
    look-up or a method call is not answered: it would need an AWS account.
    """

    def __init__(self, package: str, version: str, cloud: Cloud) -> None:
        self._package = package
        self._version = version
        self._cloud = cloud
        self._accounts: dict[str, Account] = {}

    def Handshake(self, *_: object) -> provider_pb2.ProviderHandshakeResponse:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=False, accept_outputs=False)

    def Attach(self, *_: object) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    Cancel = Attach  # type: ignore[assignment]

    def GetPluginInfo(self, *_: object) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=self._version)

    def GetSchema(self, *_: object) -> provider_pb2.GetSchemaResponse:
        return provider_pb2.GetSchemaResponse(schema=json.dumps({"name": self._package, "version": self._version}))

    def CheckConfig(self, request: provider_pb2.CheckRequest, _context: ServicerContext) -> provider_pb2.CheckResponse:
        faults = _faults(type_of(request.urn), _settings(request.news))
        return provider_pb2.CheckResponse(inputs=request.news, failures=_failures(faults))

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        config = _settings(request.args)
        with _errors_reported(context):
            if not request.urn:
                raise CloudError("this Pulumi CLI does not distinguish its providers: install version 3.231 or newer")
            self._accounts[context.peer()] = self._cloud.account(request.urn, config, _endpoint(config))
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=False, acceptOutputs=False
        )

    def Check(self, request: provider_pb2.CheckRequest, context: ServicerContext) -> provider_pb2.CheckResponse:
        """Fill in the real provider's defaults; refuse an unknown type and inputs that the type does not take."""
        asked = ResourceRequest(request.urn, request.news)
        with _errors_reported(context):
            account = self._account(context)
        given = wire.decode(request.news, mask=False)
        before = wire.decode(request.olds, mask=False) or None
        found = checked(
            asked.type, asked.name, given, provider=account.settings, before=before, seed=request.randomSeed
        )
        answer = struct_pb2.Struct()
        answer.CopyFrom(request.news)
        filled = {name: value for name, value in found.inputs.items() if given.get(name) != value}
        answer.MergeFrom(wire.encode(filled, secret=asked.secret))
        faults = (*_faults(asked.type, given), *found.faults)
        return provider_pb2.CheckResponse(inputs=answer, failures=_failures(faults))

    def Diff(self, request: provider_pb2.DiffRequest, _context: ServicerContext) -> provider_pb2.DiffResponse:
        """Return each changed property and whether it replaces the resource. A changed default tag counts as one."""
        before, after = (wire.decode(each, mask=False) for each in (request.old_inputs, request.news))
        options = Options(ignore_changes=tuple(request.ignoreChanges))
        asked = ResourceRequest(request.urn, request.news)
        return diff_response.answer(Resource(asked.urn, asked.type, asked.name, inputs=after, options=options), before)

    DiffConfig = Diff  # type: ignore[assignment]

    def Create(self, request: provider_pb2.CreateRequest, context: ServicerContext) -> provider_pb2.CreateResponse:
        asked = ResourceRequest(request.urn, request.properties)
        with _errors_reported(context):
            account = self._account(context)
            if request.preview:
                return provider_pb2.CreateResponse(properties=self._cloud.planned(account, asked))
            identity, outputs = self._cloud.create(account, asked)
            return provider_pb2.CreateResponse(id=identity, properties=outputs)

    def Read(self, request: provider_pb2.ReadRequest, context: ServicerContext) -> provider_pb2.ReadResponse:
        """Return the state of a resource, for a refresh or an import. Without id when it does not exist."""
        asked = ResourceRequest(request.urn, request.inputs)
        with _errors_reported(context):
            found = self._cloud.read(self._account(context), asked, request.id, request.properties)
        if found is None:
            return provider_pb2.ReadResponse()
        inputs, outputs = found
        return provider_pb2.ReadResponse(id=request.id, properties=outputs, inputs=inputs)

    def Update(self, request: provider_pb2.UpdateRequest, context: ServicerContext) -> provider_pb2.UpdateResponse:
        asked, before = ResourceRequest(request.urn, request.news), wire.decode(request.old_inputs, mask=False)
        with _errors_reported(context):
            account = self._account(context)
            made = self._cloud.update(account, asked, request.id, before, preview=request.preview)
            return provider_pb2.UpdateResponse(properties=made)

    def Delete(self, request: provider_pb2.DeleteRequest, context: ServicerContext) -> empty_pb2.Empty:
        with _errors_reported(context):
            self._cloud.delete(self._account(context), type_of(request.urn), request.id)
        return empty_pb2.Empty()

    def Construct(
        self, request: provider_pb2.ConstructRequest, context: ServicerContext
    ) -> provider_pb2.ConstructResponse:
        with _errors_reported(context):
            return component.construct(request)

    def _account(self, context: ServicerContext) -> Account:
        account = self._accounts.get(context.peer())
        if account is None:
            raise CloudError(f"the {self._package} provider was not configured on this connection: run pulumi again")
        return account


def _settings(inputs: struct_pb2.Struct) -> dict[str, Any]:
    """Return the program's inputs of a provider, without the engine's additions."""
    plain = wire.decode(inputs, mask=False)
    return {name: value for name, value in plain.items() if name not in _ENGINES_OWN}


def _faults(type_: str, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield path and reason of each input that the type does not take; an empty path for an unknown type."""
    if registry.find(type_) is None:
        yield "", f"there is no simulated answer for the resource type {type_}"
    for fault in sdk_inputs.faults(type_, inputs):
        path, _, reason = fault.partition(": ")
        yield path, reason


def _failures(faults: Iterable[tuple[str, str]]) -> list[provider_pb2.CheckFailure]:
    return [provider_pb2.CheckFailure(property=path, reason=reason) for path, reason in faults]


@contextmanager
def _errors_reported(context: ServicerContext) -> Iterator[None]:
    """Report an error to the engine by its message, without the traceback that gRPC would log."""
    try:
        yield
    except (SimulationError, CloudError, ChildFailedError) as error:
        context.abort(grpc.StatusCode.UNKNOWN, str(error))
    except grpc.RpcError as error:
        # Only the engine's own monitor is called from here.
        context.abort(error.code(), error.details())


def _endpoint(config: Mapping[str, Any]) -> str:
    """Return the server of a Kubernetes provider's cluster; empty when its kubeconfig names none, or is unknown."""
    content = yaml.safe_load(str(config.get("kubeconfig") or "{}"))
    clusters = content.get("clusters") if isinstance(content, Mapping) else None
    return str(clusters[0]["cluster"]["server"]) if clusters else ""
