"""The backend of the local cloud: Kubernetes resources are made for real, AWS resources come from the simulation.

Every registration goes through the simulation first, which refuses unknown types and inputs and gives ids and physical
names. Kubernetes resources are then made on the local API server, and stand-ins are made for the objects that AWS would
have put there (nodes, the workloads of EKS add-ons).
"""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import ApplyResult, Change
from trainium_eks.local.control_plane import pki
from trainium_eks.local.events import Abandoned, BackendOptions, Begun, Done, Event, Failed, Tell, Waiting, to_json
from trainium_eks.local.handlers import Maker, ResourceRequest, kind_of, makers
from trainium_eks.local.ledger import Holding, Ledger, digest
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases.volcano import Programs
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.plan.backend import Answer, Registration, SimulationError, UnknownTypeError
from trainium_eks.plan.graph import UNKNOWN, Resource
from trainium_eks.plan.resource_types import replacements
from trainium_eks.plan.resource_types.rows import ec2, eks, vpc
from trainium_eks.plan.resource_types.simulation import DEFAULT_REGION, Simulation

REMEMBERED = (vpc.SUBNET.token, ec2.LAUNCH_TEMPLATE.token)
"""Types of the resources, besides the node group, that nodes are made from."""


def open_backend(options: Mapping[str, Any], region: str, emit: Callable[[Mapping[str, Any]], None]) -> "LocalBackend":
    """Return the backend for a program that is recorded in a separate process."""
    asked = BackendOptions.from_json(options)
    paths = Paths(Path(asked.root))

    def tell(event: Event) -> None:
        emit(to_json(event))

    backend = LocalBackend(Simulation(region or DEFAULT_REGION), Ledger.open(paths.ledger), tell, asked.adopted_zones)
    made = makers(
        paths,
        Path(asked.project),
        Path(asked.helm),
        backend.waiting,
        backend.stopped,
        with_entries(CATALOGUE, asked.instance_types),
        asked.csi_drivers,
        Programs({name: Path(path) for name, path in asked.volcano.items()}, asked.volcano_missing),
    )
    backend.connect(made, endpoint=asked.server, authority=pki.certificate_authority_data(paths))
    return backend


class LocalBackend:
    """The backend that makes a program's resources on this machine. The first failure stops the rest."""

    def __init__(
        self,
        simulation: Simulation,
        ledger: Ledger,
        tell: Tell,
        adopted_zones: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._simulation = simulation
        self._ledger = ledger
        self._tell = tell
        self._makers: Mapping[str, Maker] = {}
        self._cluster: Mapping[str, Any] = {}
        self._made: dict[str, Mapping[str, Any]] = {
            subnet: {"availabilityZoneId": zone} for subnet, zone in adopted_zones.items()
        }
        self.stopped = threading.Event()
        """Set by the first failure: nothing new begins, and waits that are under way are given up."""
        self._thread = threading.local()

    def connect(self, made: Mapping[str, Maker], *, endpoint: str, authority: str) -> None:
        """Set the makers and the address of the cluster's API server."""
        self._makers = made
        self._cluster = {"endpoint": endpoint, "certificateAuthority": {"data": authority}}

    def simulates(self, type_: str) -> bool:
        """Return whether the simulation answers for a type; see :class:`~trainium_eks.plan.backend.Backend`."""
        return kind_of(type_) in ("simulated", "nodes", "addon")

    def waiting(self, reason: str) -> None:
        """Report the reason for which the resource of the calling thread waits."""
        self._tell(Waiting(getattr(self._thread, "urn", ""), reason))

    def create(self, registration: Registration) -> Answer:
        """Create a resource; see :class:`~trainium_eks.plan.backend.Backend`."""
        if self.stopped.is_set():
            raise SimulationError("not started: something else failed first")
        self._thread.urn = registration.urn
        self._tell(Begun(registration.urn))
        try:
            identity, computed = self._simulation.create(registration)
            applied = self._apply(registration, identity, computed)
        except UnknownTypeError:
            # The recording answers with the inputs, or refuses the program.
            self._tell(Done(registration.urn, "simulated", registration.name, Change.SAME))
            raise
        except (ClusterError, SimulationError) as error:
            self._fail(registration.urn, str(error))
            raise SimulationError(str(error)) from None
        except Exception as error:
            self._fail(registration.urn, f"internal error: {type(error).__name__}: {error}")
            raise
        self._tell(
            Done(
                registration.urn,
                kind=kind_of(registration.type),
                name=str(computed.get("name") or registration.name),
                change=applied.change,
                notes=applied.notes,
                not_installed=applied.not_installed,
            )
        )
        return identity, {**computed, **self._known_of(registration, identity), **applied.outputs}

    def _apply(self, registration: Registration, identity: str, computed: Mapping[str, Any]) -> ApplyResult:
        kind = kind_of(registration.type)
        unknown = [name for name, value in registration.inputs.items() if UNKNOWN in json.dumps(value)]
        if unknown and kind in ("object", "release"):
            raise SimulationError(f"cannot be made here: {', '.join(unknown)} comes from what is not simulated")
        maker = self._makers[kind]
        held = self._ledger.of(registration.urn, kind)
        asked = ResourceRequest(
            registration, identity, computed, dict(self._made), held, lambda: self._make_room(registration.urn)
        )
        holding = Holding(
            urn=registration.urn,
            type=registration.type,
            kind=kind,
            reference=maker.reference(asked),
            digest=digest(registration.inputs),
            after=tuple(filter(None, (*registration.dependencies, registration.parent, registration.provider))),
            deleted_with=registration.options.deleted_with,
            replaced_with=replacements.replaced_with(_resource(registration)),
            protect=registration.options.protect,
            retain=registration.options.retain_on_delete,
        )
        self._ledger.hold(holding, done=False)
        applied = maker.apply(asked)
        self._ledger.hold(holding, done=True)
        return applied

    def _make_room(self, urn: str) -> None:
        """Delete the holdings made from a resource that is about to be replaced, newest first.

        Pulumi's engine deletes in this order: a volume's claim, and before it the job with a pod that holds the claim.
        """
        for holding in reversed(self._ledger.made_from(urn)):
            self._make_room(holding.urn)
            self._makers[holding.kind].delete(holding.reference)
            self._ledger.drop(holding)

    def _known_of(self, registration: Registration, identity: str) -> Mapping[str, Any]:
        """Return the real properties of a simulated resource, and remember its inputs where nodes depend on them."""
        if registration.type in REMEMBERED:
            self._made[identity] = registration.inputs
        return self._cluster if registration.type == eks.CLUSTER.token else {}

    def _fail(self, urn: str, message: str) -> None:
        event = Abandoned(urn, message) if self.stopped.is_set() else Failed(urn, message)
        self.stopped.set()
        self._tell(event)


def _resource(registration: Registration) -> Resource:
    """Return the resource that a registration describes, without computed properties."""
    return Resource(
        registration.urn,
        registration.type,
        registration.name,
        inputs=registration.inputs,
        property_dependencies=registration.property_dependencies,
        options=registration.options,
    )
