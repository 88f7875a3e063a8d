"""Made-up answers of the providers, from the rows.

The values are recognisable (``vpc-sim-…``, account 000000000000) and depend on nothing but the resource's URN and
inputs, so two recordings of a program are the same. A type without a row is an error, and so is an input that the
SDK's class does not take: a simulation that accepts anything proves nothing.
"""

from collections.abc import Mapping
from typing import Any

from trainium_eks.plan.backend import Answer, Call, SimulationError
from trainium_eks.plan.graph import Resource
from trainium_eks.plan.resource_types import default_tags, registry, sdk_inputs
from trainium_eks.plan.resource_types.resource_type import DEFAULT_REGION, REGION, ResourceType
from trainium_eks.plan.resource_types.rows import providers


class Simulation:
    """Source of simulated answers for AWS and Kubernetes. ``region`` is that of the default AWS provider."""

    def __init__(self, region: str = DEFAULT_REGION) -> None:
        self._region = region
        self._providers: dict[str, Mapping[str, Any]] = {}

    def create(self, resource: Resource) -> Answer:
        """See :class:`Backend`."""
        row = registry.find(resource.type) or registry.UNKNOWN_TYPE
        found = sdk_inputs.faults(resource.type, resource.inputs)
        if found:
            raise SimulationError(f"{resource.type} does not take these inputs:\n  " + "\n  ".join(found))
        if resource.type == providers.AWS.token:
            self._providers[resource.urn] = resource.inputs
        identity, computed = row.simulated(Call(resource, self._region_of(resource)))
        return identity, {**self._common(row, resource), **computed}

    def simulates(self, type_: str) -> bool:
        """See :class:`Backend`."""
        return registry.find(type_) is not None

    def _region_of(self, resource: Resource) -> str:
        provider = self._providers.get(resource.provider, {})
        return str(resource.inputs.get("region") or provider.get("region") or self._region)

    def _common(self, row: ResourceType, resource: Resource) -> dict[str, Any]:
        """Return ``region`` and ``tagsAll``, which the AWS provider computes for every type that has the input."""
        if not row.token.startswith("aws:"):
            return {}
        common: dict[str, Any] = {"region": self._region_of(resource)} if REGION in row.replaced_by else {}
        if row.tagged:
            provider = self._providers.get(resource.provider, {})
            common["tagsAll"] = default_tags.laid_over(resource.inputs, provider)
        return common
