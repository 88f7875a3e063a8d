"""The backend of the local cloud: Kubernetes resources are made for real, AWS resources come from the simulation.

Every registration goes through the simulation first, which refuses unknown types and inputs and gives ids and physical
names. Kubernetes resources are then made on the local API server, and stand-ins are made for the objects that AWS would
have put there (nodes, the workloads of EKS add-ons).
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local import inventory
from trainium_eks.local.changes import ApplyResult, Change
from trainium_eks.local.control_plane import credentials
from trainium_eks.local.events import BackendOptions, Done, Event, Failed, Tell, Working, to_json
from trainium_eks.local.inventory import Item
from trainium_eks.local.makers import Makers, ResourceRequest, kind_of
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases.volcano import Programs
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.plan.backend import Answer, SimulationError, UnknownTypeError
from trainium_eks.plan.graph import UNKNOWN, Resource
from trainium_eks.plan.resource_types.resource_type import DEFAULT_REGION
from trainium_eks.plan.resource_types.rows import ec2, eks, vpc
from trainium_eks.plan.resource_types.simulation import Simulation

REMEMBERED = (vpc.SUBNET.token, ec2.LAUNCH_TEMPLATE.token)
"""Types of the resources, besides the node group, that nodes are made from."""


def open_backend(options: Mapping[str, Any], region: str, emit: Callable[[Mapping[str, Any]], None]) -> "LocalBackend":
    """Return the backend for a program that is recorded in a separate process."""
    asked = BackendOptions(**options)
    paths = Paths(Path(asked.root))

    def tell(event: Event) -> None:
        emit(to_json(event))

    backend = LocalBackend(Simulation(region or DEFAULT_REGION), inventory.load(paths), tell, asked.adopted_zones)
    makers = Makers(
        paths,
        Path(asked.project),
        Path(asked.helm),
        backend.waiting,
        backend.stopped,
        with_entries(CATALOGUE, asked.instance_types),
        asked.csi_drivers,
        Programs({name: Path(path) for name, path in asked.volcano.items()}, asked.volcano_missing),
    )
    backend.connect(makers, endpoint=asked.server, authority=credentials.certificate_authority_data(paths))
    return backend


class LocalBackend:
    """The backend that makes a program's resources on this machine. The first failure stops the rest.

    ``before`` are the resources that may exist from earlier.
    """

    def __init__(
        self,
        simulation: Simulation,
        before: Sequence[Item],
        tell: Tell,
        adopted_zones: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._simulation = simulation
        self._before = before
        self._whole = {each.urn for each in before if each.whole}
        self._tell = tell
        self._cluster: Mapping[str, Any] = {}
        self._known: dict[str, Mapping[str, Any]] = {
            subnet: {"availabilityZoneId": zone} for subnet, zone in adopted_zones.items()
        }
        self.stopped = threading.Event()
        """Set by the first failure: nothing new begins, and waits that are under way are given up."""
        self._thread = threading.local()

    def connect(self, makers: Makers, *, endpoint: str, authority: str) -> None:
        """Set the makers and the address of the cluster's API server."""
        self._makers = makers
        self._cluster = {"endpoint": endpoint, "certificateAuthority": {"data": authority}}

    def simulates(self, type_: str) -> bool:
        """Return whether the simulation answers for a type; see :class:`~trainium_eks.plan.backend.Backend`."""
        return kind_of(type_) in ("simulated", "nodes", "addon")

    def waiting(self, reason: str) -> None:
        """Report the reason for which the resource of the calling thread waits."""
        self._tell(Working(getattr(self._thread, "urn", ""), reason))

    def create(self, resource: Resource) -> Answer:
        """Create a resource; see :class:`~trainium_eks.plan.backend.Backend`."""
        if self.stopped.is_set():
            raise SimulationError("not started: something else failed first")
        self._thread.urn = resource.urn
        self._tell(Working(resource.urn))
        try:
            identity, computed = self._simulation.create(resource)
            applied = self._apply(resource, computed)
        except UnknownTypeError:
            # The recording answers with the inputs, or refuses the program.
            self._tell(Done(resource.urn, "simulated", resource.name, Change.SAME))
            raise
        except (ClusterError, SimulationError) as error:
            self._fail(resource.urn, str(error))
            raise SimulationError(str(error)) from None
        except Exception as error:
            self._fail(resource.urn, f"internal error: {type(error).__name__}: {error}")
            raise
        self._tell(
            Done(
                resource.urn,
                kind=kind_of(resource.type),
                name=str(computed.get("name") or resource.name),
                change=applied.change,
                notes=applied.notes,
                not_installed=applied.not_installed,
            )
        )
        if resource.type in REMEMBERED:
            self._known[identity] = resource.inputs
        cluster = self._cluster if resource.type == eks.CLUSTER.token else {}
        return identity, {**computed, **cluster, **applied.outputs}

    def _apply(self, resource: Resource, computed: Mapping[str, Any]) -> ApplyResult:
        unknown = [name for name, value in resource.inputs.items() if UNKNOWN in json.dumps(value)]
        if unknown and kind_of(resource.type) in ("object", "release"):
            raise SimulationError(f"cannot be made here: {', '.join(unknown)} comes from what is not simulated")
        urn = resource.urn
        is_update = urn in self._whole
        return self._makers.apply(
            ResourceRequest(resource, computed, dict(self._known), is_update, lambda: self._make_room(urn))
        )

    def _make_room(self, urn: str) -> None:
        """Delete what was made from a resource that is about to be replaced, newest first.

        Pulumi's engine deletes in this order: a volume's claim, and before it the job with a pod that holds the claim.
        """
        for each in reversed(self._before):
            if urn in each.replaced_with:
                self._make_room(each.urn)
                self._makers.delete(each.kind, each.reference)

    def _fail(self, urn: str, message: str) -> None:
        """Report the first failure; others follow from it."""
        if not self.stopped.is_set():
            self.stopped.set()
            self._tell(Failed(urn, message))
