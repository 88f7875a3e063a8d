"""Inputs that a provider keeps when a program leaves them out, as Pulumi's SDK has them: the input is optional, and the
output always has a value. Of nested inputs the SDK does not tell it: the rows name those from the provider's source."""

import inspect
import typing

import pulumi
from pulumi import _types

from trainium_eks.plan import sdk
from trainium_eks.plan.resource_types import registry, sdk_inputs
from trainium_eks.plan.resource_types.default_tags import TAGS_ALL

MADE_ANEW = {"aws:ec2/launchTemplate:LaunchTemplate": "each version of a template is made of its inputs alone"}
"""Types whose updates keep nothing."""


def is_computed(type_, path):
    """Return whether the provider has a value where a program gives none, at a path without list indices."""
    owner = sdk_inputs.resource_class(type_)
    found = None
    for step in path.split("."):
        getters = [each.fget for _, each in inspect.getmembers(owner, lambda each: isinstance(each, property))]
        found = next((each for each in getters if getattr(each, "_pulumi_name", "") == step), None)
        if found is None:
            return False
        types = _types.output_type_types if sdk.is_output_type(owner) else _types.resource_types
        owner = types(owner)[step]
        if not inspect.isclass(owner):
            break
    hint = found.__annotations__["return"]
    if typing.get_origin(hint) is pulumi.Output:
        [hint] = typing.get_args(hint)
    return type(None) not in typing.get_args(hint)


def unlisted_removals(changes):
    """Yield what is taken out of AWS resources, stays there, and no row tells."""
    for change in changes.of("update"):
        type_ = change.resource.type
        for path in change.paths if type_.startswith("aws:") and type_ not in MADE_ANEW else ():
            computed_tag = path.path.startswith(f"{TAGS_ALL}.")  # the provider's own, of tags that it takes back
            taken_out = path.before is not None and path.after is None and not path.cause and not computed_tag
            row = registry.of(change.resource)
            if taken_out and is_computed(type_, path.path) and not row.keeps(path.path, path.before, None):
                yield f"{type_}: {path.path}"
