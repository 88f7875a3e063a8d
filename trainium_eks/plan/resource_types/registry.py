"""All rows, by type token."""

import json
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import Answer, Call, UnknownTypeError
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import rows
from trainium_eks.plan.resource_types.resource_type import ResourceType
from trainium_eks.plan.resource_types.rows import kubernetes

MODULES = tuple(import_module(each.name) for each in pkgutil.iter_modules(rows.__path__, f"{rows.__name__}."))
"""One a service."""


def rows_of(module: ModuleType) -> Iterator[ResourceType]:
    """Yield the rows of a module: those with a constant, and the others in ``TYPES``."""
    named = (each for each in vars(module).values() if isinstance(each, ResourceType))
    yield from (row for row in (*named, *getattr(module, "TYPES", ())) if not row.token.endswith("*"))


ROWS: Mapping[str, ResourceType] = MappingProxyType({row.token: row for module in MODULES for row in rows_of(module)})


def find(token: str) -> ResourceType | None:
    """Return the row of a resource type; None for an unknown type, such as components and types of other clouds.

    Every Kubernetes kind has a row: its own, or :data:`~trainium_eks.plan.resource_types.rows.kubernetes.OTHER_KIND`.
    """
    row = ROWS.get(token)
    if row is None and token.startswith(kubernetes.PREFIX):
        return kubernetes.OTHER_KIND
    return row


def of(resource: Resource) -> ResourceType:
    """Return the row of a custom resource; :data:`UNKNOWN_TYPE` for an unknown type."""
    return find(resource.type) or UNKNOWN_TYPE


def _no_answer(call: Call) -> Answer:
    raise UnknownTypeError(
        f"the resource type {call.resource.type} is not simulated: it has no row in plan/resource_types/rows"
    )


def _no_price(_graph: Graph, resource: Resource, _catalogue: Catalogue) -> tuple[Line, ...]:
    return (Line(resource.type, 1, 1, None, settings=json.dumps(resource.inputs, sort_keys=True)),)


UNKNOWN_TYPE = ResourceType(
    token="*",
    simulated=_no_answer,
    tagged=False,
    replaced_by=(),
    price=_no_price,
)
"""A type without a row: it has no simulated answer, its price is unknown, and so is whether a change replaces it
(:func:`find` returns None, which the display of a change has to state)."""
