"""Checks of existing resources that the stack uses or an earlier one kept, and of names that it takes: subnets,
buckets, images, keys, repositories, clusters."""

from collections.abc import Iterator
from functools import partial

from trainium_eks.aws.account import NotCheckedError
from trainium_eks.aws.sessions import ECR_URL
from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.cached_images import UPSTREAMS
from trainium_eks.model.config import cross
from trainium_eks.model.config import stack_config as configs
from trainium_eks.model.config.network import ExistingSubnet, subnets
from trainium_eks.model.finding import Finding
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.problems import config_path, config_set
from trainium_eks.operate.preflight.existing_resources import AccountState
from trainium_eks.operate.preflight.needs import Bucket
from trainium_eks.operate.preflight.question import Checks, Question, failed, passed, warned

CLUSTER_SUBNET_ADDRESSES = 16
"""Free addresses that EKS wants in a control plane's subnets before it upgrades (EKS user guide, network requirements:
at least 6, 16 recommended)."""


def questions(present: AccountState) -> Iterator[Question]:
    """Yield the questions about adopted subnets, existing buckets, private images and names."""
    needs, checks = present.needs, _ConflictChecks(present)
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
    if kept := needs.config.kept_key_arn if needs.config else None:
        yield Question("keys/kept", f"KMS key {kept.rpartition('/')[2]}", partial(checks.kept_key, kept))
    elif needs.graph.of_type("aws:kms/key:Key"):
        yield Question("keys/kept", "KMS key of an earlier stack", checks.unused_key)


_REGION = "x-amz-bucket-region"


class _ConflictChecks(Checks):
    """Checks of resources that must exist, or must not."""

    def subnet(self, path: str, subnet: ExistingSubnet, *, private: bool) -> Finding:
        """Check that an adopted subnet matches the config, and has room for the nodes."""
        answer = self._account.find("ec2", "describe_subnets", absent="InvalidSubnetI.*", SubnetIds=[subnet.id])
        if answer is None:
            return failed(f"there is none in {self._account.region}", "aws ec2 describe-subnets shows those there are")
        found = answer["Subnets"][0]
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
            answer = self._account.find("s3", "head_bucket", absent="404|NoSuchBucket", Bucket=bucket.name)
            if answer is None:
                remedy = f"aws s3 mb s3://{bucket.name} --region {here}, or correct {key}"
                return failed("there is no such bucket", remedy)
            region = answer.get("BucketRegion") or answer["ResponseMetadata"]["HTTPHeaders"].get(_REGION, "")
        except NotCheckedError as error:
            region = error.headers.get(_REGION, "")
            if not region:
                raise
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
        absent = "404|NoSuchBucket|ServerSideEncryptionConfigurationNotFoundError"
        answer = self._account.find("s3", "get_bucket_encryption", absent=absent, Bucket=bucket)
        for rule in answer["ServerSideEncryptionConfiguration"]["Rules"] if answer else ():
            key = str(rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID", ""))
            if ":key/" in key:
                return key
            if key:  # an alias, or the id alone
                metadata = self._account.call("kms", "describe_key", KeyId=key)["KeyMetadata"]
                return "" if metadata.get("KeyManager") == "AWS" else str(metadata["Arn"])
        return ""

    def key(self, arn: str) -> Finding:
        """Check that an existing key can encrypt and decrypt."""
        answer = self._account.find("kms", "describe_key", absent="NotFoundException", KeyId=arn)
        if answer is None:
            return failed("there is no such key", "aws kms list-keys shows those there are")
        key = answer["KeyMetadata"]
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
        found = self._account.find(
            "ecr",
            "describe_images",
            absent="ImageNotFoundException|RepositoryNotFoundException",
            region=place["region"],
            registryId=place["registry"],
            repositoryName=place["name"],
            imageIds=[{"imageDigest": digest} if at else {"imageTag": tag}],
        )
        if found is None:
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
        absent = "ResourceNotFoundException"
        if self._account.find("secretsmanager", "describe_secret", absent=absent, SecretId=arn) is not None:
            return passed("there")
        return failed("there is no such secret", "make it, with the keys username and accessToken")

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
        absent = "RepositoryNotFoundException"
        answer = self._account.find("ecr", "describe_repositories", absent=absent, repositoryNames=[name])
        if answer is None:
            return passed("free")
        found = answer["repositories"][0]
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

    def kept_key(self, arn: str) -> Finding:
        """Check that the key of an earlier stack, which the config names, is enabled, and of a stack of this name."""
        forget = f"pulumi config rm keptKeyArn --stack {self._needs.stack}"
        key = self._account.find("kms", "describe_key", absent="NotFoundException", KeyId=arn)
        if key is None:
            return failed(f"there is none in {self._account.region}", forget)
        state = key["KeyMetadata"]["KeyState"]
        if state != "Enabled":
            remedy = f"aws kms enable-key --key-id {arn}"
            if state == "PendingDeletion":
                remedy = f"aws kms cancel-key-deletion --key-id {arn}, then {remedy}"
            return failed(f"it is {state}", remedy)
        if arn not in self._kept_keys():
            detail = "it does not carry this stack's tags, and an `up` would give it this stack's key policy"
            return failed(detail, forget)
        return passed("enabled, and of an earlier stack of this name")

    def unused_key(self) -> Finding:
        """Check that no enabled key is left of an earlier stack, which the next ``up`` would make once more. A running
        stack has its own, which looks the same."""
        if self._present.cluster() is not None:
            return passed("not looked for: the stack is there")
        states = {arn: self._account.call("kms", "describe_key", KeyId=arn) for arn in self._kept_keys()}
        enabled = [arn for arn, key in states.items() if key["KeyMetadata"]["KeyState"] == "Enabled"]
        if not enabled:
            return passed("none is kept")
        month = f"{prices.KMS_KEY_MONTH * len(enabled):g} USD a month"
        detail = f"{', '.join(enabled)} is kept of an earlier stack of this name ({month}), and this `up` makes another"
        remedy = (
            f"to use it again: {config_set('kept_key_arn', enabled[-1])}; leave it after an interrupted first `up`, "
            "whose state has the key"
        )
        return warned(detail, remedy)

    def _kept_keys(self) -> list[str]:
        """Return the ARNs of keys with the tags of a key of a stack of this name."""
        stack = self._needs.stack
        tags = {"Name": f"trn-{stack}-key", "Environment": stack, "ManagedBy": "pulumi"}
        found = self._account.pages(
            "resourcegroupstaggingapi",
            "get_resources",
            "ResourceTagMappingList",
            TagFilters=[{"Key": key, "Values": [value]} for key, value in tags.items()],
            ResourceTypeFilters=["kms:key"],
        )
        return sorted(key["ResourceARN"] for key in found)
