"""NodePool and EC2NodeClass with the fields of Karpenter 1.14, to hold objects against; not its CEL rules.

In a group of their own, so that they are in nobody's way on a shared control plane.
"""

from collections.abc import Mapping
from typing import Any

from manifests import ANYTHING, definition

_TEXT: Mapping[str, Any] = {"type": "string"}
_FLAG: Mapping[str, Any] = {"type": "boolean"}
_NUMBER: Mapping[str, Any] = {"type": "integer"}
_TEXTS: Mapping[str, Any] = {"type": "object", "additionalProperties": _TEXT}
_AMOUNT: Mapping[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}


GROUP = "checked.karpenter.test"


def karpenter_definitions() -> list[dict[str, Any]]:
    """The two kinds that a stack makes. A misspelt field is refused, as by the real ones."""
    kinds = (("NodePool", "nodepools", _node_pool()), ("EC2NodeClass", "ec2nodeclasses", _node_class()))
    return [
        definition(kind, plural, GROUP, scope="Cluster", schema=_object(spec=spec, status=ANYTHING))
        for kind, plural, spec in kinds
    ]


def _node_pool() -> dict[str, Any]:
    taint = _object(key=_TEXT, value=_TEXT, effect={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"], **_TEXT})
    requirement = _object(key=_TEXT, operator=_TEXT, values=_list(_TEXT), minValues=_NUMBER)
    template = _object(
        metadata=_object(labels=_TEXTS, annotations=_TEXTS),
        spec=_object(
            ["nodeClassRef", "requirements"],
            nodeClassRef=_object(["group", "kind", "name"], group=_TEXT, kind=_TEXT, name=_TEXT),
            taints=_list(taint),
            startupTaints=_list(taint),
            requirements=_list(requirement),
            expireAfter=_TEXT,
            terminationGracePeriod=_TEXT,
        ),
    )
    budget = _object(["nodes"], nodes=_TEXT, reasons=_list(_TEXT), schedule=_TEXT, duration=_TEXT)
    policies = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]
    disruption = _object(consolidationPolicy={"enum": policies, **_TEXT}, consolidateAfter=_TEXT, budgets=_list(budget))
    limits = {"type": "object", "additionalProperties": _AMOUNT}
    return _object(
        ["template"], template=template, disruption=disruption, limits=limits, weight=_NUMBER, replicas=_NUMBER
    )


def _node_class() -> dict[str, Any]:
    interface = _object(
        ["deviceIndex", "interfaceType", "networkCardIndex"],
        deviceIndex=_NUMBER,
        networkCardIndex=_NUMBER,
        interfaceType={"enum": ["interface", "efa-only"], **_TEXT},
    )
    ebs = _object(
        deleteOnTermination=_FLAG, encrypted=_FLAG, iops=_NUMBER, kmsKeyID=_TEXT, snapshotID=_TEXT,
        throughput=_NUMBER, volumeInitializationRate=_NUMBER, volumeSize=_TEXT, volumeType=_TEXT,
    )  # fmt: skip
    metadata = _object(httpEndpoint=_TEXT, httpProtocolIPv6=_TEXT, httpPutResponseHopLimit=_NUMBER, httpTokens=_TEXT)
    reservation = _object(id=_TEXT, instanceMatchCriteria=_TEXT, ownerID=_TEXT, tags=_TEXTS)
    return _object(
        ["amiSelectorTerms", "securityGroupSelectorTerms", "subnetSelectorTerms"],
        amiFamily=_TEXT,
        amiSelectorTerms=_list(
            _object(alias=_TEXT, id=_TEXT, name=_TEXT, owner=_TEXT, ssmParameter=_TEXT, tags=_TEXTS)
        ),
        associatePublicIPAddress=_FLAG,
        blockDeviceMappings=_list(_object(deviceName=_TEXT, ebs=ebs, rootVolume=_FLAG)),
        capacityReservationSelectorTerms=_list(reservation),
        connectionTracking=ANYTHING,
        context=_TEXT,
        cpuOptions=ANYTHING,
        detailedMonitoring=_FLAG,
        instanceProfile=_TEXT,
        instanceStorePolicy={"enum": ["RAID0"], **_TEXT},
        ipPrefixCount=_NUMBER,
        kubelet=ANYTHING,
        metadataOptions=metadata,
        networkInterfaces=_list(interface),
        placementGroupSelector=_object(id=_TEXT, name=_TEXT),
        role=_TEXT,
        securityGroupSelectorTerms=_list(_object(id=_TEXT, name=_TEXT, tags=_TEXTS)),
        subnetSelectorTerms=_list(_object(id=_TEXT, tags=_TEXTS)),
        tags=_TEXTS,
        userData=_TEXT,
    )


def _object(required: list[str] | None = None, /, **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), **({"required": required} if required else {})}


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}
