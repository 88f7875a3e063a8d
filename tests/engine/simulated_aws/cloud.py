"""The simulated clouds: creation, update, read and deletion of things, with the refusals that AWS is known for."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.simulated_aws.checked import DEFAULTS
from engine.simulated_aws.inventory import Inventory, Thing
from google.protobuf import struct_pb2  # type: ignore[import-untyped]

from trainium_eks.plan.graph import SECRET, UNKNOWN, Resource
from trainium_eks.plan.recording import wire
from trainium_eks.plan.recording.monitor import preview_state
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.default_tags import TAGS_ALL
from trainium_eks.plan.resource_types.differences import differences
from trainium_eks.plan.resource_types.resource_type import DEFAULT_REGION
from trainium_eks.plan.resource_types.rows import ec2, eks
from trainium_eks.plan.resource_types.simulation import Simulation

_FORGOTTEN = ("certificateAuthority", "endpoint")
"""Outputs that are unknown in the preview of a cluster's update with ``forgetful``: see :class:`Cloud`."""

Inputs = Mapping[str, Any]


class CloudError(Exception):
    """A refusal of the cloud. The message is worded as the cloud's."""


@dataclass(frozen=True)
class Account:
    """One configured provider: where its resources are made."""

    simulation: Simulation
    provider: str
    """Its URN."""
    settings: Inputs
    cluster: str = ""
    """Endpoint of the Kubernetes cluster; empty for AWS."""


@dataclass(frozen=True)
class ResourceRequest:
    """A request of the engine about one resource."""

    urn: str
    inputs: struct_pb2.Struct

    @property
    def type(self) -> str:
        return type_of(self.urn)

    @property
    def name(self) -> str:
        return self.urn.split("::", 3)[3]

    @property
    def plain(self) -> dict[str, Any]:
        """Return the inputs that the type takes, secrets in clear: without the provider's notes and the tags that it
        lays over every resource, which are computed again."""
        found = wire.decode(self.inputs, mask=False)
        return {name: value for name, value in found.items() if name not in (DEFAULTS, TAGS_ALL)}

    @property
    def secret(self) -> frozenset[str]:
        return wire.secret_keys(self.inputs)


class Cloud:
    """The cloud that the served packages share. The first creation of the type ``failing`` fails, once in the life
    of the inventory. When ``forgetful``, the endpoint and certificate are unknown in a preview of a cluster's
    update, as reported in pulumi-eks#352; AWS's provider keeps both, and a program must not depend on it."""

    def __init__(self, inventory: Inventory, *, failing: str = "", forgetful: bool = False) -> None:
        assert not failing or (registry.find(failing) and not failing.startswith("pulumi:")), failing
        self._inventory = inventory
        self._failing = failing
        self._forgetful = forgetful

    def account(self, urn: str, config: Mapping[str, Any], cluster: str = "") -> Account:
        simulation = Simulation(str(config.get("region") or DEFAULT_REGION))
        simulation.create(Resource(urn, type_of(urn), urn.rpartition("::")[2], inputs=config))
        return Account(simulation, urn, config, cluster)

    def planned(self, account: Account, asked: ResourceRequest) -> struct_pb2.Struct:
        """Return the outputs of a creation that a preview knows."""
        inputs = asked.plain
        _, computed = _answer(account, asked, asked.urn)
        return wire.encode({**inputs, **preview_state(computed, inputs)}, secret=asked.secret)

    def create(self, account: Account, asked: ResourceRequest) -> tuple[str, struct_pb2.Struct]:
        made_as = self._inventory.next_name(asked.urn)
        identity, computed = _answer(account, asked, made_as)
        if asked.type == self._failing and self._inventory.fails_first(asked.type):
            raise CloudError(f"creating {asked.type} ({asked.name}): ThrottlingException: Rate exceeded")
        outputs = wire.encode({**asked.plain, **computed}, secret=asked.secret)
        thing = Thing(asked.type, identity, _cluster(account, asked.type), asked.urn, made_as)
        if not self._inventory.add(_thing(thing, asked, outputs)):
            raise CloudError(f"creating {asked.type} ({asked.name}): AlreadyExistsException: {identity} already exists")
        return identity, outputs

    def read(self, account: Account, asked: ResourceRequest, id_: str, state: struct_pb2.Struct) -> Any:
        """Return inputs and outputs, with the secrets of ``asked`` and ``state`` (they are kept nowhere else); or
        None."""
        thing = self._inventory.find(asked.type, id_, _cluster(account, asked.type))
        if thing is None:
            return None
        return _filled(thing.inputs, asked.inputs), _filled(thing.outputs, state)

    def update(
        self, account: Account, asked: ResourceRequest, id_: str, before: Inputs, *, preview: bool
    ) -> struct_pb2.Struct:
        """Update a thing; return its outputs. Ids stay: they are made from the name used at creation. In a preview a
        computed value that comes from an unknown input is unknown too."""
        thing = self._inventory.find(asked.type, id_, _cluster(account, asked.type))
        if thing is None:
            raise CloudError(f"updating {asked.type} ({asked.name}): NotFoundException: {id_} does not exist")
        _, computed = _answer(account, asked, thing.made_as)
        if asked.type == ec2.LAUNCH_TEMPLATE.token:
            computed.update(_versions(asked, thing, before, preview=preview))
        if preview:
            computed = _settled(computed)
            if self._forgetful and asked.type == eks.CLUSTER.token:
                computed.update(dict.fromkeys(_FORGOTTEN, UNKNOWN))
        outputs = wire.encode({**asked.plain, **computed}, secret=asked.secret)
        if not preview:
            self._inventory.put(_thing(thing, asked, outputs))
        return outputs

    def delete(self, account: Account, type_: str, id_: str) -> None:
        """Delete a thing; a cluster with every object in it. Deleting a missing thing is no error."""
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


