"""The S3 bucket that a file system is linked to: it holds data sets and checkpoints, and it outlives the stack."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from . import _iam
from ._args import Tags, Text, computed

OLD_VERSION_DAYS = 30
"""Days in which an overwritten or deleted version can be restored. The link exports deletions too, so this is the time
in which a mistaken ``rm`` on the file system can be undone."""

UPLOAD_DAYS = 7
"""Days after which the parts of an unfinished upload are deleted."""


class DataBucket(pulumi.ComponentResource):
    """A private, versioned bucket under the stack's key that allows TLS only.

    It is left behind by a destroy, with everything that guards it: deleting the encryption or the access block of a
    bucket that stays would open it. Adopt it in a new stack by its name (``durability: {type: s3, bucket: …}``).
    """

    bucket_name: pulumi.Output[str]
    """Name of the bucket."""
    bucket_arn: pulumi.Output[str]
    """ARN of the bucket."""

    def __init__(
        self,
        name: str,
        *,
        kms_key_arn: Text,
        protect: bool | None,
        tags: Tags,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainium-eks:index:DataBucket", name, {}, opts)
        self._bucket = aws.s3.Bucket(
            f"{name}-bucket", force_destroy=False, tags={"Name": name, **tags}, opts=self._kept(protect=protect)
        )
        self._ready = [self._close(), self._encrypt(kms_key_arn), self._keep_versions()]

        self.bucket_name = computed(self._bucket.bucket)
        self.bucket_arn = self._bucket.arn
        self.register_outputs({"bucket_name": self.bucket_name, "bucket_arn": self.bucket_arn})

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Access policy, encryption and versioning, which must exist before the first object arrives."""
        return self._ready

    def _kept(self, *, after: Sequence[pulumi.Resource] = (), protect: bool | None = None) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, retain_on_delete=True, depends_on=list(after), protect=protect)

    def _close(self) -> pulumi.Resource:
        """Forbid ACLs, public access and plain HTTP, one after the other, because S3 refuses two such calls at once."""
        owner = aws.s3.BucketOwnershipControls(
            f"{self._name}-ownership",
            bucket=self._bucket.bucket,
            rule=aws.s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
            opts=self._kept(),
        )
        block = aws.s3.BucketPublicAccessBlock(
            f"{self._name}-access-block",
            bucket=self._bucket.bucket,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._kept(after=[owner]),
        )
        return aws.s3.BucketPolicy(
            f"{self._name}-policy",
            bucket=self._bucket.bucket,
            policy=self._bucket.arn.apply(_tls_only),
            opts=self._kept(after=[block]),
        )

    def _encrypt(self, kms_key_arn: Text) -> pulumi.Resource:
        """Encrypt with a bucket key: a million small files cost one call to KMS, not a million."""
        return aws.s3.BucketServerSideEncryptionConfiguration(
            f"{self._name}-encryption",
            bucket=self._bucket.bucket,
            rules=[
                aws.s3.BucketServerSideEncryptionConfigurationRuleArgs(
                    bucket_key_enabled=True,
                    apply_server_side_encryption_by_default=(
                        aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
                            sse_algorithm="aws:kms", kms_master_key_id=kms_key_arn
                        )
                    ),
                )
            ],
            opts=self._kept(),
        )

    def _keep_versions(self) -> pulumi.Resource:
        versioning = aws.s3.BucketVersioning(
            f"{self._name}-versioning",
            bucket=self._bucket.bucket,
            versioning_configuration=aws.s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=self._kept(),
        )
        return aws.s3.BucketLifecycleConfiguration(
            f"{self._name}-lifecycle",
            bucket=self._bucket.bucket,
            rules=[
                aws.s3.BucketLifecycleConfigurationRuleArgs(
                    id="old-versions",
                    status="Enabled",
                    filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
                    noncurrent_version_expiration=aws.s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
                        noncurrent_days=OLD_VERSION_DAYS
                    ),
                    # A marker without versions below it only slows listings down.
                    expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(expired_object_delete_marker=True),
                    abort_incomplete_multipart_upload=(
                        aws.s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                            days_after_initiation=UPLOAD_DAYS
                        )
                    ),
                )
            ],
            opts=self._kept(after=[versioning]),
        )


def _tls_only(bucket_arn: str) -> str:
    """Return a bucket policy that grants nothing and refuses every request without TLS."""
    return _iam.policy(
        [
            {
                "Sid": "TlsOnly",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [bucket_arn, f"{bucket_arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ]
    )
