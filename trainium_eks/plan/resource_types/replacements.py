"""Inputs that a provider cannot change in place, read from the rows.

The AWS rows' ``replaced_by`` is the ForceNew list of the Terraform AWS provider's schemas, which pulumi-aws bridges;
``tests/unit/plan/resource_types/test_rows.py`` compares them with a schema when it is given one.
"""

from trainium_eks.plan.graph import UNKNOWN, Resource
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.paths import covers
from trainium_eks.plan.resource_types.resource_type import When


def replacing_paths(resource: Resource) -> tuple[str, ...]:
    """Return the paths where a value that only ``pulumi up`` knows would replace this resource, with the paths of its
    ``replace_on_changes``."""
    found = []
    for each in registry.of(resource).replaced_by:
        if not isinstance(each, When):
            found.append(each)
        elif each.replaces(resource, UNKNOWN, UNKNOWN):
            found.append(each.path)
    return (*found, *resource.options.replace_on_changes)


def replaced_with(resource: Resource) -> tuple[str, ...]:
    """Return the URNs of the resources that replace this one when they are replaced: it is made from their outputs."""
    paths = replacing_paths(resource)
    return tuple(
        urn
        for name, urns in sorted(resource.property_dependencies.items())
        if any(covers(path, name) for path in paths)
        for urn in urns
    )


def replaces(resource: Resource, path: str, before: object, after: object) -> bool:
    """Return whether changing ``path`` (``launchTemplate.id``, ``subnetIds[0]``) from one value to the other
    replaces the resource of the new program. None: the value was not set, or is removed."""
    if registry.of(resource).keeps(path, before, after):
        return False
    for each in registry.of(resource).replaced_by:
        if isinstance(each, When):
            if covers(each.path, path) and each.replaces(resource, before, after):
                return True
        elif covers(each, path):
            return True
    return any(covers(each, path) for each in resource.options.replace_on_changes)
