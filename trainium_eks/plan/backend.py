"""The interface between a recorded program and the backend that answers for its providers."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainium_eks.model.catalogue import regions
from trainium_eks.plan.graph import Options

ACCOUNT = "000000000000"
"""The AWS account of simulated resources."""


@dataclass(frozen=True)
class Registration:
    """One custom resource that a program registers."""

    urn: str
    type: str
    name: str
    parent: str
    inputs: Mapping[str, Any]
    """Inputs as sent, secrets in clear; ``[unknown]`` for values that the engine would not know yet."""
    provider: str
    """URN of the explicit provider, or empty."""
    dependencies: tuple[str, ...]
    options: Options
    dry_run: bool
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Input name to the URNs it came from."""


class Backend(Protocol):
    """The source of the providers' answers: a simulation, a local Kubernetes cluster, or both."""

    def create(self, registration: Registration) -> tuple[str, Mapping[str, Any]]:
        """Return the id of the resource and its computed properties; inputs need not be repeated.

        Called from several threads at once. With ``dry_run`` nothing may be changed outside. A resource without an
        answer is a :class:`SimulationError`.
        """
        ...

    def simulates(self, type_: str) -> bool:
        """Return whether the answers for this resource type are made up."""
        ...


class SimulationError(Exception):
    """A registration without an answer. The message names the remedy."""


class UnknownTypeError(SimulationError):
    """A resource type that is not known here."""


@dataclass(frozen=True)
class Call:
    """One registration, with the sources of every answer."""

    registration: Registration
    region: str

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The inputs as sent."""
        return self.registration.inputs

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that belong to this resource alone."""
        return hashlib.sha256(self.registration.urn.encode()).hexdigest()[:8]

    def sim(self, prefix: str) -> str:
        """Return an id of the service's form: ``vpc-sim-1a2b3c4d``."""
        return f"{prefix}-sim-{self.digest}"

    def name(self, field: str = "name") -> str:
        """Return the physical name: as given, from a prefix, or made from the logical name as Pulumi does."""
        if given := self.inputs.get(field):
            return str(given)
        prefix = self.inputs.get(f"{field}Prefix")
        return f"{prefix}sim-{self.digest}" if prefix else f"{self.registration.name}-sim-{self.digest}"

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

TIME = "2000-01-01T00:00:00Z"
