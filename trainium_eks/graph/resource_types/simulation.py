"""What a provider would answer, made up: a table from resource type to computed properties.

The values are recognisable (``vpc-sim-…``, account 000000000000) and depend on nothing but the resource's URN and
inputs, so two recordings of a program are the same. A type that the tables do not know is an error, and so is an
input that the SDK's class does not take: a simulation that accepts anything proves nothing.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from trainium_eks.graph.graph import UNKNOWN
from trainium_eks.graph.recording.backend import (
    ACCOUNT,
    TIME,
    Answer,
    Answerer,
    Backend,
    Call,
    Registration,
    SimulationError,
)
from trainium_eks.graph.resource_types import sdk_inputs
from trainium_eks.graph.resource_types.simulated_aws import AWS

__all__ = ["ACCOUNT", "DEFAULT_REGION", "Backend", "Registration", "Simulation", "SimulationError", "known"]

DEFAULT_REGION = "us-west-2"
"""Where resources are when neither a provider nor the config says."""


class Simulation:
    """Answers for AWS and Kubernetes from the tables.

    Args:
        region: the region of the default AWS provider (the config's ``aws:region``).
    """

    def __init__(self, region: str = DEFAULT_REGION) -> None:
        self._region = region
        self._providers: dict[str, Mapping[str, Any]] = {}

    def create(self, registration: Registration) -> Answer:
        """See :class:`Backend`."""
        answerer = _answerer(registration.type)
        if answerer is None:
            raise SimulationError(
                f"there is no simulated answer for the resource type {registration.type}; add it to the table in "
                "trainium_eks/graph/resource_types/simulated_aws.py"
            )
        found = sdk_inputs.faults(registration.type, registration.inputs)
        if found:
            raise SimulationError(f"{registration.type} does not take these inputs:\n  " + "\n  ".join(found))
        if registration.type == "pulumi:providers:aws":
            self._providers[registration.urn] = registration.inputs
        identity, computed = answerer(Call(registration, self._region_of(registration)))
        return identity, {**self._common(registration), **computed}

    def simulates(self, type_: str) -> bool:
        """See :class:`Backend`."""
        return known(type_)

    def _region_of(self, registration: Registration) -> str:
        provider = self._providers.get(registration.provider, {})
        return str(registration.inputs.get("region") or provider.get("region") or self._region)

    def _common(self, registration: Registration) -> dict[str, Any]:
        """``region`` and ``tagsAll``, which the AWS provider computes for every type that has the input."""
        if not registration.type.startswith("aws:"):
            return {}
        takes = sdk_inputs.input_types(registration.type) or {}
        common: dict[str, Any] = {"region": self._region_of(registration)} if "region" in takes else {}
        if "tags" in takes:
            tags = registration.inputs.get("tags") or {}
            common["tagsAll"] = UNKNOWN if tags == UNKNOWN else {**self._default_tags(registration.provider), **tags}
        return common

    def _default_tags(self, provider: str) -> Mapping[str, Any]:
        """The provider's ``default_tags``, which its SDK class sends as JSON text."""
        text = self._providers.get(provider, {}).get("defaultTags") or "{}"
        return {} if text == UNKNOWN else json.loads(text).get("tags") or {}


def known(type_: str) -> bool:
    """Whether the simulation has an answer for a resource type."""
    return _answerer(type_) is not None


def _answerer(type_: str) -> Answerer | None:
    package = type_.partition(":")[0]
    if package == "aws":
        return AWS.get(type_)
    if package == "kubernetes":
        return _release if type_ == "kubernetes:helm.sh/v3:Release" else _kubernetes_object
    if type_ in ("pulumi:providers:aws", "pulumi:providers:eks", "pulumi:providers:kubernetes"):
        return _provider
    return None


def _provider(call: Call) -> Answer:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, call.registration.urn)), {}


# --- Kubernetes ---------------------------------------------------------------------------------------------------

# Kinds of the built-in API groups that live outside namespaces (`kubectl api-resources --namespaced=false`).
_CLUSTER_SCOPED = frozenset(
    {
        "APIService",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "CSIDriver",
        "CSINode",
        "CustomResourceDefinition",
        "DeviceClass",
        "FlowSchema",
        "IngressClass",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "ResourceSlice",
        "RuntimeClass",
        "StorageClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "VolumeAttachment",
    }
)


def _kubernetes_object(call: Call) -> Answer:
    type_, inputs = call.registration.type, call.inputs
    kind = type_.rsplit(":", 1)[-1].removesuffix("Patch")
    missing = [field for field in ("apiVersion", "kind") if not inputs.get(field)]
    if missing:
        raise SimulationError(f"{type_} has no {' and no '.join(missing)}")
    metadata = dict(call.mapping("metadata"))
    prefix = metadata.get("generateName") or f"{call.registration.name}-"
    metadata.setdefault("name", f"{prefix}sim-{call.digest}")
    # Whether a custom kind is namespaced is known to the cluster alone: its namespace is what the program says.
    if kind not in _CLUSTER_SCOPED and sdk_inputs.resource_class(type_) is not None:
        metadata.setdefault("namespace", "default")
    metadata["uid"] = str(uuid.uuid5(uuid.NAMESPACE_URL, call.registration.urn))
    metadata["creationTimestamp"] = TIME
    namespace = metadata.get("namespace")
    identity = f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
    return identity, {"metadata": metadata}


def _release(call: Call) -> Answer:
    name, namespace = call.name(), call.inputs.get("namespace") or "default"
    status = {
        "name": name,
        "namespace": namespace,
        "revision": 1,
        "status": "deployed",
        "chart": call.text("chart"),
        "version": call.text("version"),
        "appVersion": call.text("version"),
    }
    return f"{namespace}/{name}", {"name": name, "namespace": namespace, "status": status, "resourceNames": {}}
