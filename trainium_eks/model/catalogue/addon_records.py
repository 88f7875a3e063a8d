"""EKS add-ons that this project knows: one record each, which components, checks, plans and the local cloud read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from trainium_eks.model.catalogue import lustre, versions
from trainium_eks.model.catalogue.chart_workloads import EBS_DRIVER, SYSTEM_NAMESPACE, Workload, table
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.policies import addon_policies
from trainium_eks.model.policies.addon_policies import Statement
from trainium_eks.model.sizing import addresses

Phase = Literal["before nodes", "after nodes", "on request"]


@dataclass(frozen=True)
class Pod:
    """Description of the pods of a workload, from which the local cloud makes its stand-ins."""

    container: str
    """Name of its main container."""
    image: str
    """Repository; ``{registry}`` is EKS' own of the region."""
    labels: Mapping[str, str]
    """Labels by which the workload selects its pods."""
    service_account: str
    millicpu: int = 0
    """CPU request of all its containers together; 0 for none."""
    memory_mib: int = 0
    host_network: bool = False
    tolerates: Literal["everything", "accelerator", "critical", "nothing"] = "nothing"
    """``everything`` for agents of every node, ``accelerator`` for agents of one family's nodes, ``critical`` for
    controllers."""


@dataclass(frozen=True, kw_only=True)
class AddonWorkload(Workload):
    """A DaemonSet or Deployment of an add-on, with its pods."""

    pod: Pod


@dataclass(frozen=True)
class Identity:
    """A controller's rights in AWS, by Pod Identity."""

    service_account: str
    """Service account that its chart makes."""
    namespace: str = SYSTEM_NAMESPACE
    managed_policy: str = ""
    """Policy that AWS maintains for it (``service-role/…`` with its path), or empty."""
    statements: Callable[[str, str], Sequence[Statement]] | None = None
    """Further statements, from the key's ARN and the region."""
    on_demand: Callable[[str, str], Sequence[Statement]] | None = None
    """Further statements if claims may create file systems."""


@dataclass(frozen=True)
class CsiDriver:
    """The CSI driver that a storage add-on registers."""

    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True)
class Addon:
    """One EKS add-on."""

    name: str
    """Its name in EKS."""
    phase: Phase
    """``before nodes``: daemons without which a node is never Ready; with no node yet they are active at once. ``after
    nodes``: add-ons with pods, DEGRADED until a node runs them. ``on request``: known, and installed if the config
    names it."""
    seconds: float = 45
    """Median time to ACTIVE in published logs; without a log, the time of the slowest kind, a CSI driver."""
    settings: Callable[[str, Catalogue], Mapping[str, Any]] | None = None
    """Its configuration values, from the region and the catalogue. EKS refuses a key that the add-on's schema lacks."""
    least_version: tuple[int, ...] = ()
    """First version that these settings and this role fit."""
    identity: Identity | None = None
    """None for an add-on that calls no AWS."""
    driver: CsiDriver | None = None

    def version(self, kubernetes_version: str) -> str:
        """Return the build for a Kubernetes minor version; empty when none is pinned."""
        pins = versions.ADDONS.get(self.name, {})
        return pins.get(kubernetes_version, pins.get("*", ""))

    @property
    def workloads(self) -> tuple[AddonWorkload, ...]:
        """Return its workloads, as ``workloads.yaml`` has them."""
        return tuple(_workload(each) for each in table()["addons"].get(self.name, ()))


def _workload(row: Mapping[str, Any]) -> AddonWorkload:
    name, tolerated = row["name"], "everything" if row["kind"] == "DaemonSet" else "critical"
    pod = Pod(**{"container": name, "service_account": name, "tolerates": tolerated, **row["pod"]})
    return AddonWorkload(**{**row, "namespace": SYSTEM_NAMESPACE, "pod": pod})


def _cni_settings(_region: str, _catalogue: Catalogue) -> Mapping[str, Any]:
    # The address budget is counted with the same two numbers.
    targets = {"WARM_IP_TARGET": str(addresses.PODS.warm), "MINIMUM_IP_TARGET": str(addresses.PODS.minimum)}
    return {"enableNetworkPolicy": "true", "env": {**targets, "ENABLE_PREFIX_DELEGATION": "false"}}


