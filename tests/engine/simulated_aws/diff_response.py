"""A provider's answer to the engine about two versions of a resource's inputs."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.simulated_aws.checked import DEFAULTS
from pulumi.runtime.proto import provider_pb2

from trainium_eks.plan.graph import Resource
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.default_tags import TAGS_ALL
from trainium_eks.plan.resource_types.differences import Difference, Steps, differences
from trainium_eks.plan.resource_types.paths import value_at
from trainium_eks.plan.resource_types.rows import helm
from trainium_eks.plan.resource_types.rows.kubernetes import BUILT_IN_GROUPS

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


def answer(resource: Resource, before: Mapping[str, Any]) -> provider_pb2.DiffResponse:
    tags_all = before.get(TAGS_ALL), resource.inputs.get(TAGS_ALL)
    before = read_back(resource.type, _given(before))
    found = differences(replace(resource, inputs=_given(resource.inputs)), before, tags_all=tags_all)
    replaced = sorted({change.top for change in found if change.replaces})
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if found else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=sorted({change.top for change in found}),
        replaces=replaced,
        detailedDiff={
            property_path(change.steps): provider_pb2.PropertyDiff(kind=_kind(change), inputDiff=True)
            for change in found
        },
        hasDetailedDiff=True,
        deleteBeforeReplace=bool(replaced) and keeps_name(resource, before),
    )


def read_back(type_: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs so far as the real provider compares them with the new ones.

    pulumi-kubernetes compares the live object, cut to the keys of the inputs. The API server keeps no empty ``data`` of
    a Secret and no empty field of ``metadata``. For other built-in kinds the provider leaves empty fields out of the
    new inputs, too (provider v4, ``normalizeInputs``), so they are no difference.
    """
    group, _, kind = type_.removeprefix("kubernetes:").partition(":")
    normalized = group.partition("/")[0] in BUILT_IN_GROUPS and kind not in ("Secret", "CustomResourceDefinition")
    if not type_.startswith("kubernetes:") or type_ == helm.RELEASE.token or normalized:
        return inputs
    kept = {name: value for name, value in inputs.items() if value or name not in ("data", "stringData")}
    if isinstance(kept.get("metadata"), Mapping):
        kept["metadata"] = {name: value for name, value in kept["metadata"].items() if value}
    return kept


def keeps_name(resource: Resource, before: Mapping[str, Any]) -> bool:
    """Return whether the old and the new thing would have the same physical name, so that both cannot exist at once.

    Both real providers compare the name that the program gave: for a name that Pulumi made, a new name is made.
    """
    named_by = registry.of(resource).named_by
    made_up = resource.inputs.get(DEFAULTS, ())
    if not named_by or named_by[-1] in made_up or not value_at(resource.inputs, named_by[-1]):
        return False
    return all(value_at(before, path) == value_at(resource.inputs, path) for path in named_by)


def property_path(steps: Steps) -> str:
    """Return a property's path as the engine spells it: a key that is no plain word is quoted, ``tags["aws:x/y"]``."""

    def spelled(step: str | int) -> str:
        if isinstance(step, str) and _PLAIN_KEY.fullmatch(step):
            return f".{step}"
        return f"[{json.dumps(step, ensure_ascii=False)}]"

    return "".join(map(spelled, steps)).removeprefix(".")


def _given(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs without the provider's own notes and without ``tagsAll``, which is compared apart."""
    return {name: value for name, value in inputs.items() if name not in (DEFAULTS, TAGS_ALL)}


def _kind(change: Difference) -> Any:
    word = "ADD" if change.before is None else "DELETE" if change.after is None else "UPDATE"
    return getattr(provider_pb2.PropertyDiff, f"{word}_REPLACE" if change.replaces else word)
