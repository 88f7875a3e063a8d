"""Checks of existing resources that the stack uses, and of names that it takes: subnets, buckets, images, repositories,
clusters."""

from collections.abc import Iterator
from functools import partial

from trainium_eks.aws.account import Account, NotCheckedError, RequestError
from trainium_eks.aws.sessions import ECR_URL
from trainium_eks.model.catalogue.cached_images import UPSTREAMS
from trainium_eks.model.config import cross
from trainium_eks.model.config import stack_config as configs
from trainium_eks.model.config.network import ExistingSubnet, subnets
from trainium_eks.model.finding import Finding
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.problems import config_path, config_set
from trainium_eks.operate.preflight.existing_resources import AccountState
from trainium_eks.operate.preflight.needs import Bucket, Needs
from trainium_eks.operate.preflight.question import Question, failed, passed, warned

CLUSTER_SUBNET_ADDRESSES = 16
"""Free addresses that EKS wants in a control plane's subnets before it upgrades (EKS user guide, network requirements:
at least 6, 16 recommended)."""


def questions(needs: Needs, account: Account, present: AccountState) -> Iterator[Question]:
    """Yield the questions about adopted subnets, existing buckets, private images and names."""
    checks = _ConflictChecks(needs, account, present)
    adopted = needs.config.existing_network if needs.config else None
    if adopted is not None:
        for path, subnet in subnets(adopted).items():
            private = path.startswith("private")
            ask = partial(checks.subnet, f"existing_network.{path}", subnet, private=private)
            yield Question(f"network/{subnet.id}", f"subnet {subnet.id}", ask)
    for bucket in needs.buckets:
        yield Question(f"storage/{bucket.name}", f"bucket {bucket.name}", partial(checks.bucket, bucket))
        yield Question(f"storage/{bucket.name}/key", f"key of bucket {bucket.name}", partial(checks.bucket_key, bucket))
    for key in needs.keys:
        yield Question(f"keys/{key}", f"key {key.rpartition('/')[2]}", partial(checks.key, key))
    for image in needs.images:
        yield Question(f"images/{image}", f"image {image}", partial(checks.image, image))
    if needs.caches:
        yield Question("images/cache", "images beside the cache", checks.uncached)
    for arn in filter(None, needs.caches.values()):
        yield Question(f"images/{arn}", f"secret {arn.rpartition(':')[2]}", partial(checks.secret, arn))
    if needs.cluster_name:
        yield Question(
            "names/cluster", f"cluster {needs.cluster_name}{'…' * needs.cluster_name.endswith('-')}", checks.cluster
        )
    for name in needs.repositories:
        yield Question(f"names/{name}", f"image repository {name}", partial(checks.repository, name))
    for name in needs.log_groups:
        yield Question(f"names/{name}", f"log group {name}", partial(checks.log_group, name))


_REGION = "x-amz-bucket-region"


