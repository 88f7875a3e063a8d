"""The interface between a recorded program and whoever answers for its providers."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainium_eks.model.catalogue import regions
from trainium_eks.plan.graph import Options

ACCOUNT = "000000000000"
"""The AWS account of everything simulated."""


@dataclass(frozen=True)
class Registration:
    """One custom resource that a program asks for."""

    urn: str
    type: str
    name: str
    parent: str
    inputs: Mapping[str, Any]
    """As sent, secrets in clear; ``[unknown]`` for what the engine would not know yet."""
    provider: str
    """URN of the explicit provider, or empty."""
    dependencies: tuple[str, ...]
    options: Options
    dry_run: bool
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Input name to the URNs it came from."""


class Backend(Protocol):
    """Whoever answers for the providers: a simulation, a local Kubernetes cluster, or both."""

    def create(self, registration: Registration) -> tuple[str, Mapping[str, Any]]:
        """The id of the resource and its computed properties; inputs need not be repeated.

        Called from several threads at once. With ``dry_run`` nothing may be changed outside.

        Raises:
            SimulationError: when there is no answer.
        """
        ...

    def simulates(self, type_: str) -> bool:
        """Whether the answers for this resource type are made up."""
        ...


class SimulationError(Exception):
    """The simulation has no answer. The message says what to do."""


class UnknownType(SimulationError):  # noqa: N818 (what was met)
    """The resource type is not known here."""


@dataclass(frozen=True)
class Call:
    """One registration, with what every answer is made from."""

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
        """An id of the service's form: ``vpc-sim-1a2b3c4d``."""
        return f"{prefix}-sim-{self.digest}"

    def name(self, field: str = "name") -> str:
        """The physical name: as given, from a prefix, or made from the logical name as Pulumi does."""
        if given := self.inputs.get(field):
            return str(given)
        prefix = self.inputs.get(f"{field}Prefix")
        return f"{prefix}sim-{self.digest}" if prefix else f"{self.registration.name}-sim-{self.digest}"

    def arn(self, service: str, resource: str, *, region: str | None = None, account: str = ACCOUNT) -> str:
        """An ARN in the partition of the region; ``region=""`` for global services."""
        place = self.region if region is None else region
        return f"arn:{regions.partition(self.region)}:{service}:{place}:{account}:{resource}"

    def mapping(self, field: str) -> Mapping[str, Any]:
        """An input as an object; empty when absent or unknown."""
        value = self.inputs.get(field)
        return value if isinstance(value, Mapping) else {}

    def text(self, field: str) -> str:
        """An input as text, empty when absent."""
        return str(self.inputs.get(field, ""))


Answer = tuple[str, dict[str, Any]]
"""Id and computed properties."""

Answerer = Callable[[Call], Answer]

TIME = "2000-01-01T00:00:00Z"
"""When everything simulated was made."""
