"""Speaks to the served providers as the engine does, without an engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from trainium_eks.plan.recording import wire

STACK = "urn:pulumi:dev::trainium-eks"


def urn(type_, name):
    return f"{STACK}::{type_}::{name}"


class InvalidInputsError(Exception):
    """Path and reason of each input that a provider refuses."""


@dataclass
class Connection:
    """What the engine has of one provider: a separate channel."""

    stub: provider_pb2_grpc.ResourceProviderStub

    def check(self, type_, inputs, *, before=None, seed=b"1"):
        """The inputs as the provider completes them; InvalidInputsError when it refuses some."""
        request = provider_pb2.CheckRequest(
            urn=urn(type_, "it"), news=wire.encode(inputs), olds=wire.encode(before or {}), randomSeed=seed
        )
        answer = self.stub.Check(request)
        if answer.failures:
            raise InvalidInputsError([(failure.property, failure.reason) for failure in answer.failures])
        return wire.decode(answer.inputs, mask=False)

    def diff(self, type_, before, after, *, ignore_changes=()):
        olds, news = wire.encode(before), wire.encode(after)
        return self.stub.Diff(
            provider_pb2.DiffRequest(urn=urn(type_, "it"), old_inputs=olds, news=news, ignoreChanges=ignore_changes)
        )

    def create(self, type_, inputs, name="it", *, preview=False, secret=frozenset()):
        properties = wire.encode(inputs, secret=secret)
        return self.stub.Create(
            provider_pb2.CreateRequest(urn=urn(type_, name), properties=properties, preview=preview)
        )

    def made(self, type_, inputs, name="it"):
        answer = self.create(type_, inputs, name)
        return answer.id, wire.decode(answer.properties, mask=False)

    def update(self, type_, id_, before, after, *, preview=False):
        olds, news = wire.encode(before), wire.encode(after)
        request = provider_pb2.UpdateRequest(
            id=id_, urn=urn(type_, "it"), old_inputs=olds, olds=olds, news=news, preview=preview
        )
        return wire.decode(self.stub.Update(request).properties, mask=False)

    def read(self, type_, id_):
        return self.stub.Read(provider_pb2.ReadRequest(id=id_, urn=urn(type_, "it")))

    def delete(self, type_, id_):
        self.stub.Delete(provider_pb2.DeleteRequest(id=id_, urn=urn(type_, "it")))


@dataclass
class Clouds:
    ports: Mapping[str, str]
    channels: list[grpc.Channel] = field(default_factory=list)

    def attach(self, package):
        """A connection that knows no settings yet."""
        # Channels of one process to one address share a connection unless told otherwise; the engine's do not.
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(f"127.0.0.1:{self.ports[package]}", options=options)
        self.channels.append(channel)
        return Connection(provider_pb2_grpc.ResourceProviderStub(channel))

    def provider(self, package="aws", **settings):
        connection = self.attach(package)
        settings = wire.encode({"version": "7.0.0", **settings})
        request = provider_pb2.ConfigureRequest(urn=urn(f"pulumi:providers:{package}", "main"), args=settings)
        connection.stub.Configure(request)
        return connection
