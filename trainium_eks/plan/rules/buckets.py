"""R46-R50: S3 buckets, which hold data sets and checkpoints."""

from collections.abc import Iterator

from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import allows, at, differs, items, mapping, principals, show, statements, true
from trainium_eks.plan.rules._rule import judged, rule
from trainium_eks.plan.subjects import BUCKETS

PUBLIC_ACCESS_BLOCK = ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",)
ENCRYPTION = (
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
)
VERSIONING = ("aws:s3/bucketVersioning:BucketVersioning", "aws:s3/bucketVersioningV2:BucketVersioningV2")
LIFECYCLE = (
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    "aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2",
)
POLICY = ("aws:s3/bucketPolicy:BucketPolicy",)
SWITCHES = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")


@rule("R46", "Block public access to buckets", "high", "CKV2_AWS_6, AWS-0086, AWS-0087, AWS-0091, AWS-0093")
def public_access(graph: Graph) -> Iterator[Finding]:
    """All four switches, so that no later ACL or policy opens the bucket; no ACL, and none that can be given."""
    for bucket in graph.of_type(*BUCKETS):
        blocks = graph.referring(bucket, "bucket", *PUBLIC_ACCESS_BLOCK)
        faults = [] if blocks else ["no BucketPublicAccessBlock names it, wanted one"]
        faults += [fault for each in blocks for switch in SWITCHES for fault in differs(each.inputs, switch, True)]
        if at(bucket.inputs, "acl") not in (None, "private"):
            faults.append(f"acl is {show(at(bucket.inputs, 'acl'))}, wanted none")
        for each in graph.referring(bucket, "bucket", "aws:s3/bucketOwnershipControls:BucketOwnershipControls"):
            faults += differs(each.inputs, "rule.objectOwnership", "BucketOwnerEnforced")
        yield from judged(bucket, faults, "all public access is blocked")


@rule("R47", "Encrypt buckets with KMS and a bucket key", "high", "CKV_AWS_19, CKV_AWS_145, AWS-0088, AWS-0132")
def encryption(graph: Graph) -> Iterator[Finding]:
    """SSE-KMS; with a bucket key, a million small objects do not mean a million calls to KMS."""
    path = "applyServerSideEncryptionByDefault.sseAlgorithm"
    for bucket in graph.of_type(*BUCKETS):
        configurations = graph.referring(bucket, "bucket", *ENCRYPTION)
        rules = [each for one in configurations for each in items(one.inputs.get("rules"))]
        faults = [] if rules else ["no BucketServerSideEncryptionConfiguration names it, wanted SSE-KMS"]
        for each in rules:
            if at(each, path) not in ("aws:kms", "aws:kms:dsse"):
                faults.append(f'rules[].{path} is {show(at(each, path))}, wanted "aws:kms"')
            faults += [f"rules[].{fault}" for fault in differs(each, "bucketKeyEnabled", True)]
        yield from judged(bucket, faults, "SSE-KMS with a bucket key")


@rule("R48", "Version buckets and expire old versions", "medium", "CKV_AWS_21, CKV2_AWS_61, AWS-0090")
def versions_and_lifecycle(graph: Graph) -> Iterator[Finding]:
    """Versions survive a mistaken delete or an export that overwrites; without a lifecycle, old checkpoints pile up for
    ever."""
    for bucket in graph.of_type(*BUCKETS):
        versioning = graph.referring(bucket, "bucket", *VERSIONING)
        faults = [] if versioning else ["no BucketVersioning names it, wanted status Enabled"]
        for each in versioning:
            faults += differs(each.inputs, "versioningConfiguration.status", "Enabled")
        lifecycles = graph.referring(bucket, "bucket", *LIFECYCLE)
        rules = [each for one in lifecycles for each in items(one.inputs.get("rules"))]
        if not any(at(each, "status") == "Enabled" for each in rules):
            faults.append("no BucketLifecycleConfiguration with an enabled rule names it, wanted one")
        yield from judged(bucket, faults, "versioned, with a lifecycle")


@rule(
    "R49",
    "Allow access over TLS only, and to named principals",
    "high",
    "CKV_AWS_70, CKV_AWS_93, own",
    reads_computed=True,
)
def tls_only(graph: Graph) -> Iterator[Finding]:
    """The bucket's policy denies requests without TLS and grants nothing to everybody."""
    for bucket in graph.of_type(*BUCKETS):
        policies = graph.referring(bucket, "bucket", *POLICY)
        granted = [each for policy in policies for each in statements(policy.inputs.get("policy")) or ()]
        faults = [] if any(_denies_plain(each) for each in granted) else [_no_denial(policies)]
        for each in granted:
            if allows(each) and any(who == "*" for _, who in principals(each)):
                faults.append('policy.Statement[].Principal is "*" in an Allow, wanted named principals')
        yield from judged(bucket, faults, "TLS only, principals named")


@rule("R50", "Keep buckets that are not empty", "high", "own")
def kept(graph: Graph) -> Iterator[Finding]:
    """forceDestroy would empty the bucket on `pulumi destroy`; in production Pulumi's protect refuses the step."""
    for bucket in graph.of_type(*BUCKETS):
        faults = ["forceDestroy is true, wanted false"] if true(bucket.inputs.get("forceDestroy")) else []
        if graph.production and not bucket.options.protect:
            faults.append("options.protect is false, wanted true in production")
        yield from judged(bucket, faults, "not emptied by destroy")


def _denies_plain(statement: object) -> bool:
    found = mapping(statement)
    tests = mapping(found.get("Condition"))
    secure = mapping(tests.get("Bool")).get("aws:SecureTransport")
    everybody = any(who == "*" for _, who in principals(found))
    return found.get("Effect") == "Deny" and everybody and str(secure).lower() == "false"


def _no_denial(policies: tuple[Resource, ...]) -> str:
    if not policies:
        return "no BucketPolicy names it, wanted one that denies aws:SecureTransport false"
    shown = show(policies[0].inputs.get("policy"))
    return f"policy is {shown}, wanted a Deny of aws:SecureTransport false for everybody"
