"""Quotas: the account's limits, compared with present use and the stack's additions.

Existing resources of this stack are part of its needs, and are not counted twice.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainium_eks.model.finding import Finding
from trainium_eks.model.validation.problems import config_path
from trainium_eks.operate.preflight.existing_resources import AccountState, on_demand_quota, spot_quota
from trainium_eks.operate.preflight.needs import Group
from trainium_eks.operate.preflight.question import Checks, Question, failed, passed, warned

GIB_PER_TIB = 1024


@dataclass(frozen=True)
class Quota:
    """One quota of Service Quotas."""

    service: str
    """``ec2``, ``vpc``, ``ebs``, ``fsx``."""
    code: str
    name: str


VCPU_NAMES = {
    "L-1216C47A": "On-Demand standard instances",
    "L-34B43A08": "Spot standard instances",
    "L-2C3B7624": "On-Demand Trn instances",
    "L-6B0D517C": "Spot Trn instances",
    "L-1945791B": "On-Demand Inf instances",
    "L-B5D1601B": "Spot Inf instances",
    "L-417A185B": "On-Demand P instances",
    "L-7212CCBC": "Spot P4, P3 and P2 instances",
    "L-C4BD4855": "Spot P5 instances",
}
"""Quotas of EC2 in vCPUs. Names as in Service Quotas, shortened."""

VPCS = Quota("vpc", "L-F678F1CE", "VPCs")
ELASTIC_IPS = Quota("ec2", "L-0263D0A3", "Elastic IP addresses")
INTERFACES = Quota("vpc", "L-DF5E4CA3", "network interfaces")
GP3 = Quota("ebs", "L-7A658B76", "gp3 volumes")

# Codes as in public tables of Service Quotas; in GiB.
LUSTRE = {
    "PERSISTENT_2": Quota("fsx", "L-8F1B9C74", "Lustre PERSISTENT_2 storage"),
    "SCRATCH_2": Quota("fsx", "L-AD2FC696", "Lustre scratch storage"),
}

LUSTRE_COUNT = {
    "PERSISTENT_2": Quota("fsx", "L-FD6F2F22", "Lustre PERSISTENT_2 file systems"),
    "SCRATCH_2": Quota("fsx", "L-C48231E5", "Lustre scratch file systems"),
}


def questions(present: AccountState) -> Iterator[Question]:
    """Yield a question for each quota that the stack counts against."""
    needs, counted = present.needs, _QuotaChecks(present)
    by_quota: dict[str, list[Group]] = {}
    for group in needs.groups:
        if group.quota:
            by_quota.setdefault(group.quota, []).append(group)
    for code, groups in by_quota.items():
        quota = Quota("ec2", code, VCPU_NAMES.get(code, "instances"))
        yield _question(quota, partial(counted.vcpus, quota, groups))
    if needs.vpcs:
        yield _question(VPCS, counted.vpcs)
    if needs.elastic_ips:
        yield _question(ELASTIC_IPS, counted.elastic_ips)
    if needs.groups:
        yield _question(INTERFACES, counted.interfaces)
        yield _question(GP3, counted.gp3)
    for kind in dict.fromkeys(each.deployment_type for each in needs.file_systems):
        if kind in LUSTRE:
            yield _question(LUSTRE[kind], partial(counted.lustre, kind))
            yield _question(LUSTRE_COUNT[kind], partial(counted.lustre_count, kind))


def _question(quota: Quota, ask: Callable[[], Finding]) -> Question:
    return Question(f"quotas/{quota.code}", f"{quota.name} ({quota.code})", ask)


class _QuotaChecks(Checks):
    """Checks that compare use and need with the limits of Service Quotas."""

    def vcpus(self, quota: Quota, groups: list[Group]) -> Finding:
        """Check the vCPUs of instances: at the desired sizes, which an ``up`` starts, and at the largest."""
        has = self._value(quota)
        spot = groups[0].buying == "spot"
        used = self._vcpus_in_use(quota.code, spot=spot)
        wanted = sum(group.desired * group.vcpus for group in groups)
        most = sum(group.maximum * group.vcpus for group in groups)
        parts = " + ".join(f"{group.desired} x {group.vcpus}" for group in groups if group.desired)
        sums = f"{parts} = {wanted:,}" if parts else "0"
        detail = f"{sums} vCPUs needed, quota {_shown(has)}, others use {used:,}"
        free = has - used
        ask = f"request {used + max(wanted, most):,} or more: {_request(quota, used + max(wanted, most), self._region)}"
        if wanted > free:
            return failed(f"{detail}: {_list_fitting(groups, free)}", f"{ask}; or {_smaller(groups, free)}")
        if most > free:
            names = ", ".join(f"{group.name} {group.maximum} x {group.vcpus}" for group in groups if group.maximum)
            return warned(f"{detail}; at their largest sizes the groups need {most:,} ({names})", ask)
        return passed(detail)

    def vpcs(self) -> Finding:
        """Check the number of VPCs in the region."""
        every = self._account.pages("ec2", "describe_vpcs", "Vpcs")
        return self._counts(VPCS, sum(not self._own(each) for each in every), self._needs.vpcs)

    def elastic_ips(self) -> Finding:
        """Check the number of Elastic IP addresses in the region."""
        every = self._account.call("ec2", "describe_addresses")["Addresses"]
        return self._counts(ELASTIC_IPS, sum(not self._own(each) for each in every), self._needs.elastic_ips)

    def interfaces(self) -> Finding:
        """Check the number of network interfaces."""
        every = self._account.pages("ec2", "describe_network_interfaces", "NetworkInterfaces", MaxResults=1000)
        others = sum(not self._own(each, "TagSet") for each in every)
        now = sum(group.desired * group.interfaces for group in self._needs.groups)
        most = sum(group.maximum * group.interfaces for group in self._needs.groups)
        return self._counts(INTERFACES, others, now, most)

    def gp3(self) -> Finding:
        """Check the storage of gp3 volumes: the nodes' root volumes."""
        every = self._account.pages(
            "ec2", "describe_volumes", "Volumes", Filters=[{"Name": "volume-type", "Values": ["gp3"]}]
        )
        used = sum(each["Size"] for each in every if not self._own(each)) / GIB_PER_TIB
        now = sum(group.desired * group.root_gib for group in self._needs.groups) / GIB_PER_TIB
        most = sum(group.maximum * group.root_gib for group in self._needs.groups) / GIB_PER_TIB
        return self._counts(GP3, used, now, most, unit="TiB")

    def lustre(self, kind: str) -> Finding:
        """Check the storage of file systems of one deployment type."""
        used = sum(each.get("StorageCapacity", 0) for each in self._file_systems(kind))
        wanted = sum(each.storage_gib for each in self._needs.file_systems if each.deployment_type == kind)
        return self._counts(LUSTRE[kind], used, wanted, unit="GiB")

    def lustre_count(self, kind: str) -> Finding:
        """Check the number of file systems of one deployment type."""
        wanted = sum(each.deployment_type == kind for each in self._needs.file_systems)
        return self._counts(LUSTRE_COUNT[kind], len(self._file_systems(kind)), wanted)

    def _file_systems(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the file systems of one deployment type that do not belong to the stack."""
        every = self._account.pages_once("fsx", "describe_file_systems", "FileSystems")
        return [
            each
            for each in every
            if each.get("LustreConfiguration", {}).get("DeploymentType") == kind and not self._own(each)
        ]

    def _counts(self, quota: Quota, used: float, wanted: float, most: float = 0, *, unit: str = "") -> Finding:
        """Return the answer on a quota of a number or a size: others use ``used``, an ``up`` makes ``wanted``, and
        every group at its largest would be ``most``."""
        has = self._value(quota)
        unit = f" {unit}" if unit else ""
        detail = f"{_shown(wanted)}{unit} needed, quota {_shown(has)}{unit}, others use {_shown(used)}{unit}"
        least = math.ceil(used + max(wanted, most))
        remedy = f"request {least:,} or more: {_request(quota, least, self._region)}"
        if used + wanted > has:
            return failed(detail, remedy)
        if used + most > has:
            return warned(f"{detail}; at their largest sizes the groups need {_shown(most)}{unit}", remedy)
        return passed(detail)

    def _value(self, quota: Quota) -> float:
        """Return the account's limit: its applied value, else AWS' default for every account."""
        named = {"ServiceCode": quota.service, "QuotaCode": quota.code}
        applied = self._account.find("service-quotas", "get_service_quota", absent="NoSuchResourceException", **named)
        answer = applied or self._account.call("service-quotas", "get_aws_default_service_quota", **named)
        return float(answer["Quota"]["Value"])

    def _vcpus_in_use(self, code: str, *, spot: bool) -> int:
        of = spot_quota if spot else on_demand_quota
        used = sum(
            each.vcpus
            for each in self._present.instances()
            if each.spot == spot and not each.ours and not each.in_block and of(each.type) == code
        )
        if spot:
            return used
        ours = frozenset(group.reservation for group in self._needs.groups if group.reservation)
        return used + self._present.reserved_vcpus(code, ours)

    def _own(self, thing: Mapping[str, Any], key: str = "Tags") -> bool:
        return self._present.owns({tag["Key"]: tag["Value"] for tag in thing.get(key) or ()})

    @property
    def _region(self) -> str:
        return self._account.region


def _list_fitting(groups: list[Group], free: float) -> str:
    """Return in words how many nodes fit into the free vCPUs."""
    each = max(group.vcpus for group in groups)
    room = max(0, int(free // each))
    types = dict.fromkeys(group.instance_type for group in groups if group.vcpus == each)
    return f"room for {room} {'node' if room == 1 else 'nodes'} of {', '.join(types)}"


def _smaller(groups: list[Group], free: float) -> str:
    """Return the command that shrinks the largest group to the vCPUs left by the others, or general advice."""
    largest = max(groups, key=lambda group: group.desired * group.vcpus)
    rest = sum(group.desired * group.vcpus for group in groups if group is not largest)
    room = int((free - rest) // largest.vcpus)
    if room < 0 or not largest.path:
        return "make the groups smaller"
    key = config_path(f"{largest.path}.desired_size")
    return f"pulumi config set --path {key!r} {room}"


def _request(quota: Quota, value: float, region: str) -> str:
    return (
        f"aws service-quotas request-service-quota-increase --service-code {quota.service} "
        f"--quota-code {quota.code} --desired-value {value:g} --region {region}"
    )


def _shown(amount: float) -> str:
    return f"{amount:,.1f}".removesuffix(".0")