def type_of(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]


def _refusal(thing: Thing, others: Iterable[Thing]) -> str | None:
    """Return the reason why AWS refuses to delete a thing while the others exist; None when AWS deletes it."""
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
    resource = Resource(made_as, asked.type, asked.name, inputs=asked.plain, provider=account.provider)
    identity, computed = account.simulation.create(resource)
    # AWS' provider, being made from Terraform's, answers the id as a property too; Kubernetes' provider does not.
    return identity, {**computed, **({"id": identity} if asked.type.startswith("aws:") else {})}


def _cluster(account: Account, type_: str) -> str:
    return account.cluster if type_.startswith("kubernetes:") else ""


def _thing(thing: Thing, asked: ResourceRequest, outputs: struct_pb2.Struct) -> Thing:
    return replace(
        thing, urn=asked.urn, inputs=wire.decode(asked.inputs, mask=True), outputs=wire.decode(outputs, mask=True)
    )


def _filled(kept: Mapping[str, Any], whole: struct_pb2.Struct) -> struct_pb2.Struct:
    """Return the kept properties, with secret ones taken from ``whole``, or left out when missing there."""
    found = wire.encode(kept)
    for name, value in kept.items():
        if SECRET not in texts(value):
            continue
        if name in whole.fields:
            found.fields[name].CopyFrom(whole.fields[name])
        else:
            del found.fields[name]
    return found


def _versions(asked: ResourceRequest, thing: Thing, before: Inputs, *, preview: bool) -> dict[str, Any]:
    """Return a launch template's versions, with a new one when an input outside ``NO_NEW_VERSION`` changes."""
    latest, default = thing.outputs.get("latestVersion", 1), thing.outputs.get("defaultVersion", 1)
    resource = Resource(asked.urn, asked.type, asked.name, inputs=asked.plain)
    if any(change.top not in ec2.NO_NEW_VERSION for change in differences(resource, before)):
        latest = UNKNOWN if preview else latest + 1
        default = latest if asked.plain.get("updateDefaultVersion") else default
    return {"latestVersion": latest, "defaultVersion": asked.plain.get("defaultVersion", default)}


def _settled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _settled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_settled(item) for item in value]
    return UNKNOWN if isinstance(value, str) and UNKNOWN in value else value


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from texts(item)
