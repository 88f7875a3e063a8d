"""Speaks to the served providers as the engine does, without an engine."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from trainium_eks.plan.recording import wire

STACK = "urn:pulumi:dev::trainium-eks"


def urn(type_: str, name: str) -> str:
    return f"{STACK}::{type_}::{name}"


class InvalidInputsError(Exception):
    """Path and reason of each input that a provider refuses."""


@dataclass
class Connection:
    """What the engine has of one provider: a channel of its own."""

    stub: provider_pb2_grpc.ResourceProviderStub

    def configure(self, package: str, name: str = "main", **settings: Any) -> None:
        self.stub.Configure(
            provider_pb2.ConfigureRequest(
                urn=urn(f"pulumi:providers:{package}", name), args=wire.encode({"version": "7.0.0", **settings})
            )
        )

    def check(
        self, type_: str, inputs: Mapping[str, Any], *, before: Mapping[str, Any] | None = None, seed: bytes = b"1"
    ) -> dict[str, Any]:
        """The inputs as the provider completes them; InvalidInputsError when it refuses some."""
        request = provider_pb2.CheckRequest(
            urn=urn(type_, "it"), news=wire.encode(inputs), olds=wire.encode(before or {}), randomSeed=seed
        )
        answer = self.stub.Check(request)
        if answer.failures:
            raise InvalidInputsError([(failure.property, failure.reason) for failure in answer.failures])
        return wire.decode(answer.inputs, mask=False)

    def diff(
        self,
        type_: str,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        *,
        ignore_changes: tuple[str, ...] = (),
    ) -> provider_pb2.DiffResponse:
        call = self.stub.DiffConfig if type_.startswith("pulumi:") else self.stub.Diff
        request = provider_pb2.DiffRequest(
            urn=urn(type_, "it"),
            old_inputs=wire.encode(before),
            olds=wire.encode(before),
            news=wire.encode(after),
            ignoreChanges=ignore_changes,
        )
        answer: provider_pb2.DiffResponse = call(request)
        return answer

    def create(
        self,
        type_: str,
        inputs: Mapping[str, Any],
        name: str = "it",
        *,
        preview: bool = False,
        secret: frozenset[str] = frozenset(),
    ) -> provider_pb2.CreateResponse:
        answer: provider_pb2.CreateResponse = self.stub.Create(
            provider_pb2.CreateRequest(
                urn=urn(type_, name), properties=wire.encode(inputs, secret=secret), preview=preview
            )
        )
        return answer

    def made(self, type_: str, inputs: Mapping[str, Any], name: str = "it") -> tuple[str, dict[str, Any]]:
        """Id and outputs of a new thing."""
        answer = self.create(type_, inputs, name)
        return answer.id, wire.decode(answer.properties, mask=False)

    def update(
        self, type_: str, id_: str, before: Mapping[str, Any], after: Mapping[str, Any], *, preview: bool = False
    ) -> dict[str, Any]:
        request = provider_pb2.UpdateRequest(
            id=id_,
            urn=urn(type_, "it"),
            old_inputs=wire.encode(before),
            olds=wire.encode(before),
            news=wire.encode(after),
            preview=preview,
        )
        return wire.decode(self.stub.Update(request).properties, mask=False)

    def read(self, type_: str, id_: str) -> provider_pb2.ReadResponse:
        answer: provider_pb2.ReadResponse = self.stub.Read(provider_pb2.ReadRequest(id=id_, urn=urn(type_, "it")))
        return answer

    def delete(self, type_: str, id_: str) -> None:
        self.stub.Delete(provider_pb2.DeleteRequest(id=id_, urn=urn(type_, "it")))


@dataclass
class Clouds:
    """Served clouds, and channels to them."""

    ports: Mapping[str, str]
    channels: list[grpc.Channel] = field(default_factory=list)

    def attach(self, package: str) -> Connection:
        """A connection that knows no settings yet."""
        # Channels of one process to one address share a connection unless told otherwise; the engine's do not.
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(f"127.0.0.1:{self.ports[package]}", options=options)
        self.channels.append(channel)
        return Connection(provider_pb2_grpc.ResourceProviderStub(channel))

    def provider(self, package: str = "aws", **settings: Any) -> Connection:
        """A configured connection."""
        connection = self.attach(package)
        connection.configure(package, **settings)
        return connection


Serve = Callable[..., AbstractContextManager[Clouds]]
"""Takes the keyword arguments of ``serving`` but the file."""


def refusal(error: pytest.ExceptionInfo[grpc.RpcError]) -> str:
    """What the provider says."""
    return str(error.value.details())
