"""The makers: for each kind of holding, the class that makes it on this machine and deletes it."""

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainium_eks.kube.api import Api
from trainium_eks.local.changes import ApplyResult, Change, LocalCloudError
from trainium_eks.local.images.images import with_local_image
from trainium_eks.local.ledger import Holding, digest
from trainium_eks.local.nodes import resizing
from trainium_eks.local.nodes.addon_workloads import AddonWorkloads
from trainium_eks.local.nodes.node_pools import pool_key, pool_of
from trainium_eks.local.nodes.simulated import Nodes
from trainium_eks.local.objects.apply import ObjectReference, Objects
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases.helm import Releases
from trainium_eks.local.releases.volcano import Programs
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.plan.backend import Registration
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.simulation import DEFAULT_REGION

TIMEOUT_SECONDS = 300.0
"""Longest wait for a resource to be ready where the program gives no limit. No image is pulled here."""


@dataclass(frozen=True)
class ResourceRequest:
    """A registration with the simulation's answer: its id and computed properties."""

    registration: Registration
    identity: str
    computed: Mapping[str, Any]
    made: Mapping[str, Mapping[str, Any]]
    """Id to inputs of the stack's launch templates and subnets that exist so far, adopted subnets among them."""
    held: Holding | None
    """The resource's holding from an earlier ``up``."""
    make_room: Callable[[], None] = lambda: None
    """Deletes the holdings made from the resource, before the resource itself is deleted to be replaced."""

    @property
    def region(self) -> str:
        """Return the region of an AWS resource."""
        return str(self.computed.get("region", DEFAULT_REGION))

    @property
    def timeout_seconds(self) -> float:
        """Return the program's time limit, or :data:`TIMEOUT_SECONDS` where it gives none."""
        given = self.registration.options.custom_timeouts
        text = given.get("update" if self.held else "create") or given.get("create")
        return seconds(text) if text else TIMEOUT_SECONDS


class Maker(Protocol):
    """The maker of one kind of holding."""

    def reference(self, asked: ResourceRequest) -> Mapping[str, Any]:
        """Return the reference of a resource, as plain data, before the resource is made."""
        ...

    def apply(self, asked: ResourceRequest) -> ApplyResult:
        """Make the resource match its registration, from any state."""
        ...

    def delete(self, reference: Mapping[str, Any]) -> None:
        """Delete a resource; no error when it does not exist."""
        ...


def makers(
    paths: Paths,
    project: Path,
    helm: Path,
    waiting: Callable[[str], None] = lambda _: None,
    stopping: threading.Event | None = None,
    catalogue: Catalogue = CATALOGUE,
    csi_drivers: Sequence[str] = (),
    volcano: Programs | None = None,
) -> Mapping[str, Maker]:
    """Return the makers of a running cluster by kind of holding.

    ``waiting`` is called from time to time with the reason for which the calling thread waits; waits are given up when
    ``stopping`` is set. To delete Volcano's release, none of its programs is needed.
    """
    api = Api.connect(paths.kubeconfig)
    objects = Objects(api, waiting, stopping)
    releases = Releases(
        paths, helm, api, project, environment=os.environ, volcano=volcano, waiting=waiting, stopping=stopping
    )
    return {
        "object": _Objects(objects),
        "release": _Releases(releases),
        "nodes": _Nodes(paths, Nodes(api, waiting, csi_drivers), catalogue, csi_drivers),
        "addon": _Addons(AddonWorkloads(objects)),
        "simulated": _SimulatedHandler(),
    }


def kind_of(type_: str) -> str:
    """Return the kind of maker for a resource type, as its row says."""
    row = registry.find(type_)
    return row.local if row else "simulated"


def seconds(duration: str) -> float:
    """Return a Go duration (``1h30m``, ``90s``) in seconds."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    found = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", duration)
    if "".join(number + unit for number, unit in found) != duration or not found:
        raise LocalCloudError(f"{duration!r} is not a duration such as 30m or 90s")
    return sum(float(number) * units[unit] for number, unit in found)


class _Objects:
    """The maker of Kubernetes objects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def reference(self, asked: ResourceRequest) -> Mapping[str, Any]:
        manifest = made_as(asked.registration.inputs, asked.computed)
        metadata = manifest["metadata"]
        reference = ObjectReference(
            manifest["apiVersion"], manifest["kind"], metadata.get("namespace", ""), metadata["name"]
        )
        return reference.to_json()

    def apply(self, asked: ResourceRequest) -> ApplyResult:
        type_ = asked.registration.type
        if type_.endswith("Patch") and not str(asked.registration.inputs.get("kind", "")).endswith("Patch"):
            raise LocalCloudError(
                f"{type_} changes an object that somebody else owns, which the local cloud does not do; declare the "
                "object itself"
            )
        manifest = made_as(asked.registration.inputs, asked.computed)
        return self._objects.apply(manifest, timeout_seconds=asked.timeout_seconds, make_room=asked.make_room)

    def delete(self, reference: Mapping[str, Any]) -> None:
        self._objects.delete(ObjectReference.from_json(reference), timeout_seconds=TIMEOUT_SECONDS)


