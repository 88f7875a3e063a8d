"""State of a cluster: its objects at one moment, read in parallel and examined later without further requests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainium_eks.diagnose.local_report import LocalReport
from trainium_eks.jobs.objects.identity import JOB_API
from trainium_eks.jobs.observed import job_snapshot
from trainium_eks.jobs.observed.free_capacity import has_devices
from trainium_eks.jobs.observed.job_snapshot import JobSnapshot
from trainium_eks.kube.api import Api, list_kinds
from trainium_eks.kube.cluster import GROUP_LABEL, Object, labels_of, name_of, namespace_of
from trainium_eks.kube.errors import ClusterError
from trainium_eks.kube.types import ApiError, NoSuchKindError
from trainium_eks.model.outputs import StackOutputs

TEAM_KINDS: Mapping[str, str] = {
    "Node": "v1",
    "Queue": "scheduling.volcano.sh/v1beta1",
    "HyperNode": "topology.volcano.sh/v1alpha1",
    "PersistentVolumeClaim": "v1",
    "ServiceAccount": "v1",
    "Pod": "v1",
    "Event": "v1",
    "Service": "v1",
    "Job": JOB_API,
    "PodGroup": "scheduling.volcano.sh/v1beta1",
}
"""Kinds that a researcher may read: API version of each."""

CHECKED_KINDS: Mapping[str, str] = {
    **{kind: TEAM_KINDS[kind] for kind in ("Node", "Queue", "HyperNode", "PersistentVolumeClaim", "ServiceAccount")},
    "Namespace": "v1",
    "PersistentVolume": "v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
}
"""Kinds that the checks of a stack read. No pods: there may be tens of thousands, and their owners count them."""

KINDS: Mapping[str, str] = {
    **CHECKED_KINDS,
    **TEAM_KINDS,
    "EndpointSlice": "discovery.k8s.io/v1",
    "NodeClaim": "karpenter.sh/v1",
}
"""Kinds that an administrator's diagnosis reads, by one list each."""

VERSION_SECONDS = 20
"""Time that the first answer may take; a server that is there gives it in milliseconds."""

Log = Callable[[Object, bool], Sequence[str]]
"""Function that returns the last lines of a pod's log, or with True of its container before the last restart; none
where the log cannot be read."""


class ReadError(Exception):
    """The API server did not give the requested objects; the message has its words."""


class UnreadError(Exception):
    """A check needs objects that could not be read."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind} objects could not be read: {reason}")
        self.kind = kind


@dataclass(frozen=True)
class ClusterState:
    """The objects of a stack's cluster at one moment, or of the part that a researcher may read."""

    outputs: StackOutputs
    version: str = ""
    """The server's (``v1.35.4``)."""
    objects: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    """Kind to its objects; a kind that the server does not serve has none."""
    unserved: frozenset[str] = frozenset()
    """Kinds that the server does not know: their definition is not installed."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Kind to why it could not be read."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    local: LocalReport | None = None
    """The local cloud's report; None on AWS, where everything must be there."""
    namespace: str = ""
    """The only namespace that was read; empty for all."""
    log: Log = lambda _pod, _previous: ()

    def of(self, kind: str) -> tuple[Object, ...]:
        """Return all objects of a kind; UnreadError: they could not be read."""
        if kind in self.unread:
            raise UnreadError(kind, self.unread[kind])
        return self.readable(kind)

    def readable(self, kind: str) -> tuple[Object, ...]:
        """Return the objects of a kind; none where it may not be read."""
        return self.objects.get(kind, ())

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return one object; None when it does not exist."""
        matching = (each for each in self.of(kind) if name_of(each) == name and namespace_of(each) == namespace)
        return next(matching, None)

    def names(self, kind: str, namespace: str = "") -> set[str]:
        """Return the names of the readable objects of a kind, in a namespace."""
        return {name_of(each) for each in self.readable(kind) if namespace_of(each) == namespace}

    def nodes_of(self, eks_name: str) -> tuple[Object, ...]:
        """Return the nodes of a managed node group, by its name in EKS."""
        return tuple(each for each in self.of("Node") if labels_of(each).get(GROUP_LABEL) == eks_name)

    def nodes_with(self, resource: str) -> Sequence[Object]:
        """Return the nodes of the groups that offer a resource (``vpc.amazonaws.com/efa``)."""
        groups = [group for group in self.outputs.node_groups if resource in group.resources]
        return [node for group in groups for node in self.nodes_of(group.eks_name)]

    @property
    def deploy(self) -> str:
        """Return the command that creates missing resources."""
        return "pulumi up" if self.local is None else "trn local up"

    @property
    def restore(self) -> str:
        """Return the command that undoes manual changes."""
        return "pulumi up --refresh" if self.local is None else "trn local up"

    def missing(self, *names: str) -> str:
        """Return why these charts or releases are not on the local cloud; empty where one is, and on AWS."""
        return self.local.missing(*names) if self.local is not None else ""

    def snapshot_of(self, job: Object) -> JobSnapshot:
        """Return one Volcano job with its surroundings."""
        here = ("", namespace_of(job))
        objects = {
            kind: None
            if kind in self.unread
            else [
                each
                for each in self.readable(kind)
                if namespace_of(each) in here or (kind == "Pod" and has_devices(each["spec"]))
            ]
            for kind in TEAM_KINDS
        }
        return job_snapshot.of_objects(
            self.now,
            job,
            objects,
            groups=self.outputs.node_groups,
            unscheduled=self.local.unscheduled if self.local is not None else "",
            is_local=self.local is not None,
        )


def read(
    api: Api,
    outputs: StackOutputs,
    kinds: Mapping[str, str] = CHECKED_KINDS,
    namespace: str = "",
    local: LocalReport | None = None,
    log: Log = lambda _pod, _previous: (),
) -> ClusterState:
    """Return the objects of these kinds, by one list call for each, all at the same time; of kinds that have a
    namespace only that one's, where it is given.

    ReadError: not even the version can be read. A kind that may not be read is reported by the checks that need it.
    """
    version = read_version(api)
    objects: dict[str, tuple[Object, ...]] = {}
    unserved, unread = set(), {}
    answers = list_kinds(api, [(version, kind) for kind, version in kinds.items()], namespace)
    for kind, answer in zip(kinds, answers, strict=True):
        if isinstance(answer, NoSuchKindError):
            objects[kind] = ()
            unserved.add(kind)
        elif isinstance(answer, ClusterError):
            unread[kind] = str(answer)
        else:
            objects[kind] = tuple(answer)
    return ClusterState(
        outputs, version, objects, frozenset(unserved), unread, local=local, namespace=namespace, log=log
    )


def read_version(api: Api) -> str:
    """Return the server's version (``v1.35.4``); ReadError: the server does not answer, or refuses."""
    try:
        return str(api.request("GET", "/version", timeout_seconds=VERSION_SECONDS)["gitVersion"])
    except ApiError as error:
        if error.status in (401, 403):
            raise ReadError(
                f"the API server {api.server} refuses this machine's credentials: {error}\n"
                "  who you are: aws sts get-caller-identity\n"
                "  who has access: aws eks list-access-entries --cluster-name ..."
            ) from error
        raise ReadError(f"the API server {api.server} gives no version: {error}") from error
    except ClusterError as error:
        raise ReadError(str(error)) from error
    except KeyError:
        raise ReadError(f"{api.server} is not a Kubernetes API server: its /version names no version") from None
