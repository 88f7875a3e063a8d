"""Fabric test of a node group: the expectation of its nodes, the judgement of a report, and the comparison with an
earlier report. The gang itself runs ``trainium_workloads.fabric``."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from trainium_eks.jobs.objects.job import DATA
from trainium_eks.model.catalogue import fabric_floors
from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.finding import Finding, failed, not_applicable, passed
from trainium_eks.model.outputs import NodeGroupOutput, StackOutputs

MODULE = "trainium_workloads.fabric"
MARK = '{"fabric":'
"""Begin of the line with the report in the log, behind the rank's prefix."""
SCHEMA_VERSION = 1
LESS = 0.8
"""Share of an earlier bandwidth below which a later one fails the comparison."""
LESS_LOCAL = 0.1
"""The same on the local cloud, where other programs take the machine."""
_COMPARED_BYTES = 1 << 20
"""Smaller collectives show latency, which varies."""

_SUBJECTS = {
    "devices": "devices",
    "efa": "EFA interfaces",
    "memlock": "lockable memory",
    "mount": "shared volume",
    "storage": "storage",
    "benchmark": "benchmark",
    "floor": "collectives",
    "slow-node": "slow node",
    "pairs": "pairs of nodes",
    "dead-rank": "dead rank",
    "late-rank": "hanging rank",
    "hang": "hang",
    "error": "failed rank",
    "ended": "gang",
}


class ReportFaultError(Exception):
    """A report that cannot be used; the message says why."""


def expectation(
    group: NodeGroupOutput, instance: InstanceType, outputs: StackOutputs, *, claim: str, is_local: bool
) -> dict[str, Any]:
    """Return the expectation for the gang's script: that of a node, and of its storage."""
    efa = group.resources.get("vpc.amazonaws.com/efa", instance.efa_interfaces)
    found = fabric_floors.expected_node(instance, efa, is_local=is_local)
    return found | ({"storage": _storage(outputs, is_local=is_local)} if claim else {})


def _storage(outputs: StackOutputs, *, is_local: bool) -> dict[str, Any]:
    if is_local:
        return {"writeMBs": 1.0, "filesPerSecond": 5.0}
    volume = outputs.shared_volume
    rate = volume.write_megabytes_per_second if volume else None
    return {
        "mount": DATA,
        "type": "lustre",
        "writeMBs": fabric_floors.WRITE_SHARE * rate if rate else 0.0,
        "writeMBsPerNode": fabric_floors.WRITE_PER_NODE,
        "filesPerSecond": fabric_floors.FILES_PER_SECOND,
    }


def find_report(lines: Iterable[str]) -> dict[str, Any] | None:
    """Return the last report among lines of a log; None without one."""
    found = None
    for line in lines:
        _, mark, rest = line.partition(MARK)
        if mark:
            found = mark + rest
    return None if found is None else read_report(found)


def read_report(text: str) -> dict[str, Any]:
    """Return a report from the line of a log, or from a file of the volume."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ReportFaultError(f"it is not JSON ({error})") from None
    report = document.get("fabric", document) if isinstance(document, dict) else None
    if not isinstance(report, dict) or not isinstance(report.get("findings"), list):
        raise ReportFaultError("it is not a report of the fabric test")
    if report.get("schemaVersion") != SCHEMA_VERSION:
        raise ReportFaultError(f"it has version {report.get('schemaVersion')!r}, and {SCHEMA_VERSION} is known")
    return report


def checks(report: Mapping[str, Any], group: str, nodes: Mapping[str, str], *, is_local: bool) -> list[Finding]:
    """Return the findings of a report: one of each kind, its details by node; ``nodes`` is pod to node."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for finding in report["findings"]:
        by_kind.setdefault(str(finding["check"]), []).append(finding)
    found = [_check(kind, findings, report, group, nodes) for kind, findings in by_kind.items()]
    if is_local:
        reason = "the local cloud's nodes are simulated: devices, EFA interfaces and lockable memory are AWS' alone"
        found.insert(0, not_applicable(f"fabric/{group}/devices", "devices", reason))
    return found


def _check(
    kind: str, findings: list[Mapping[str, Any]], report: Mapping[str, Any], group: str, nodes: Mapping[str, str]
) -> Finding:
    id_, subject = f"fabric/{group}/{kind}", _SUBJECTS.get(kind, kind)
    wrong = [each for each in findings if not each["ok"]]
    texts = [_text(each, report, nodes) for each in wrong]
    if texts:
        place = nodes.get(_pod(wrong[0]["node"], report), "NODE")
        detail = texts[0] if len(texts) == 1 else f"{len(texts)} of {len(findings)} failed"
        return failed(id_, subject, detail, _remedy(kind, group, place), texts if len(texts) > 1 else ())
    texts = [str(each["detail"]) for each in findings]
    if findings[0]["node"] is None:
        return passed(id_, subject, "; ".join(texts))
    return passed(id_, subject, f"{len(texts)} nodes, the first: {texts[0]}")


