"""KMS: customer keys."""

import uuid

from trainium_eks.model.sizing import bill
from trainium_eks.plan.backend import Answer, Call
from trainium_eks.plan.graph import Resource
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    Concern,
    Holds,
    ResourceType,
    ShownType,
    Worth,
    guards,
)


def _key(call: Call) -> Answer:
    identity = f"sim-{uuid.uuid5(uuid.NAMESPACE_URL, call.resource.urn)}"
    return identity, {"keyId": identity, "arn": call.arn("kms", f"key/{identity}")}


def _alias(call: Call) -> Answer:
    name = call.inputs.get("name") or f"alias/{call.name()}"
    return name, {
        "name": name,
        "arn": call.arn("kms", name),
        "targetKeyArn": call.arn("kms", f"key/{call.text('targetKeyId').rsplit('/', 1)[-1]}"),
    }


def _key_deleted(key: Resource) -> str:
    days = key.inputs.get("deletionWindowInDays", 30)
    return f"scheduled for deletion in {days} days; what it encrypts (backups too) is unreadable after that"


KEY = ResourceType(
    token="aws:kms/key:Key",
    simulated=_key,
    replaced_by=(REGION, "customerMasterKeySpec", "customKeyStoreId", "keyUsage", "multiRegion", "xksKeyId"),
    seconds=20,
    price=lambda _graph, _key, _catalogue: (bill.encryption_keys(1),),
    shown=ShownType(guards),
    holds=Holds("the means to read what it encrypts", Worth.DATA, when_deleted=_key_deleted),
    understood=(
        Concern("deletionWindowInDays", concerns.less, "less time to take a deletion back"),
        Concern("enableKeyRotation", concerns.switched_off, "the key is no longer rotated"),
        *access.POLICY,
    ),
    creation="",
)

ALIAS = ResourceType(
    token="aws:kms/alias:Alias",
    simulated=_alias,
    named_by=("name",),
    tagged=False,
    replaced_by=(REGION, "name", "namePrefix"),
    creation="",
)

KEY_POLICY = ResourceType(
    token="aws:kms/keyPolicy:KeyPolicy",
    simulated=lambda call: (call.text("keyId"), {}),
    tagged=False,
    replaced_by=(REGION, "keyId"),
    understood=access.POLICY,
    creation="",
)
