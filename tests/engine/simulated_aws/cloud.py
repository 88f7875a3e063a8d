"""The simulated clouds: make, change, read and delete things, with the refusals that AWS is known for."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.simulated_aws.checked import DEFAULTS
from engine.simulated_aws.inventory import AlreadyExists, Inventory, Thing
from google.protobuf import struct_pb2  # type: ignore[import-untyped]

from trainium_eks.plan.backend import Registration, SimulationError
from trainium_eks.plan.graph import SECRET, UNKNOWN, Options, Resource
from trainium_eks.plan.recording import wire
from trainium_eks.plan.recording.monitor import preview_state
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.default_tags import TAGS_ALL
from trainium_eks.plan.resource_types.differences import differences
from trainium_eks.plan.resource_types.rows import ec2, eks
from trainium_eks.plan.resource_types.simulation import DEFAULT_REGION, Simulation, known

_FORGOTTEN = ("certificateAuthority", "endpoint")
"""What a preview of a cluster's update does not know with ``forgetful``: see :class:`Cloud`."""


class CloudError(Exception):
    """The cloud refuses. The message is worded as the cloud's."""


@dataclass(frozen=True)
class Account:
    """One configured provider: where its resources are made."""

    simulation: Simulation
    provider: str
    """URN of the provider."""
    settings: Mapping[str, Any]
    """Its inputs."""
    cluster: str = ""
    """Endpoint of the Kubernetes cluster; empty for AWS."""


@dataclass(frozen=True)
class Found:
    """What there is of a resource."""

    inputs: struct_pb2.Struct
    outputs: struct_pb2.Struct


@dataclass(frozen=True)
class ResourceRequest:
    """What the engine asks about one resource."""

    urn: str
    inputs: struct_pb2.Struct

    @property
    def type(self) -> str:
        """Type token, from the URN."""
        return type_of(self.urn)

    @property
    def name(self) -> str:
        """Logical name, from the URN."""
        return self.urn.split("::", 3)[3]

    @property
    def plain(self) -> dict[str, Any]:
        """The inputs that the type takes, secrets in clear: without the provider's notes and the tags that it lays
        over everything, which are computed again."""
        found = wire.decode(self.inputs, mask=False)
        return {name: value for name, value in found.items() if name not in (DEFAULTS, TAGS_ALL)}

    @property
    def secret(self) -> frozenset[str]:
        """The inputs that hold a secret."""
        return wire.secret_keys(self.inputs)