def made_as(inputs: Mapping[str, Any], computed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the manifest of an object as it is made here: with the name and namespace that the simulation chose."""
    named = {key: computed["metadata"][key] for key in ("name", "namespace") if key in computed["metadata"]}
    return with_local_image({**inputs, "metadata": {**(inputs.get("metadata") or {}), **named}})


class _Releases:
    """The maker of Helm releases."""

    def __init__(self, releases: Releases) -> None:
        self._releases = releases

    def reference(self, asked: ResourceRequest) -> Mapping[str, Any]:
        return {"name": asked.computed["name"], "namespace": asked.computed["namespace"]}

    def apply(self, asked: ResourceRequest) -> ApplyResult:
        inputs = {**asked.registration.inputs, **self.reference(asked)}
        timeout = float(inputs.get("timeout") or asked.timeout_seconds)
        return self._releases.apply(inputs, timeout_seconds=timeout)

    def delete(self, reference: Mapping[str, Any]) -> None:
        self._releases.delete(reference["name"], reference["namespace"])


_SIZE = "scalingConfig.desiredSize"


class _Nodes:
    """The maker of the nodes of managed node groups."""

    def __init__(self, paths: Paths, nodes: Nodes, catalogue: Catalogue, drivers: Sequence[str]) -> None:
        self._paths = paths
        self._nodes = nodes
        self._catalogue = catalogue
        self._drivers = drivers

    def reference(self, asked: ResourceRequest) -> Mapping[str, Any]:
        return {"pool": pool_key(asked.computed)}

    def apply(self, asked: ResourceRequest) -> ApplyResult:
        inputs = asked.registration.inputs
        zones = {id_: str(made.get("availabilityZoneId", "")) for id_, made in asked.made.items()}
        facts: dict[str, Any] = {
            "inputs": inputs,
            "computed": {"nodeGroupName": asked.computed["nodeGroupName"]},
            "zones": {subnet: zone for subnet, zone in zones.items() if zone},
            "region": asked.region,
            "template": asked.made.get((inputs.get("launchTemplate") or {}).get("id", "")),
        }
        keep_size = asked.held is not None and asked.held.done and _SIZE in asked.registration.options.ignore_changes
        pool = pool_of(**facts, catalogue=self._catalogue, keep_size=keep_size)
        resizing.record(self._paths, pool.key, facts, self._drivers)
        return self._nodes.apply(pool, timeout_seconds=asked.timeout_seconds)

    def delete(self, reference: Mapping[str, Any]) -> None:
        self._nodes.delete(reference["pool"])


class _Addons:
    """The maker of the workloads of EKS add-ons."""

    def __init__(self, workloads: AddonWorkloads) -> None:
        self._workloads = workloads

    def reference(self, asked: ResourceRequest) -> Mapping[str, Any]:
        return {"addon": asked.registration.inputs["addonName"]}

    def apply(self, asked: ResourceRequest) -> ApplyResult:
        inputs = asked.registration.inputs
        return self._workloads.apply(inputs["addonName"], str(inputs.get("addonVersion", "")), asked.region)

    def delete(self, reference: Mapping[str, Any]) -> None:
        self._workloads.delete(reference["addon"])


class _SimulatedHandler:
    """The maker of all other AWS resources, which exist in name only."""

    def reference(self, asked: ResourceRequest) -> Mapping[str, Any]:
        return {"id": asked.identity}

    def apply(self, asked: ResourceRequest) -> ApplyResult:
        if asked.held is None or not asked.held.done:
            return ApplyResult(Change.CREATED)
        changed = asked.held.digest != digest(asked.registration.inputs)
        return ApplyResult(Change.UPDATED if changed else Change.SAME)

    def delete(self, reference: Mapping[str, Any]) -> None:
        """Do nothing: the resource exists in name only."""
