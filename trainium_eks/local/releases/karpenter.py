"""Karpenter as a real process, for a stack that installs its chart.

Its core decides as on AWS, and its kwok provider makes simulated nodes where EC2 would start instances. A node class'
settings for AMI, subnets and roles mean nothing here. So each EC2NodeClass has a KWOKNodeClass of the same name beside
it, and node pools refer to that (:func:`localised`).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainium_eks.kube.api import Api, NoSuchKindError, ObjectReference
from trainium_eks.local import toolchain
from trainium_eks.local.control_plane import processes
from trainium_eks.local.control_plane.flags import HOST
from trainium_eks.local.control_plane.loopback import is_healthy
from trainium_eks.local.control_plane.ports import free_port
from trainium_eks.local.control_plane.processes import Running, writing
from trainium_eks.local.nodes.node_pools import adopted_zones
from trainium_eks.local.objects.apply import Objects
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases import parts
from trainium_eks.local.releases.karpenter_types import instance_types
from trainium_eks.local.releases.parts import PartOfStack, PartSource
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.resource_types.rows import vpc
from trainium_eks.plan.resource_types.simulation import DEFAULT_REGION

NAME = "karpenter"

AWS_GROUP, AWS_KIND = "karpenter.k8s.aws", "EC2NodeClass"
KWOK_GROUP, KWOK_KIND = "karpenter.kwok.sh", "KWOKNodeClass"

_CLAIM = ("karpenter.sh/v1", "NodeClaim")
_OURS = {"trainium-eks/local": NAME}
_TYPES_FLAG = "instance-types-file-path"


def prepare(paths: Paths, found: PartSource, waiting: Callable[[str], None]) -> None:
    """Apply Karpenter's definitions, which the program's node pools need."""
    if found.manifests:
        objects = Objects(Api.connect(paths.kubeconfig), waiting)
        for manifest in found.manifests:
            objects.apply(manifest, timeout_seconds=parts.READY_SECONDS)


def localised(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a node pool with the node class of kwok in place of AWS'; any other object unchanged."""
    if manifest.get("kind") != "NodePool" or not str(manifest.get("apiVersion")).startswith("karpenter.sh/"):
        return manifest
    spec = manifest["spec"]
    template = spec["template"]
    node = template["spec"]
    reference = node.get("nodeClassRef") or {}
    if reference.get("group") != AWS_GROUP:
        return manifest
    here = {**reference, "group": KWOK_GROUP, "kind": KWOK_KIND}
    return {**manifest, "spec": {**spec, "template": {**template, "spec": {**node, "nodeClassRef": here}}}}


def offered(graph: Graph) -> list[dict[str, Any]]:
    """Return the instance types of a stack's catalogue, in the zones of its subnets."""
    catalogue = with_entries(CATALOGUE, graph.config.get("instanceTypes") or {})
    zone_ids = {str(each.inputs.get("availabilityZoneId") or "") for each in graph.of_type(vpc.SUBNET.token)}
    zone_ids |= {*adopted_zones(graph.config).values()}
    return instance_types(catalogue, str(graph.config.get("region") or DEFAULT_REGION), zone_ids - {""})


class Karpenter(PartOfStack):
    """The Karpenter of a stack."""

    part = toolchain.KARPENTER

    @staticmethod
    def is_wanted(graph: Graph) -> bool:
        """Return whether a stack installs Karpenter, by whichever path its chart has."""
        releases = graph.of_type("kubernetes:helm.sh/v3:Release")
        return any(str(each.inputs.get("chart")).rpartition("/")[2] == NAME for each in releases)

    # The definitions of Karpenter's objects and of its kwok provider's.
    manifests = (
        "pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml",
        "pkg/apis/crds/karpenter.sh_nodeclaims.yaml",
        "pkg/apis/crds/karpenter.sh_nodeoverlays.yaml",
        "pkg/apis/crds/karpenter.sh_nodepools.yaml",
        "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
    )

    def run(self, found: PartSource) -> str:
        """Start Karpenter; see :meth:`.PartOfStack.run`."""
        if found.program is None:
            self.remove()
            return f"Nodes are not scaled: {found.missing}"
        self._make_node_classes()
        if self._write(offered(self._graph)):
            processes.stop(self._paths, [NAME])
        before = self._kept(found.program)
        health = parts.port(before, "health-probe-port") if before else free_port(set())
        process = before or self._start(found.program, health)
        parts.await_ready(self._paths, NAME, [process], lambda: _not_ready(health), self._waiting)
        return f"Karpenter runs for real{'' if before else ' (started)'}: it makes simulated nodes, and takes them away"

    def remove(self) -> None:
        """End Karpenter, after the nodes that it made: they wait for it before they go."""
        if parts.running(self._paths, NAME):
            found = [ObjectReference(*_CLAIM, "", each["metadata"]["name"]) for each in self._api.list(*_CLAIM)]
            for claim in found:
                self._api.delete(claim)
            for claim in found:
                self._objects.delete(claim, timeout_seconds=parts.READY_SECONDS)
        processes.stop(self._paths, [NAME])

    def _make_node_classes(self) -> None:
        """Make a node class of kwok for each of AWS', and delete the others."""
        try:
            wanted = {each["metadata"]["name"] for each in self._api.list(f"{AWS_GROUP}/v1", AWS_KIND)}
        except NoSuchKindError:
            wanted = set()
        version = f"{KWOK_GROUP}/v1alpha1"
        for name in sorted(wanted):
            metadata = {"name": name, "labels": dict(_OURS)}
            self._objects.apply(
                {"apiVersion": version, "kind": KWOK_KIND, "metadata": metadata}, timeout_seconds=parts.READY_SECONDS
            )
        [(key, value)] = _OURS.items()
        for each in self._api.list(version, KWOK_KIND, labels=f"{key}={value}"):
            if each["metadata"]["name"] not in wanted:
                self._api.delete(ObjectReference(version, KWOK_KIND, "", each["metadata"]["name"]))

    @property
    def _types(self) -> Path:
        """Return the file with the instance types for its provider."""
        return self._home / "instance-types.json"

    def _write(self, types: list[dict[str, Any]]) -> bool:
        """Write the instance types, and return whether the file has changed."""
        text = json.dumps(types, indent=1)
        with writing(self._types):
            if self._types.exists() and self._types.read_text(encoding="utf-8") == text:
                return False
            self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._types.write_text(text, encoding="utf-8")
        return True

    def _start(self, program: Path, health: int) -> Running:
        arguments = [
            # The only argument with a path of the stack: by it the process is found again.
            f"--{_TYPES_FLAG}={self._types}",
            "--disable-leader-election=true",
            f"--health-probe-port={health}",
            f"--metrics-port={free_port({health})}",
        ]
        return processes.start(self._paths, NAME, [program, *arguments], {"KUBECONFIG": str(self._paths.kubeconfig)})


def _not_ready(health: int) -> str:
    return "" if is_healthy(f"http://{HOST}:{health}/readyz") else f"{NAME} is not ready"