class Cloud:
    """All that the served packages share.

    Args:
        inventory: what exists.
        failing: a type token; the first creation of that type fails, once in the life of the inventory.
        forgetful: whether a preview of a cluster's update knows its endpoint and certificate no more, as people saw
            it (pulumi-eks#352). AWS's provider keeps both; a program must not depend on it.

    Raises:
        SimulationError: when there is no such type as ``failing``.
    """

    def __init__(self, inventory: Inventory, *, failing: str = "", forgetful: bool = False) -> None:
        if failing and (not known(failing) or failing.startswith("pulumi:")):
            raise SimulationError(
                f"there is no simulated resource type {failing!r} that could fail; give a type token such as "
                f"{eks.NODE_GROUP.token} or kubernetes:core/v1:Namespace"
            )
        self._inventory = inventory
        self._failing = failing
        self._forgetful = forgetful

    def account(self, urn: str, config: Mapping[str, Any], cluster: str = "") -> Account:
        """A provider with its configuration."""
        simulation = Simulation(str(config.get("region") or DEFAULT_REGION))
        simulation.create(_registration(urn, type_of(urn), urn.rpartition("::")[2], config, ""))
        return Account(simulation, urn, config, cluster)

    def planned(self, account: Account, asked: ResourceRequest) -> struct_pb2.Struct:
        """What a creation would give, as far as a preview knows."""
        inputs = asked.plain
        _, computed = _answer(account, asked, asked.urn)
        return _encoded({**inputs, **preview_state(computed, inputs)}, asked)

    def create(self, account: Account, asked: ResourceRequest) -> tuple[str, struct_pb2.Struct]:
        """Makes a thing: its id and outputs.

        Raises:
            Refused: when there is one already, or it was to fail.
            SimulationError: when its type or inputs are not known.
        """
        made_as = self._inventory.next_name(asked.urn)
        identity, computed = _answer(account, asked, made_as)
        if asked.type == self._failing and self._inventory.fails_first(asked.type):
            raise CloudError(f"creating {asked.type} ({asked.name}): ThrottlingException: Rate exceeded")
        outputs = _encoded({**asked.plain, **computed}, asked)
        thing = Thing(asked.type, identity, _cluster(account, asked.type), asked.urn, made_as)
        try:
            self._inventory.add(_thing(thing, asked, outputs))
        except AlreadyExists:
            raise CloudError(
                f"creating {asked.type} ({asked.name}): AlreadyExistsException: {identity} already exists"
            ) from None
        return identity, outputs

    def read(self, account: Account, asked: ResourceRequest, id_: str, state: struct_pb2.Struct) -> Found | None:
        """What there is of a resource, with the secrets of ``asked`` and ``state``: they are kept nowhere else."""
        thing = self._inventory.find(asked.type, id_, _cluster(account, asked.type))
        if thing is None:
            return None
        return Found(_filled(thing.inputs, asked.inputs), _filled(thing.outputs, state))

    def changed(
        self, account: Account, asked: ResourceRequest, id_: str, before: Mapping[str, Any]
    ) -> struct_pb2.Struct:
        """What an update would give, as far as a preview knows: a computed value that comes from an unknown input is
        unknown too, the others stay.

        Raises:
            Refused: when the thing is gone.
        """
        thing = self._existing(account, asked, id_)
        outputs = {**asked.plain, **_settled(self._updated(account, asked, thing, before, preview=True))}
        if self._forgetful and asked.type == eks.CLUSTER.token:
            outputs.update(dict.fromkeys(_FORGOTTEN, UNKNOWN))
        return _encoded(outputs, asked)

    def update(
        self, account: Account, asked: ResourceRequest, id_: str, before: Mapping[str, Any]
    ) -> struct_pb2.Struct:
        """Changes a thing: its outputs.

        Args:
            account: the provider.
            asked: with the inputs as they are to be.
            id_: of the thing.
            before: the inputs so far.

        Raises:
            Refused: when the thing is gone.
            SimulationError: when an input is not known.
        """
        thing = self._existing(account, asked, id_)
        outputs = _encoded({**asked.plain, **self._updated(account, asked, thing, before, preview=False)}, asked)
        self._inventory.put(_thing(thing, asked, outputs))
        return outputs

    def delete(self, account: Account, type_: str, id_: str) -> None:
        """Deletes a thing; a cluster with all that is in it. What does not exist is deleted already.

        Raises:
            Refused: when it is protected, or something that exists still needs it.
        """
        thing = self._inventory.find(type_, id_, _cluster(account, type_))
        if thing is None:
            return
        others = [other for other in self._inventory.things() if other != thing]
        if (refusal := _refusal(thing, others)) is not None:
            raise CloudError(f"deleting {type_} ({id_}): {refusal}")
        inside = []
        if type_ == eks.CLUSTER.token:
            inside = [other for other in others if other.cluster == thing.outputs.get("endpoint")]
        self._inventory.remove(thing, *inside)

    def _existing(self, account: Account, asked: ResourceRequest, id_: str) -> Thing:
        thing = self._inventory.find(asked.type, id_, _cluster(account, asked.type))
        if thing is None:
            raise CloudError(f"updating {asked.type} ({asked.name}): NotFoundException: {id_} does not exist")
        return thing

    def _updated(
        self, account: Account, asked: ResourceRequest, thing: Thing, before: Mapping[str, Any], *, preview: bool
    ) -> dict[str, Any]:
        """The computed properties. They are made from the same name as at first, so ids stay."""
        _, computed = _answer(account, asked, thing.made_as)
        if asked.type == ec2.LAUNCH_TEMPLATE.token:
            computed.update(_versions(asked, thing, before, preview=preview))
        return computed


