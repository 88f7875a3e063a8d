"""Every Kubernetes object of a recorded program against its schema, so that no misspelt field waits for a cluster.

Built-in kinds are held to Kubernetes' own schemas, strictly: an unknown field is a fault. Custom kinds are held to the
schemas below. A kind that has neither is a fault too, never a pass.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from kubernetes_validate import utils
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from trainium_eks.local.objects import placeholders
from trainium_eks.model.catalogue.versions import KUBERNETES
from trainium_eks.plan.graph import SECRET, UNKNOWN

PREFIX = "kubernetes:"

NO_OBJECTS = {
    "kubernetes:helm.sh/v3:Release": "Helm makes the objects; the charts have tests of their own",
    "kubernetes:kustomize/v2:Directory": "the engine makes the objects from pinned files",
}
"""Types of the Kubernetes provider that are no object, each with why nothing is lost."""

_NAMES: Mapping[str, Any] = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_AMOUNT: Mapping[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\d+(\.\d+)?([EPTGMk]i?|Ki|m)?$"}]
}
"""A quantity that Volcano's webhook takes; definitions take a negative one, too."""
_METADATA: Mapping[str, Any] = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": _NAMES,
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def _closed(schema):
    """A definition's schema in which an unknown field is a fault, as with ``fieldValidation: Strict``."""
    if isinstance(schema, Mapping):
        if "x-kubernetes-int-or-string" in schema and "pattern" in schema:
            return _AMOUNT
        closed = {key: _closed(value) for key, value in schema.items() if not key.startswith("x-kubernetes")}
        return {**closed, "additionalProperties": False} if "properties" in schema else closed
    return [_closed(each) for each in schema] if isinstance(schema, list) else schema


def _defined(definition):
    """A kind by its placeholder definition on the local cloud."""
    (version,) = definition["spec"]["versions"]
    whole = _closed(version["schema"]["openAPIV3Schema"])
    namespaced = {"namespace": _NAMES} if definition["spec"]["scope"] == "Namespaced" else {}
    metadata = {**_METADATA, "properties": {**_METADATA["properties"], **namespaced}}
    own = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": metadata}
    return {**whole, "required": [*own, "spec"], "properties": {**whole["properties"], **own}}


_HYPER_NODE: Mapping[str, Any] = yaml.safe_load("""
type: object
additionalProperties: false
required: [tier, members]
properties:
  tier: {type: integer, minimum: 0}
  tierName: {type: string, maxLength: 253}
  members:
    type: array
    minItems: 1
    items:
      type: object
      additionalProperties: false
      required: [type, selector]
      properties:
        type: {enum: [Node, HyperNode]}
        selector:
          type: object
          minProperties: 1
          maxProperties: 1
          additionalProperties: false
          properties:
            exactMatch: {type: object, required: [name]}
            regexMatch: {type: object, required: [pattern]}
            labelMatch: {type: object, minProperties: 1}
""")

CUSTOM_KINDS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("scheduling.volcano.sh/v1beta1", "Queue"): _defined(*placeholders.definitions("volcano")),
    ("topology.volcano.sh/v1alpha1", "HyperNode"): {
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
        "properties": {"apiVersion": {"type": "string"}, "kind": {}, "metadata": _METADATA, "spec": _HYPER_NODE},
    },
    **{
        ("monitoring.coreos.com/v1", each["spec"]["names"]["kind"]): _defined(each)
        for each in placeholders.definitions("kube-prometheus-stack")
    },
}
"""API version and kind to the JSON schema of the whole object."""


def schema_faults(graph):
    """What is wrong with the Kubernetes objects of a recorded program; empty when every one fits its schema.
    A value that only a real run would know, or a secret, counts as valid."""
    objects = (each for each in graph.resources if each.type.startswith(PREFIX) and each.type not in NO_OBJECTS)
    return [f"{each.type} {each.name}: {fault}" for each in objects for fault in object_faults(each.inputs)]


def object_faults(manifest):
    """The same for one plain object."""
    api_version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return ["has no apiVersion and kind"]
    try:
        errors = _validator(api_version, kind).iter_errors(manifest)
    except kubernetes_validate.SchemaNotFoundError:
        return [f"no schema for {api_version} {kind}: add one to CUSTOM_KINDS"]
    return [f"{each.json_path}: {each.message}" for each in errors if each.instance not in (UNKNOWN, SECRET)]


@functools.cache
def _validator(api_version, kind):
    custom = CUSTOM_KINDS.get((api_version, kind))
    if custom is not None:
        return jsonschema.Draft202012Validator(custom)
    return jsonschema.Draft202012Validator(_schema_of(api_version, kind), registry=_definitions())


def _directory():
    """The schemas of this very version: kubernetes-validate itself would make do with those of an older one."""
    exact = [version for version in utils.all_versions() if utils.major_minor(version) == KUBERNETES]
    assert exact, f"kubernetes-validate has no schemas for Kubernetes {KUBERNETES}; it has {utils.all_versions()}"
    return f"kubernetes-json-schema/v{exact[-1]}-local-strict"


def _schema_of(api_version, kind):
    group, _, version = api_version.rpartition("/")
    name = f"{kind.lower()}-{group.split('.')[0]}-{version}" if group else f"{kind.lower()}-{version}"
    try:
        return utils.schema_contents(f"{_directory()}/{name}.json", KUBERNETES)
    except FileNotFoundError:
        raise kubernetes_validate.SchemaNotFoundError(kind, KUBERNETES, api_version) from None


@functools.cache
def _definitions():
    contents = utils.schema_contents(f"{_directory()}/_definitions.json", KUBERNETES)
    return DRAFT202012.create_resource(contents) @ Registry()
