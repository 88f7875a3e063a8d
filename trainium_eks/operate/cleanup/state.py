"""Pulumi's state of a stack: its resources, and the operations that an interrupted update left open."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json

Json = Any


class StateError(Exception):
    """A state that cannot be read. The text names the reason and the mend."""


@dataclass(frozen=True)
class StateResource:
    """A resource as the state has it."""

    urn: str
    type: str
    """``aws:eks/nodeGroup:NodeGroup``."""
    id: str = ""
    """The provider's id; empty for a component, and for a resource that was never made."""
    inputs: Mapping[str, Json] = field(default_factory=dict)
    outputs: Mapping[str, Json] = field(default_factory=dict)
    parent: str = ""
    provider: str = ""
    ignored: tuple[str, ...] = ()
    """Paths of inputs that an update leaves as they are."""
    replaced: bool = False
    """Whether another resource has taken its place, and it is still to be deleted."""

    @property
    def name(self) -> str:
        """Return the name in the program: ``trn-dev-cluster-cpu-nodes``."""
        return self.urn.rpartition("::")[2]


@dataclass(frozen=True)
class PendingOperation:
    """An operation with an end that the engine does not know."""

    kind: str
    """``creating``, ``updating``, ``deleting``, ``reading`` or ``importing``."""
    resource: StateResource


@dataclass(frozen=True)
class StackState:
    """The state of a stack."""

    resources: tuple[StateResource, ...] = ()
    pending: tuple[PendingOperation, ...] = ()

    @staticmethod
    def parse(text: str, source: str) -> "StackState":
        """Parse the output of ``pulumi stack export``; ``source`` is its origin, for the :class:`StateError`."""
        try:
            deployment = parse_json(text)["deployment"] or {}
            resources = tuple(_resource(each) for each in deployment.get("resources") or ())
            pending = tuple(
                PendingOperation(str(each["type"]), _resource(each["resource"]))
                for each in deployment.get("pending_operations") or ()
            )
        except MISSHAPEN:
            raise StateError(
                f"{source} does not hold what `pulumi stack export` prints: export it again with "
                "`pulumi stack export --file state.json`"
            ) from None
        return StackState(resources, pending)

    @staticmethod
    def ask(stack: str, project: Path) -> "StackState":
        """Export the state with Pulumi; a :class:`StateError` says that Pulumi is not on PATH, or refuses."""
        command = ["pulumi", "stack", "export", "--stack", stack]
        try:
            done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise StateError("pulumi, which knows the stack's state, is not on PATH") from None
        if done.returncode:
            raise StateError(f"{' '.join(command)}: {done.stderr.strip()[-500:] or 'no answer'}")
        return StackState.parse(done.stdout, "the answer of pulumi")

    @property
    def is_empty(self) -> bool:
        """Return whether the state holds nothing in AWS: never brought up, destroyed, or another backend's."""
        return not any(each.id and each.type.startswith("aws:") for each in self.resources)

    def of_type(self, type_: str) -> Iterator[StateResource]:
        """Yield the resources of a type that exist."""
        return (each for each in self.resources if each.type == type_ and each.id)

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the ids, ARNs and names in AWS of all resources in the state, and of the resources that EKS made for
        them."""
        return frozenset(name for each in self.resources if each.id for name in _names(each))

    @property
    def region(self) -> str:
        """Return the region of the stack's AWS provider; empty where the state does not name one."""
        providers = (each for each in self.resources if each.type == "pulumi:providers:aws")
        return next((str(each.inputs["region"]) for each in providers if each.inputs.get("region")), "")


def _resource(state: Mapping[str, Json]) -> StateResource:
    return StateResource(
        str(state["urn"]),
        str(state["type"]),
        str(state.get("id") or ""),
        state.get("inputs") or {},
        state.get("outputs") or {},
        str(state.get("parent") or ""),
        str(state.get("provider") or "").rpartition("::")[0],  # ends with the provider's id
        tuple(state.get("ignoreChanges") or ()),
        bool(state.get("delete")),
    )


def _names(resource: StateResource) -> Iterator[str]:
    yield resource.id
    for key in ("arn", "name", "bucket", "allocationId"):
        if isinstance(value := resource.outputs.get(key), str):
            yield value
    # Of a node group: the Auto Scaling groups that EKS made for it.
    for made in _mappings(resource.outputs.get("resources")):
        yield from (str(each["name"]) for each in _mappings(made.get("autoscalingGroups")) if each.get("name"))
    # Of a cluster: the security group that EKS made for it.
    network = resource.outputs.get("vpcConfig")
    if isinstance(network, Mapping) and isinstance(group := network.get("clusterSecurityGroupId"), str):
        yield group


def _mappings(value: Json) -> Iterable[Mapping[str, Json]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else ()