def type_of(urn: str) -> str:
    """The type token of a resource, without its parents'."""
    return urn.split("::")[2].rpartition("$")[2]


def _refusal(thing: Thing, others: Iterable[Thing]) -> str | None:
    """Why AWS does not delete a thing as long as the others are there; None when it does."""
    row = registry.find(thing.type)
    refuses = row.refuses_deletion if row else None
    if refuses is None:
        return None
    if refuses.switch is not None and thing.inputs.get(refuses.switch.input):
        return refuses.switch.answer
    for other in others:
        in_the_way = not other.cluster and (not refuses.for_ or other.type in refuses.for_)
        if in_the_way and thing.id in texts(other.inputs):
            return f"{refuses.answer.format(id=thing.id)} (needed by {other.type} {other.id})"
    return None


def _answer(account: Account, asked: ResourceRequest, made_as: str) -> tuple[str, dict[str, Any]]:
    registration = _registration(made_as, asked.type, asked.name, asked.plain, account.provider)
    identity, computed = account.simulation.create(registration)
    # AWS' provider, being made from Terraform's, answers the id as a property too; that of Kubernetes does not.
    return identity, {**computed, **({"id": identity} if asked.type.startswith("aws:") else {})}


def _registration(urn: str, type_: str, name: str, inputs: Mapping[str, Any], provider: str) -> Registration:
    return Registration(
        urn=urn,
        type=type_,
        name=name,
        parent="",
        inputs=inputs,
        provider=provider,
        dependencies=(),
        options=Options(),
        dry_run=False,
    )


def _cluster(account: Account, type_: str) -> str:
    return account.cluster if type_.startswith("kubernetes:") else ""


def _thing(thing: Thing, asked: ResourceRequest, outputs: struct_pb2.Struct) -> Thing:
    """The thing as it was asked for and answered, without secrets."""
    return replace(
        thing, urn=asked.urn, inputs=wire.decode(asked.inputs, mask=True), outputs=wire.decode(outputs, mask=True)
    )


def _encoded(outputs: Mapping[str, Any], asked: ResourceRequest) -> struct_pb2.Struct:
    """What is secret as an input is secret as an output."""
    return wire.encode(outputs, secret=asked.secret)


def _filled(kept: Mapping[str, Any], whole: struct_pb2.Struct) -> struct_pb2.Struct:
    """What was kept, with the properties that hold a secret as they are in ``whole``, or left out."""
    found = wire.encode(kept)
    for name, value in kept.items():
        if SECRET not in texts(value):
            continue
        if name in whole.fields:
            found.fields[name].CopyFrom(whole.fields[name])
        else:
            del found.fields[name]
    return found


def _versions(asked: ResourceRequest, thing: Thing, before: Mapping[str, Any], *, preview: bool) -> dict[str, Any]:
    """A launch template has a new version when more than its tags change."""
    latest, default = thing.outputs.get("latestVersion", 1), thing.outputs.get("defaultVersion", 1)
    resource = Resource(asked.urn, asked.type, asked.name, inputs=asked.plain)
    if any(change.top not in ec2.NO_NEW_VERSION for change in differences(resource, before)):
        latest = UNKNOWN if preview else latest + 1
        default = latest if asked.plain.get("updateDefaultVersion") else default
    return {"latestVersion": latest, "defaultVersion": asked.plain.get("defaultVersion", default)}


def _settled(value: Any) -> Any:
    """The value with everything unknown that was made from something unknown."""
    if isinstance(value, Mapping):
        return {key: _settled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_settled(item) for item in value]
    return UNKNOWN if isinstance(value, str) and UNKNOWN in value else value


def texts(value: Any) -> Iterator[str]:
    """Every text in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
