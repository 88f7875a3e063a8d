"""Existing resources of the account: this stack's, which count as needed, and others', which use up quotas."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.aws.account import Account
from trainium_eks.aws.tags import cluster_of, tags_of
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.operate.preflight.needs import Needs

_RUNNING = {"Name": "instance-state-name", "Values": ["pending", "running"]}
_STANDARD = frozenset("acdhimrtz")
"""First letters of the families that share one quota."""
_OWN_QUOTA = frozenset({"trn", "inf", "hpc", "mac", "dl", "p", "g", "gr", "vt", "f", "x", "u"})
"""Families (the letters before the first digit) that have a separate quota, or none."""


@dataclass(frozen=True)
class Instance:
    """A running EC2 instance."""

    type: str
    vcpus: int
    spot: bool
    in_block: bool
    """Whether it runs in a Capacity Block, which counts against no quota."""
    ours: bool


class AccountState:
    """The present state of the account. Each fact is read once, on first use."""

    def __init__(self, needs: Needs, account: Account) -> None:
        self.needs = needs
        self.account = account

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters that this stack has, or has left behind."""
        wanted = self.needs.cluster_name
        names = self.account.pages_once("eks", "list_clusters", "clusters")
        return tuple(name for name in names if wanted and _is_ours(name, wanted))

    def cluster(self) -> Mapping[str, Any] | None:
        """Return the stack's running cluster, as EKS describes it; None before the first ``up``."""

        def read() -> Mapping[str, Any] | None:
            for name in self.clusters():
                found = self.account.find("eks", "describe_cluster", absent=".*", name=name)
                if found and self.owns(found["cluster"].get("tags", {})):
                    return dict(found["cluster"])
            return None

        return self.account.once("cluster", read)

    def owns(self, tags: Mapping[str, str]) -> bool:
        """Return whether a resource carries this stack's tags."""
        return tags.get("ManagedBy") == "pulumi" and tags.get("Environment") == self.needs.stack

    def instances(self) -> list[Instance]:
        """Return the instances that run or are about to."""
        clusters = self.clusters()
        found = self.account.pages_once("ec2", "describe_instances", "Reservations", Filters=[_RUNNING])
        return [_instance(each, clusters) for group in found for each in group.get("Instances", ())]

    def reserved_vcpus(self, quota: str, prefixes: frozenset[str]) -> int:
        """Return the vCPUs of Capacity Reservations that hold no instance: they count against the On-Demand quota of
        this code, too. Those with an id in ``prefixes`` are left out, because the stack's own nodes go there."""
        active = [{"Name": "state", "Values": ["active"]}]
        idle = self.account.pages_once("ec2", "describe_capacity_reservations", "CapacityReservations", Filters=active)
        return sum(
            each.get("AvailableInstanceCount", 0) * _vcpus(each.get("InstanceType", ""), {})
            for each in idle
            if each.get("ReservationType", "default") == "default"
            and each["CapacityReservationId"] not in prefixes
            and on_demand_quota(each.get("InstanceType", "")) == quota
        )


def on_demand_quota(instance_type: str) -> str:
    """Return the code of the quota that an On-Demand instance counts against, if this library checks that quota; else
    empty.

    Types outside the catalogue share the quotas of its types: EC2 counts by families.
    """
    known = CATALOGUE.get(instance_type)
    if known is not None:
        return known.quota_on_demand
    family = re.match(r"[a-z]*", instance_type)
    letters = family[0] if family else ""
    alike = next((each for name, each in CATALOGUE.items() if re.match(r"[a-z]*", name)[0] == letters), None)  # type: ignore[index]
    if alike is not None:
        return alike.quota_on_demand
    if letters in _OWN_QUOTA or letters[:1] not in _STANDARD:
        return ""
    return next(each.quota_on_demand for each in CATALOGUE.values() if each.family == "cpu")


def spot_quota(instance_type: str) -> str:
    """Return the code of the quota that a Spot request counts against; empty as for :func:`on_demand_quota`."""
    known = CATALOGUE.get(instance_type)
    if known is not None:
        return known.quota_spot
    generation = instance_type.split(".")[0]
    alike = next((each for name, each in CATALOGUE.items() if name.split(".")[0] == generation), None)
    if alike is not None:
        return alike.quota_spot
    standard = next(each for each in CATALOGUE.values() if each.family == "cpu")
    return standard.quota_spot if on_demand_quota(instance_type) == standard.quota_on_demand else ""


def _is_ours(name: str, wanted: str) -> bool:
    """Return whether a cluster's name is the stack's: the fixed one, or a generated one, which ends in 7 characters."""
    return re.fullmatch(f"{re.escape(wanted)}[0-9a-f]{{7}}", name) is not None if wanted[-1] == "-" else name == wanted


def _instance(each: Mapping[str, Any], clusters: tuple[str, ...]) -> Instance:
    tags = tags_of(each.get("Tags", ()))
    way = each.get("InstanceLifecycle", "")
    return Instance(
        type=each.get("InstanceType", ""),
        vcpus=_vcpus(each.get("InstanceType", ""), each.get("CpuOptions", {})),
        spot=way == "spot",
        in_block=way == "capacity-block",
        # A node of Karpenter's has no tag of a managed group.
        ours=cluster_of(tags) in clusters,
    )


def _vcpus(instance_type: str, options: Mapping[str, Any]) -> int:
    """Return the vCPUs of the type, or of the instance's CPU options for a type outside the catalogue."""
    known = CATALOGUE.get(instance_type)
    return known.vcpus if known else options.get("CoreCount", 0) * options.get("ThreadsPerCore", 1)
