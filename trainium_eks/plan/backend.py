"""The interface between a recorded program and the backend that answers for its providers."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trainium_eks.model.catalogue import regions
from trainium_eks.plan.graph import Resource

ACCOUNT = "000000000000"
"""The AWS account of simulated resources."""


class Backend(Protocol):
    """The source of the providers' answers: a simulation, a local Kubernetes cluster, or both."""

    def create(self, resource: Resource) -> tuple[str, Mapping[str, Any]]:
        """Return the id of a resource and its computed properties; inputs need not be repeated. Its inputs are as sent,
        with secrets in clear and ``[unknown]`` for values that the engine would not know yet; it has no outputs.

        Called from several threads at once. A resource without an answer is a :class:`SimulationError`.
        """
        ...

    def simulates(self, type_: str) -> bool:
        """Return whether the answers for this resource type are made up."""
        ...


class SimulationError(Exception):
    """A resource without an answer. The message names the remedy."""


class UnknownTypeError(SimulationError):
    """A resource type that is not known here."""


@dataclass(frozen=True)
class Call:
    """One resource, with the sources of every answer."""

    resource: Resource
    region: str

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The inputs as sent."""
        return self.resource.inputs

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that belong to this resource alone."""
        return hashlib.sha256(self.resource.urn.encode()).hexdigest()[:8]

    def sim(self, prefix: str) -> str:
        """Return an id of the service's form: ``vpc-sim-1a2b3c4d``."""
        return f"{prefix}-sim-{self.digest}"

    def name(self, field: str = "name") -> str:
        """Return the physical name: as given, from a prefix, or made from the logical name as Pulumi does."""
        if given := self.inputs.get(field):
            return str(given)
        prefix = self.inputs.get(f"{field}Prefix")
        return f"{prefix}sim-{self.digest}" if prefix else f"{self.resource.name}-sim-{self.digest}"

    def arn(self, service: str, resource: str, *, region: str | None = None, account: str = ACCOUNT) -> str:
        """Return an ARN in the partition of the region; ``region=""`` for global services."""
        place = self.region if region is None else region
        return f"arn:{regions.partition(self.region)}:{service}:{place}:{account}:{resource}"

    def mapping(self, field: str) -> Mapping[str, Any]:
        """Return an input as an object; empty when absent or unknown."""
        value = self.inputs.get(field)
        return value if isinstance(value, Mapping) else {}

    def text(self, field: str) -> str:
        """Return an input as text, empty when absent."""
        return str(self.inputs.get(field, ""))


Answer = tuple[str, dict[str, Any]]

Answerer = Callable[[Call], Answer]


def named(service: str, path: str) -> Answerer:
    """Return the answers of a type with its name as its id, and behind ``path`` in its ARN."""

    def answer(call: Call) -> Answer:
        name = call.name()
        return name, {"name": name, "arn": call.arn(service, f"{path}{name}")}

    return answer


TIME = "2000-01-01T00:00:00Z"
