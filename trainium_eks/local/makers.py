"""The makers of a stack's resources on this machine: Kubernetes objects, Helm releases, nodes, and EKS add-ons."""

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_eks.kube.api import Api
from trainium_eks.local.changes import ApplyResult, Change, LocalCloudError
from trainium_eks.local.images.images import with_local_image
from trainium_eks.local.nodes import resizing
from trainium_eks.local.nodes.addon_workloads import AddonWorkloads
from trainium_eks.local.nodes.node_pools import pool_key, pool_of
from trainium_eks.local.nodes.simulated import Nodes
from trainium_eks.local.objects.apply import ObjectReference, Objects
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases.helm import Releases
from trainium_eks.local.releases.volcano import Programs
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.plan.resource import Resource
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.resource_type import DEFAULT_REGION

TIMEOUT_SECONDS = 300.0
"""Longest wait for a resource to be ready where the program gives no limit. No image is pulled here."""

_SIZE = "scalingConfig.desiredSize"


@dataclass(frozen=True)
class ResourceRequest:
    """A resource with the simulation's answer: its computed properties."""

    resource: Resource
    computed: Mapping[str, Any]
    known: Mapping[str, Mapping[str, Any]]
    """Id to inputs of the stack's launch templates and subnets that exist so far, adopted subnets among them."""
    is_update: bool
    """Whether an earlier whole ``up`` made it."""
    make_room: Callable[[], None] = lambda: None
    """Deletes what is made from the resource, before the resource itself is deleted to be replaced."""

    @property
    def region(self) -> str:
        """Return the region of an AWS resource."""
        return str(self.computed.get("region", DEFAULT_REGION))

    @property
    def timeout_seconds(self) -> float:
        """Return the program's time limit, or :data:`TIMEOUT_SECONDS` where it gives none."""
        given = self.resource.options.custom_timeouts
        text = given.get("update" if self.is_update else "create") or given.get("create")
        return seconds(text) if text else TIMEOUT_SECONDS


class Makers:
    """The makers of a running cluster. Safe to use from many threads.

    ``waiting`` is called from time to time with the reason for which the calling thread waits; waits are given up when
    ``stopping`` is set. To delete Volcano's release, none of its programs is needed.
    """

    def __init__(
        self,
        paths: Paths,
        project: Path,
        helm: Path,
        waiting: Callable[[str], None] = lambda _: None,
        stopping: threading.Event | None = None,
        catalogue: Catalogue = CATALOGUE,
        csi_drivers: Sequence[str] = (),
        volcano: Programs | None = None,
    ) -> None:
        api = Api.connect(paths.kubeconfig)
        self._paths = paths
        self._catalogue = catalogue
        self._drivers = csi_drivers
        self._objects = Objects(api, waiting, stopping)
        self._nodes = Nodes(api, waiting, csi_drivers)
        self._addons = AddonWorkloads(self._objects)
        self._releases = Releases(
            paths, helm, api, project, environment=os.environ, volcano=volcano, waiting=waiting, stopping=stopping
        )

    def apply(self, asked: ResourceRequest) -> ApplyResult:
        """Make a resource match the program, from any state."""
        inputs = asked.resource.inputs
        match kind_of(asked.resource.type):
            case "object":
                return self._apply_object(asked)
            case "release":
                named = {**inputs, **reference_of(asked.resource.type, inputs, asked.computed)}
                return self._releases.apply(
                    named, timeout_seconds=float(inputs.get("timeout") or asked.timeout_seconds)
                )
            case "nodes":
                return self._apply_nodes(asked)
            case "addon":
                return self._addons.apply(inputs["addonName"], str(inputs.get("addonVersion", "")), asked.region)
            case _:
                return ApplyResult(Change.SAME)  # it exists in name only

    def delete(self, kind: str, reference: Mapping[str, Any]) -> None:
        """Delete a resource; no error when it does not exist."""
        match kind:
            case "object":
                self._objects.delete(ObjectReference.from_json(reference), timeout_seconds=TIMEOUT_SECONDS)
            case "release":
                self._releases.delete(reference["name"], reference["namespace"])
            case "nodes":
                self._nodes.delete(reference["pool"])
            case "addon":
                self._addons.delete(reference["addon"])

    def _apply_object(self, asked: ResourceRequest) -> ApplyResult:
        type_, inputs = asked.resource.type, asked.resource.inputs
        if type_.endswith("Patch") and not str(inputs.get("kind", "")).endswith("Patch"):
            raise LocalCloudError(
                f"{type_} changes an object of another owner, which the local cloud does not do; declare the "
                "object itself"
            )
        manifest = made_as(inputs, asked.computed)
        return self._objects.apply(manifest, timeout_seconds=asked.timeout_seconds, make_room=asked.make_room)

    def _apply_nodes(self, asked: ResourceRequest) -> ApplyResult:
        inputs = asked.resource.inputs
        zones = {id_: str(each.get("availabilityZoneId", "")) for id_, each in asked.known.items()}
        facts: dict[str, Any] = {
            "inputs": inputs,
            "computed": {"nodeGroupName": asked.computed["nodeGroupName"]},
            "zones": {subnet: zone for subnet, zone in zones.items() if zone},
            "region": asked.region,
            "template": asked.known.get((inputs.get("launchTemplate") or {}).get("id", "")),
        }
        keep_size = asked.is_update and _SIZE in asked.resource.options.ignore_changes
        pool = pool_of(**facts, catalogue=self._catalogue, keep_size=keep_size)
        resizing.record(self._paths, pool.key, facts, self._drivers)
        return self._nodes.apply(pool, timeout_seconds=asked.timeout_seconds)


def kind_of(type_: str) -> str:
    """Return the kind of maker for a resource type, as its row says."""
    row = registry.find(type_)
    return row.local if row else "simulated"


def reference_of(type_: str, inputs: Mapping[str, Any], computed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data by which its maker finds a resource again; empty for one in name only."""
    match kind_of(type_):
        case "object":
            manifest = made_as(inputs, computed)
            name, namespace = manifest["metadata"]["name"], manifest["metadata"].get("namespace", "")
            return ObjectReference(manifest["apiVersion"], manifest["kind"], namespace, name).to_json()
        case "release":
            return {"name": computed["name"], "namespace": computed["namespace"]}
        case "nodes":
            return {"pool": pool_key(computed)}
        case "addon":
            return {"addon": inputs["addonName"]}
        case _:
            return {}


def made_as(inputs: Mapping[str, Any], computed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the manifest of an object as it is made here: with the name and namespace that the simulation chose."""
    named = {key: computed["metadata"][key] for key in ("name", "namespace") if key in computed["metadata"]}
    return with_local_image({**inputs, "metadata": {**(inputs.get("metadata") or {}), **named}})


def seconds(duration: str) -> float:
    """Return a Go duration (``1h30m``, ``90s``) in seconds."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    found = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", duration)
    if "".join(number + unit for number, unit in found) != duration or not found:
        raise LocalCloudError(f"{duration!r} is not a duration such as 30m or 90s")
    return sum(float(number) * units[unit] for number, unit in found)