def _ebs_settings(region: str, _catalogue: Catalogue) -> Mapping[str, Any]:
    """Return the settings with the region: with a metadata hop limit of one, controllers off the host network cannot
    query it. The FSx driver reads it from a variable that Pod Identity sets in its pods (aws-fsx-csi-driver,
    ``newControllerService``)."""
    return {"controller": {"region": region}}


def _monitoring_settings(_region: str, catalogue: Catalogue) -> Mapping[str, Any]:
    """Return tolerations for the DCGM server; without them it tolerates no taint (containers-roadmap#2567). Without a
    DCGM server on a GPU node the agent permanently reports the node's hardware as broken. Set with and without GPU
    groups: a group that is added later starts nodes before an update of the add-on would be complete."""
    taints = {
        (taint.key, taint.effect)
        for name, each in catalogue.items()
        if each.family == "nvidia"
        for taint in (*catalogue.taints(name), *catalogue.startup_taints(name))
    }
    tolerations = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in sorted(taints)]
    return {"dcgmAgent": {"tolerations": tolerations}}


VPC_CNI = Addon(
    name="vpc-cni",
    phase="before nodes",
    seconds=50,
    settings=_cni_settings,
    identity=Identity("aws-node", managed_policy="AmazonEKS_CNI_Policy"),
)

_ALL = (
    VPC_CNI,
    Addon(name="kube-proxy", phase="before nodes", seconds=25),
    Addon(name="eks-pod-identity-agent", phase="before nodes", seconds=24),
    Addon(name="coredns", phase="after nodes", seconds=35),
    Addon(
        name="aws-ebs-csi-driver",
        phase="after nodes",
        seconds=45,
        settings=_ebs_settings,
        identity=Identity(
            "ebs-csi-controller-sa",
            # Only its own cluster's volumes, where AmazonEBSCSIDriverPolicy has the whole account's. It compares the
            # tag that the driver writes from 1.58 on with the session's, which Pod Identity brings
            # (aws-ebs-csi-driver#2918).
            managed_policy="AmazonEBSCSIDriverEKSClusterScopedPolicy",
            statements=addon_policies.ebs_statements,
        ),
        least_version=(1, 58, 0),
        driver=CsiDriver(EBS_DRIVER, {"attachRequired": True, "podInfoOnMount": False, "fsGroupPolicy": "File"}),
    ),
    Addon(
        name="aws-fsx-csi-driver",
        phase="after nodes",
        identity=Identity(
            "fsx-csi-controller-sa",
            statements=addon_policies.fsx_statements,
            on_demand=addon_policies.fsx_on_demand_statements,
        ),
        # No controller attaches a Lustre file system: nodes mount it by themselves.
        driver=CsiDriver(
            lustre.DRIVER,
            {"attachRequired": False, "podInfoOnMount": False, "fsGroupPolicy": "ReadWriteOnceWithFSType"},
        ),
    ),
    Addon(name="metrics-server", phase="after nodes"),
    Addon(
        name="eks-node-monitoring-agent",
        phase="after nodes",
        settings=_monitoring_settings,
        least_version=(1, 3, 0),
    ),
    Addon(
        name="amazon-cloudwatch-observability",
        phase="on request",
        identity=Identity("cloudwatch-agent", "amazon-cloudwatch", managed_policy="CloudWatchAgentServerPolicy"),
    ),
)

ADDONS: Mapping[str, Addon] = MappingProxyType({each.name: each for each in _ALL})
"""Every known add-on by EKS' name, in the order of installation."""


def installed() -> tuple[Addon, ...]:
    """Return the add-ons that every cluster of this project has."""
    return tuple(each for each in ADDONS.values() if each.phase != "on request")


def pinned(kubernetes_version: str) -> Mapping[str, str]:
    """Return the add-ons of every cluster with their builds, except add-ons without a pinned build for the minor
    version."""
    found = {each.name: each.version(kubernetes_version) for each in installed()}
    return MappingProxyType({name: version for name, version in found.items() if version})
