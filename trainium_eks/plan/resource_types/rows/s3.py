"""S3: buckets, and the settings that are separate resources."""

from typing import Any

from trainium_eks.model.catalogue import regions
from trainium_eks.plan.backend import Answer, Call
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    BilledElsewhere,
    Brief,
    Concern,
    Holds,
    ResourceType,
    ShownType,
    Worth,
    deleted_if_empty,
    guards,
)


def _bucket(call: Call) -> Answer:
    name, suffix = call.name("bucket"), regions.dns_suffix(call.region)
    return name, {
        "bucket": name,
        "arn": call.arn("s3", name, region="", account=""),
        "bucketDomainName": f"{name}.s3.{suffix}",
        "bucketRegionalDomainName": f"{name}.s3.{call.region}.{suffix}",
        "bucketRegion": call.region,
        "hostedZoneId": "ZSIM",
    }


BUCKET = ResourceType(
    token="aws:s3/bucket:Bucket",
    simulated=_bucket,
    named_by=("bucket",),
    replaced_by=(REGION, "bucket", "bucketPrefix", "objectLockEnabled"),
    price=BilledElsewhere("stored images, objects and backups"),
    shown=ShownType(guards),
    holds=Holds("its objects", Worth.DATA, when_deleted=deleted_if_empty("forceDestroy")),
    understood=(Concern("forceDestroy", concerns.switched_on, "may be deleted with the objects in it"),),
    creation="",
)


def _setting(token: str, *replaced_by: str, creation: Brief = "", **facts: Any) -> ResourceType:
    """Return the row of a bucket's setting: one quick call, free, and nothing is lost with it; ``facts`` are its other
    columns."""
    return ResourceType(
        token=token,
        simulated=lambda call: (call.text("bucket"), {}),
        tagged=False,
        replaced_by=(REGION, "bucket", *replaced_by),
        creation=creation,
        **facts,
    )


_OWNER = "expectedBucketOwner"

TYPES = (
    _setting("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", _OWNER, creation="objects expire"),
    _setting("aws:s3/bucketOwnershipControls:BucketOwnershipControls"),
    _setting("aws:s3/bucketPolicy:BucketPolicy", understood=access.POLICY, deletion="the bucket's own policy"),
    _setting(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        understood=tuple(
            Concern(each, concerns.switched_off, "the bucket may be opened to everybody")
            for each in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
        ),
        deletion="the bucket may be opened to everybody",
    ),
    _setting("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration", _OWNER),
    _setting(
        "aws:s3/bucketVersioning:BucketVersioning",
        _OWNER,
        understood=(
            Concern(
                "versioningConfiguration.status",
                concerns.no_longer("Enabled"),
                "older versions of objects are not kept",
            ),
        ),
    ),
)