class _ConflictChecks:
    """Checks of resources that must exist, or must not."""

    def __init__(self, needs: Needs, account: Account, present: AccountState) -> None:
        self._needs = needs
        self._account = account
        self._present = present

    def subnet(self, path: str, subnet: ExistingSubnet, *, private: bool) -> Finding:
        """Check that an adopted subnet matches the config, and has room for the nodes."""
        try:
            found = self._account.call("ec2", "describe_subnets", SubnetIds=[subnet.id])["Subnets"][0]
        except RequestError as error:
            if not error.code.startswith("InvalidSubnetI"):
                raise
            return failed(f"there is none in {self._account.region}", "aws ec2 describe-subnets shows those there are")
        config = self._needs.config
        vpc = config.existing_network.vpc_id if config and config.existing_network else ""
        for field, has, wanted in (
            ("vpc", found["VpcId"], vpc),
            ("zone_id", found.get("AvailabilityZoneId", ""), subnet.zone_id),
            ("cidr_block", found["CidrBlock"], subnet.cidr_block),
        ):
            if has != wanted:
                what = {"vpc": "VPC", "zone_id": "zone", "cidr_block": "range"}[field]
                key = "existing_network.vpc_id" if field == "vpc" else f"{path}.{field}"
                return failed(f"its {what} is {has}, not {wanted}", config_set(key, has))
        free = found["AvailableIpAddressCount"]
        return self._room(subnet, free) if private else passed(f"{free:,} addresses free")

    def _room(self, subnet: ExistingSubnet, free: int) -> Finding:
        """Check that the free addresses suffice for all resources planned in the zone. A running stack has its own
        already."""
        config = self._needs.config
        assert config is not None
        demand = cross.address_demand(config, configs.catalogue(config), configs.zone_ids(config), subnet.zone_id)
        total = sum(demand.values())
        if self._present.cluster() is not None:
            if free >= CLUSTER_SUBNET_ADDRESSES:
                return passed(f"{free:,} addresses free, beside what this stack has")
            detail = f"{free} addresses free; EKS wants {CLUSTER_SUBNET_ADDRESSES} of them to upgrade a control plane"
            return warned(detail, "free some, or move groups to another subnet")
        if free >= total:
            return passed(f"{free:,} addresses free, {total:,} needed with every group at its largest")
        parts = ", ".join(f"{count:,} {what}" for what, count in demand.items() if count)
        return failed(
            f"{free:,} addresses free, {total:,} needed: {parts}",
            "free addresses, adopt a larger subnet, or lower maxSize",
        )

    def bucket(self, bucket: Bucket) -> Finding:
        """Check that an existing bucket is in the stack's region."""
        here, key = self._account.region, config_path(bucket.path)
        try:
            answer = self._account.call("s3", "head_bucket", Bucket=bucket.name)
            region = answer.get("BucketRegion") or answer["ResponseMetadata"]["HTTPHeaders"].get(_REGION, "")
        except NotCheckedError as error:
            region = error.headers.get(_REGION, "")
            if not region:
                raise
        except RequestError as error:
            if error.code not in ("404", "NoSuchBucket"):
                raise
            return failed("there is no such bucket", f"aws s3 mb s3://{bucket.name} --region {here}, or correct {key}")
        if region and region != here:
            detail = f"bucket {bucket.name} is in {region}, {bucket.use} in {here}"
            return failed(detail, f"set {key} to a bucket of {here}")
        return passed(f"in {region or here}, for {bucket.use}")

    def bucket_key(self, bucket: Bucket) -> Finding:
        """Check that the config names the key that encrypts an existing bucket: without it, jobs get 403."""
        named, found = config_path(bucket.key_path), self._default_key(bucket.name)
        if found == bucket.key:
            return passed(f"{found}, as in {named}" if found else "no key of its own")
        if not found:
            return warned(
                f"no key of its own, and {named} is {bucket.key}", f"remove {named}, if no object has that key"
            )
        detail = f"new objects are encrypted with {found}: jobs would get 403 (AccessDenied) for them"
        return failed(detail, config_set(bucket.key_path, found))

    def _default_key(self, bucket: str) -> str:
        """Return the ARN of the customer's key that a bucket encrypts with; empty for S3's own key."""
        try:
            answer = self._account.call("s3", "get_bucket_encryption", Bucket=bucket)
        except RequestError as error:
            if error.code in ("404", "NoSuchBucket", "ServerSideEncryptionConfigurationNotFoundError"):
                return ""
            raise
        for rule in answer["ServerSideEncryptionConfiguration"]["Rules"]:
            key = str(rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID", ""))
            if ":key/" in key:
                return key
            if key:  # an alias, or the id alone
                metadata = self._account.call("kms", "describe_key", KeyId=key)["KeyMetadata"]
                return "" if metadata.get("KeyManager") == "AWS" else str(metadata["Arn"])
        return ""

    def key(self, arn: str) -> Finding:
        """Check that an existing key can encrypt and decrypt."""
        try:
            key = self._account.call("kms", "describe_key", KeyId=arn)["KeyMetadata"]
        except RequestError as error:
            if error.code != "NotFoundException":
                raise
            return failed("there is no such key", "aws kms list-keys shows those there are")
        state, usage = key.get("KeyState", "Enabled"), key.get("KeyUsage", "ENCRYPT_DECRYPT")
        if state != "Enabled":
            return failed(f"it is {state}", f"aws kms enable-key --key-id {arn}, or name another key")
        if usage != "ENCRYPT_DECRYPT" or key.get("KeySpec", "SYMMETRIC_DEFAULT") != "SYMMETRIC_DEFAULT":
            return failed(f"it is for {usage}, {key.get('KeySpec')}", "name a symmetric key for encryption")
        return passed("enabled")

    def image(self, image: str) -> Finding:
        """Check that a private image is in its registry."""
        base, at, digest = image.partition("@")
        tag = "" if at else base.rpartition(":")[2]
        place = ECR_URL.match(base)
        assert place is not None
        try:
            self._account.call(
                "ecr",
                "describe_images",
                region=place["region"],
                registryId=place["registry"],
                repositoryName=place["name"],
                imageIds=[{"imageDigest": digest} if at else {"imageTag": tag}],
            )
        except RequestError as error:
            if error.code not in ("ImageNotFoundException", "RepositoryNotFoundException"):
                raise
            return failed("not in its registry: pods would stay in ImagePullBackOff", "push it, or correct its tag")
        return passed("in its registry")

    def uncached(self) -> Finding:
        """Name the images that the stack's cache does not bring."""
        images = self._needs.uncached
        if not images:
            return passed("every image of charts and pods comes from the cache")
        never = [each for each in images if each.partition("/")[0] not in UPSTREAMS]
        fix = f"ECR caches no {formats.listed(sorted({each.partition('/')[0] for each in never}))}" if never else ""
        secret = "give the cache the secrets of Docker Hub and GitHub" if len(never) < len(images) else ""
        return warned(f"from their own registries: {', '.join(images)}", "; ".join(filter(None, (secret, fix))))

    def secret(self, arn: str) -> Finding:
        """Check that a registry's credentials are there: ECR makes no rule without."""
        try:
            self._account.call("secretsmanager", "describe_secret", SecretId=arn)
        except RequestError as error:
            if error.code != "ResourceNotFoundException":
                raise
            return failed("there is no such secret", "make it, with the keys username and accessToken")
        return passed("there")

    def cluster(self) -> Finding:
        """Check that the cluster's name is free, or in use by this stack."""
        names = self._present.clusters()
        own = self._present.cluster()
        others = [name for name in names if own is None or name != own["name"]]
        if others:
            command = f"pulumi stack export --stack {self._needs.stack} | grep {others[0]}"
            detail = f"{', '.join(others)} is there, and may be left of an interrupted run: it costs 0.10 USD an hour"
            if not self._needs.cluster_name.endswith("-"):
                return failed(
                    f"{others[0]} is another stack's: EKS refuses a second of its name", "choose another name"
                )
            return warned(detail, f"if the state does not know it ({command}), import or delete it")
        return passed(f"{own['name']} is this stack's" if own else "free")

    def repository(self, name: str) -> Finding:
        """Check that ECR accepts the repository's name."""
        try:
            found = self._account.call("ecr", "describe_repositories", repositoryNames=[name])["repositories"][0]
        except RequestError as error:
            if error.code != "RepositoryNotFoundException":
                raise
            return passed("free")
        tags = self._account.call("ecr", "list_tags_for_resource", resourceArn=found["repositoryArn"])["tags"]
        return self._taken(
            {each["Key"]: each.get("Value", "") for each in tags},
            config_set("image_repository.name", f"{name}-2"),
        )

    def log_group(self, name: str) -> Finding:
        """Check that CloudWatch accepts the log group's name."""
        groups = self._account.call("logs", "describe_log_groups", logGroupNamePrefix=name)["logGroups"]
        found = next((each for each in groups if each["logGroupName"] == name), None)
        if found is None:
            return passed("free")
        arn = found["arn"].removesuffix(":*")
        tags = self._account.call("logs", "list_tags_for_resource", resourceArn=arn)["tags"]
        return self._taken(tags, f"aws logs delete-log-group --log-group-name {name}, once its logs are not needed")

    def _taken(self, tags: dict[str, str], remedy: str) -> Finding:
        if not self._present.owns(tags):
            return failed("taken by something that is not this stack's", remedy)
        if self._present.cluster() is None:
            detail = "there, with this stack's tags, but its cluster is not: left of an earlier run?"
            return warned(detail, "if `pulumi up` says that it exists, import or delete it")
        return passed("this stack's")
