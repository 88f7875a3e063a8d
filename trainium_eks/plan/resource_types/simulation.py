"""Made-up answers of the providers, from the rows.

The values are recognisable (``vpc-sim-…``, account 000000000000) and depend on nothing but the resource's URN and
inputs, so two recordings of a program are the same. A type without a row is an error, and so is an input that the
SDK's class does not take: a simulation that accepts anything proves nothing.
"""

from collections.abc import Mapping
from typing import Any

from trainium_eks.plan.backend import Answer, Call, Registration, SimulationError
from trainium_eks.plan.resource_types import default_tags, registry, sdk_inputs
from trainium_eks.plan.resource_types.resource_type import REGION, ResourceType
from trainium_eks.plan.resource_types.rows import providers

DEFAULT_REGION = "us-west-2"
"""Region of resources when neither a provider nor the config names one."""


class Simulation:
    """Source of simulated answers for AWS and Kubernetes. ``region`` is that of the default AWS provider."""

    def __init__(self, region: str = DEFAULT_REGION) -> None:
        self._region = region
        self._providers: dict[str, Mapping[str, Any]] = {}

    def create(self, registration: Registration) -> Answer:
        """See :class:`Backend`."""
        row = registry.find(registration.type) or registry.UNKNOWN_TYPE
        found = sdk_inputs.faults(registration.type, registration.inputs)
        if found:
            raise SimulationError(f"{registration.type} does not take these inputs:\n  " + "\n  ".join(found))
        if registration.type == providers.AWS.token:
            self._providers[registration.urn] = registration.inputs
        identity, computed = row.simulated(Call(registration, self._region_of(registration)))
        return identity, {**self._common(row, registration), **computed}

    def simulates(self, type_: str) -> bool:
        """See :class:`Backend`."""
        return registry.find(type_) is not None

    def _region_of(self, registration: Registration) -> str:
        provider = self._providers.get(registration.provider, {})
        return str(registration.inputs.get("region") or provider.get("region") or self._region)

    def _common(self, row: ResourceType, registration: Registration) -> dict[str, Any]:
        """Return ``region`` and ``tagsAll``, which the AWS provider computes for every type that has the input."""
        if not row.token.startswith("aws:"):
            return {}
        common: dict[str, Any] = {"region": self._region_of(registration)} if REGION in row.replaced_by else {}
        if row.tagged:
            provider = self._providers.get(registration.provider, {})
            common["tagsAll"] = default_tags.laid_over(registration.inputs, provider)
        return common