def _text(finding: Mapping[str, Any], report: Mapping[str, Any], nodes: Mapping[str, str]) -> str:
    """Return a finding with the names of its node and pod."""
    detail, number = str(finding["detail"]), finding["node"]
    if number is not None and f"node {number} " not in detail:
        detail = f"node {number} ({_pod(number, report)}): {detail}"
    for pod, place in nodes.items():
        detail = detail.replace(f"({pod})", f"({place}, pod {pod})")
    return detail


def _pod(number: int | None, report: Mapping[str, Any]) -> str:
    """Return the name of a node's pod."""
    named = [str(each.get("name", "")) for each in report.get("nodes", ())]
    return named[number] if number is not None and number < len(named) else "unknown"


def _remedy(kind: str, group: str, place: str) -> str:
    """Return the remedy for a failed kind of check, with the name of the node."""
    replace = f"kubectl drain {place} --ignore-daemonsets --delete-emptydir-data, then aws ec2 terminate-instances"
    return {
        "devices": f"`trn doctor` shows a missing device plugin; a node that lost a device is replaced: {replace}",
        "efa": "the launch template's EFA interfaces and the image's libfabric: `trn doctor --all` counts them; an "
        "image without fi_info has no EFA software",
        "memlock": "user data sets LimitMEMLOCK=infinity for containerd: nodes that are older than it are replaced "
        f"({replace})",
        "mount": "`trn doctor --all` checks claim and CSI driver; kubectl -n NAMESPACE describe pvc",
        "storage": "docs/observability.md, dashboard Storage: other jobs' load, or a file system at its capacity",
        "benchmark": f"links within the node: {replace}",
        "floor": "the slow node is named where pairs could tell; else EFA's security group and FI_PROVIDER=efa in the "
        "job's environment",
        "slow-node": f"test it again without other jobs; then replace it: {replace}",
        "pairs": f"trn fabric --group {group} --nodes 3 on fewer nodes; --topology of jobs keeps them near",
        "dead-rank": "the pod's end and its node's state: kubectl describe pod; an out-of-memory kill, or a lost "
        f"machine; a node that stays bad is replaced: {replace}",
        "late-rank": f"its process hangs in driver or host: dmesg of the node; {replace}",
        "hang": "EFA's security group must let the group's nodes reach each other; kubectl logs of all pods",
        "error": "the message above is the backend's; `trn logs JOB --all` has all ranks'",
        "ended": "`trn status JOB` says who ended it",
    }.get(kind, "`trn logs JOB` has the whole output")


def compare(
    report: Mapping[str, Any], before: Mapping[str, Any] | None, group: str, *, is_local: bool
) -> list[Finding]:
    """Return the comparison of bandwidths and storage with an earlier report.

    Without one (None) the volume has no good one of the same size.
    """
    id_, subject = f"fabric/{group}/against", "against the last good"
    if before is None:
        return [not_applicable(id_, subject, "the volume has no report without a failure of as many nodes")]
    then, now = _figures(before), _figures(report)
    common = [name for name in now if name in then]
    if not common:
        return [not_applicable(id_, subject, f"the report of {before.get('time')} has no figure in common with this")]
    least = LESS_LOCAL if is_local else LESS
    worse = [
        f"{name}: {now[name]:.4g}, was {then[name]:.4g} ({now[name] / then[name] - 1:+.0%})"
        for name in common
        if then[name] > 0 and now[name] < least * then[name]
    ]
    when = f"{before.get('time')} ({before.get('job') or 'no job'})"
    if worse:
        remedy = "what changed since: image, AMI, SDK, topology, other load; the figures are in both reports"
        return [failed(id_, subject, f"{len(worse)} of {len(common)} figures are less than {when}", remedy, worse)]
    return [passed(id_, subject, f"{len(common)} figures reach {least:.0%} of those of {when}")]


def _figures(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures that are compared, more being better."""
    found = {
        f"{each['operation']} of {each['bytes'] / 2**20:.4g} MiB, GB/s": float(each["gigabytesPerSecond"])
        for each in report.get("collectives", ())
        if each["bytes"] >= _COMPARED_BYTES
    }
    storage = [each["storage"] for each in report.get("nodes", ()) if each.get("storage")]
    for key, unit in (("writeMBs", "MB/s"), ("readMBs", "MB/s"), ("filesPerSecond", "files/s")):
        if storage:
            found[f"storage {key.removesuffix('MBs').removesuffix('PerSecond')}, {unit}"] = sum(
                float(each[key]) for each in storage
            )
    return found
