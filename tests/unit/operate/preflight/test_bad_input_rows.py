"""What only AWS can tell of tests/bad_inputs.yaml, each row by its test."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import botocore.loaders
import pytest
from aws_double import AwsError
from golden import ROOT
from good_account import BLOCK, NOW, QUOTAS, ask, ask_one, changed, listed, of, reservation
from iam_evaluation import allowed

from trainium_eks.model.finding import Status
from trainium_eks.operate.preflight.capacity import STATES
from trainium_eks.operate.preflight.deploy_rights import IamRequest

BLOCK_NODES, CLUSTER = "trn-prod-cluster-trn1-block-nodes", "trn-prod-cluster-eks-0a1b2c3"


def two_in_the_block(prod):
    return changed(prod, BLOCK_NODES, scalingConfig={"desiredSize": 2, "maxSize": 8, "minSize": 0})


def block(**other):
    return {"ec2:DescribeCapacityReservations": {"CapacityReservations": [reservation(**other)]}}


def test_row_18_block_that_has_not_started_is_refused(prod):
    coming = block(State="scheduled", StartDate=datetime(2026, 12, 1, 11, 30, tzinfo=UTC))
    found = ask(two_in_the_block(prod), coming)
    told = of(found, f"capacity/{BLOCK}")
    assert (found.failed, told.status) == (True, Status.FAIL)
    assert told.text == "it starts 2026-12-01T11:30Z (in 9 days): no node can start before"
    assert told.fix == "pulumi config set --path 'nodeGroups[1].desiredSize' 0 until then"
    waiting = ask_one(prod, f"capacity/{BLOCK}", coming)
    assert (waiting.status, "in 9 days" in waiting.text) == (Status.PASS, True)


OVER = datetime(2026, 11, 21, 11, 30, tzinfo=UTC)
FAULTY_BLOCKS = [
    ({"State": "expired", "EndDate": OVER}, "it ended 2026-11-21T11:30Z", "nodeGroups[1].capacity.id"),
    ({"State": "active", "EndDate": OVER}, "it ended 2026-11-21T11:30Z", "nodeGroups[1].capacity.id"),
    ({"InstanceType": "trn2.48xlarge"}, "it is of trn2.48xlarge", "'nodeGroups[1].instanceType' trn2.48xlarge"),
    ({"AvailabilityZoneId": "usw2-az1"}, "it is in usw2-az1, the group in usw2-az4", "[1].capacity.zoneId' usw2-az1"),
    ({"ReservationType": "default"}, "it is a Capacity Reservation", "'nodeGroups[1].capacity.type' reservation"),
    ({"TotalInstanceCount": 1}, "2 are asked for", "'nodeGroups[1].desiredSize' 1"),
    ({"PlacementGroupArn": "arn:aws:ec2:us-west-2:1:placement-group/mine"}, "in the placement group mine", "p' mine"),
]


@pytest.mark.parametrize(("other", "detail", "remedy"), FAULTY_BLOCKS)
def test_row_18_expired_or_wrong_block_is_refused(prod, other, detail, remedy):
    told = ask_one(two_in_the_block(prod), f"capacity/{BLOCK}", block(**other))
    assert told.status is Status.FAIL
    assert detail in told.text
    assert remedy in told.fix
    gone = {"ec2:DescribeCapacityReservations": AwsError("InvalidCapacityReservationId.NotFound")}
    assert ask_one(prod, f"capacity/{BLOCK}", gone).status is Status.FAIL


IN_CONFIG = {"starts": "2026-11-20T11:30:00Z", "ends": "2026-12-01T11:30:00Z", "nodes": 8}
DIFFERENT = [
    ({}, Status.PASS, "8 of 8 instances free", ""),
    ({"EndDate": datetime(2026, 12, 8, 11, 30, tzinfo=UTC)}, Status.FAIL,
     "EC2 has 2026-12-08T11:30:00Z as its ends, the config 2026-12-01T11:30:00Z",
     "pulumi config set --path 'nodeGroups[1].capacity.ends' 2026-12-08T11:30:00Z"),
    ({"StartDate": NOW + timedelta(days=1), "TotalInstanceCount": 4}, Status.FAIL,
     "EC2 has 4 as its nodes, the config 8 and EC2 has 2026-11-23T09:00:00Z as its starts",
     "[1].capacity.nodes' 4 && pulumi config set --path 'nodeGroups[1].capacity.starts' 2026-11-23T09:00:00Z"),
    ({"EndDate": OVER}, Status.FAIL, "it ended 2026-11-21T11:30Z", "nodeGroups[1].capacity.id"),
    ({"State": "delayed"}, Status.FAIL, "a new group would wait for its nodes in vain", "run `up` when it is active"),
]  # fmt: skip


@pytest.mark.parametrize(("other", "status", "text", "remedy"), DIFFERENT)
def test_row_18_times_of_a_block_are_those_of_ec2(prod, other, status, text, remedy):
    groups = prod.config["nodeGroups"]
    groups = [
        {**each, "capacity": {**each["capacity"], **IN_CONFIG}} if "capacity" in each else each for each in groups
    ]
    dated = replace(two_in_the_block(prod), config={**prod.config, "nodeGroups": groups})
    told = ask_one(dated, f"capacity/{BLOCK}", block(**other))
    assert (told.status, text in told.text, remedy in told.fix) == (status, True, True), told


EDGES = [
    ({"EndDate": NOW}, Status.FAIL, "it ended 2026-11-22T09:00Z"),
    ({"EndDate": NOW + timedelta(seconds=1)}, Status.PASS, "8 of 8 instances free until 2026-11-22T09:00Z"),
    ({"StartDate": NOW}, Status.PASS, "8 of 8"),
    ({"StartDate": NOW + timedelta(hours=1)}, Status.FAIL, "it starts 2026-11-22T10:00Z (in 1 hour)"),
    ({"StartDate": NOW + timedelta(hours=47)}, Status.FAIL, "(in 47 hours)"),
    ({"StartDate": NOW + timedelta(hours=48)}, Status.FAIL, "(in 2 days)"),
    *(({"State": each}, Status.FAIL, f"it is {each}: no node") for each, use in STATES.items() if use == "coming"),
    *(({"State": each}, Status.FAIL, f"it is {each}") for each, use in STATES.items() if use == "over"),
    ({"State": "resting"}, Status.WARN, "it is resting, and this release does not know"),
    ({"TotalInstanceCount": 7}, Status.WARN, "8 of 7 instances free until 2026-12-01T11:30Z; the group may grow to 8"),
    ({"AvailableInstanceCount": 2}, Status.PASS, "2 of 8"),
    ({"AvailableInstanceCount": 1}, Status.WARN, "2 are asked for. What is in use may be this group's own"),
]


@pytest.mark.parametrize(("other", "status", "text"), EDGES)
def test_reservation_is_judged_at_the_edges_of_time_and_size(prod, other, status, text):
    told = ask_one(two_in_the_block(prod), f"capacity/{BLOCK}", block(**other))
    assert (told.status, text in told.text) == (status, True), told.text
    named = changed(two_in_the_block(prod), BLOCK_NODES.replace("-nodes", "-template"), placement={"groupName": "mine"})
    assert "made without a placement group" in ask_one(named, f"capacity/{BLOCK}", block()).text


def test_every_reservation_state_is_decided():
    shapes = botocore.loaders.Loader().load_service_model("ec2", "service-2")["shapes"]
    assert set(STATES) == set(shapes["CapacityReservationState"]["enum"])
    assert [each for each, use in STATES.items() if use == "usable"] == ["active"]


def test_reservations_zone_is_ec2s(prod):
    nowhere = {"ec2:DescribeInstanceTypeOfferings": {"InstanceTypeOfferings": []}}
    reserved = changed(prod, BLOCK_NODES.replace("-nodes", "-template"), instanceType="trn2u.48xlarge")
    told = ask_one(reserved, "capacity/trn2u.48xlarge", nowhere)
    assert (told.status, "EC2's list lacks usw2-az4, where it is reserved" in told.text) == (Status.PASS, True)
    assert ask_one(prod, "capacity/trn1.32xlarge", nowhere).status is Status.FAIL, "a group of it is On-Demand"


IN_BLOCK = {"CapacityBlockId": "cb-0123456789abcdef0", "InstanceType": "trn2u.48xlarge", "LaunchStatus": "launchable"}


@pytest.mark.parametrize(
    ("kind", "state", "other", "status", "said"),
    [
        ("u", "ok", {}, Status.PASS, "8 of 8 instances free"),
        ("", "ok", {}, Status.FAIL, "whose nodes may be of many UltraServers"),
        ("u", "ok", {"LaunchStatus": "unlaunchable"}, Status.FAIL, "EC2 starts no instance in it now"),
        ("u", "impaired", {}, Status.WARN, "accelerator interconnect impaired"),
    ],
)
def test_ultraserver_block_must_have_connected_ultraservers(prod, kind, state, other, status, said):
    template = next(each for each in prod.resources if each.name == BLOCK_NODES.replace("-nodes", "-template"))
    changed_type = changed(prod, template.name, instanceType="trn2u.48xlarge")
    answers = block(**{**IN_BLOCK, **other}) | {
        "ec2:DescribeCapacityBlocks": {"CapacityBlocks": [{"UltraserverType": kind}]},
        "ec2:DescribeCapacityBlockStatus": {"CapacityBlockStatuses": [{"InterconnectStatus": state}]},
    }
    told = ask_one(changed_type, f"capacity/{BLOCK}", answers)
    assert (told.status, said in told.text) == (status, True), told.text


def test_row_22_low_accelerator_quota_is_refused(prod, monkeypatch):
    monkeypatch.setitem(QUOTAS, "L-2C3B7624", 256)
    told = ask_one(prod, "quotas/L-2C3B7624", {})
    assert told.status is Status.FAIL
    assert told.text == "4 x 128 = 512 vCPUs needed, quota 256, others use 0: room for 2 nodes of trn1.32xlarge"
    assert "--service-code ec2 --quota-code L-2C3B7624 --desired-value 1024 --region us-west-2" in told.fix
    assert "pulumi config set --path 'nodeGroups[0].desiredSize' 2" in told.fix
    # Enough for now, and not for the largest size.
    monkeypatch.setitem(QUOTAS, "L-2C3B7624", 512)
    told = ask_one(prod, "quotas/L-2C3B7624", {})
    assert told.status is Status.WARN
    assert "at their largest sizes the groups need 1,024 (trn1-base 8 x 128)" in told.text
    assert "request 1,024 or more: aws service-quotas" in told.fix


def test_row_22_foreign_instances_count_and_blocks_and_own_nodes_do_not(prod, monkeypatch):
    monkeypatch.setitem(QUOTAS, "L-2C3B7624", 1024)
    own = listed({"eks:cluster-name": CLUSTER})
    trn1 = {"InstanceId": "i-1", "InstanceType": "trn1.32xlarge"}
    running = [
        *(trn1, {**trn1, "Tags": own}),
        *({**trn1, "InstanceLifecycle": each} for each in ("capacity-block", "spot")),
        {**trn1, "InstanceType": "m5.large", "CpuOptions": {"CoreCount": 1, "ThreadsPerCore": 2}},
    ]
    own_and_open = reservation(ReservationType="default")
    idle = reservation(CapacityReservationId="cr-other", ReservationType="default", AvailableInstanceCount=3)
    found = ask(
        prod,
        {
            "eks:ListClusters": {"clusters": [CLUSTER, "payroll"]},
            "ec2:DescribeInstances": {"Reservations": [{"Instances": running}]},
            "ec2:DescribeCapacityReservations": {"CapacityReservations": [reservation(), own_and_open, idle]},
        },
    )
    told = of(found, "quotas/L-2C3B7624")
    assert told.text.startswith("4 x 128 = 512 vCPUs needed, quota 1,024, others use 512")
    assert told.status is Status.WARN
    assert ", others use 2" in of(found, "quotas/L-1216C47A").text
    others = {"ec2:DescribeInstances": {"Reservations": [{"Instances": [trn1] * 5}]}}
    told = ask_one(prod, "quotas/L-2C3B7624", others)
    assert told.status is Status.FAIL
    assert "others use 640: room for 3 nodes" in told.text


def test_row_23_exhausted_standard_quotas_are_refused(dev, monkeypatch):
    monkeypatch.setitem(QUOTAS, "L-1216C47A", 5)
    vpcs = {"ec2:DescribeVpcs": {"Vpcs": [{"VpcId": f"vpc-{number}"} for number in range(5)]}}
    addresses = [{"AllocationId": f"eipalloc-{number}"} for number in range(5)]
    found = ask(dev, {**vpcs, "ec2:DescribeAddresses": {"Addresses": addresses}})
    told = [of(found, f"quotas/{code}") for code in ("L-1216C47A", "L-F678F1CE", "L-0263D0A3")]
    assert [each.status for each in told] == [Status.FAIL] * 3
    assert "1 x 4 + 2 x 4 = 12 vCPUs needed, quota 5" in told[0].text
    assert [each.text for each in told[1:]] == ["1 needed, quota 5, others use 5"] * 2
    assert "--service-code vpc --quota-code L-F678F1CE --desired-value 6" in told[1].fix
    # What the stack has already is not counted twice.
    own = listed({"Environment": "dev", "ManagedBy": "pulumi"})
    some = [{"VpcId": f"vpc-{number}"} for number in range(4)] + [{"VpcId": "vpc-own", "Tags": own}]
    one = ask_one(dev, "quotas/L-F678F1CE", {"ec2:DescribeVpcs": {"Vpcs": some}})
    assert (one.status, one.text) == (Status.PASS, "1 needed, quota 5, others use 4")


def linked(prod):
    return changed(prod, "trn-prod-fsx-link", dataRepositoryPath="s3://acme-data/train")


def test_row_32_linked_bucket_in_another_region_is_refused(prod):
    def judge_bucket(answer):
        return ask_one(linked(prod), "storage/acme-data", {"s3:HeadBucket": answer})

    # Of a bucket that the deployer may not look into, S3 tells the region all the same.
    for answer in ({"BucketRegion": "eu-west-1"}, AwsError("403", "Forbidden", {"x-amz-bucket-region": "eu-west-1"})):
        far = judge_bucket(answer)
        assert far.text == "bucket acme-data is in eu-west-1, the file system's link in us-west-2"
        assert (far.status, "fileSystem.durability.bucket" in far.fix) == (Status.FAIL, True)
    missing = judge_bucket(AwsError("404", "Not Found"))
    assert missing.status is Status.FAIL
    assert "aws s3 mb s3://acme-data --region us-west-2" in missing.fix
    assert judge_bucket({"BucketRegion": "us-west-2"}).status is Status.PASS


DATA_KEY, OTHER_KEY = (f"arn:aws:kms:us-west-2:111122223333:key/{name}" for name in ("data", "other"))


def encrypted(key, told="", **more):
    """Answers of an account whose bucket encrypts with a key, and whose keys have the given state."""
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    rules = [{"ApplyServerSideEncryptionByDefault": default}] if key else []
    return {
        "s3:HeadBucket": {"BucketRegion": "us-west-2"},
        "s3:GetBucketEncryption": {"ServerSideEncryptionConfiguration": {"Rules": rules}},
        "kms:DescribeKey": {"KeyMetadata": {"KeyId": "k", "Arn": told or DATA_KEY, **more}},
        "iam:GetPolicy": {"Policy": {"DefaultVersionId": "v1"}},
        "iam:GetPolicyVersion": {"PolicyVersion": {"Document": json.dumps(BOUNDS)}},
        "iam:SimulateCustomPolicy": lambda asked: {
            "EvaluationResults": [
                {"EvalActionName": each, "EvalDecision": "allowed" if _within(asked, each) else "implicitDeny"}
                for each in asked["ActionNames"]
            ]
        },
    }


_BOUNDARY = (ROOT / "docs" / "role-boundary.json").read_text()
BOUNDS = json.loads(_BOUNDARY.replace("DATA_BUCKET", "acme-data").replace("DATA_KEY_ARN", DATA_KEY))


def _within(asked, action):
    context = {each["ContextKeyName"]: each["ContextKeyValues"][0] for each in asked.get("ContextEntries", ())}
    (everything,), (bounds,) = asked["PolicyInputList"], asked["PermissionsBoundaryPolicyInputList"]
    return allowed(IamRequest(action, asked["ResourceArns"][0], context), [json.loads(everything)], json.loads(bounds))


def with_key(prod, key):
    durability = {"type": "s3", "bucket": "acme-data", **({"bucketKeyArn": key} if key else {})}
    file_system = {**prod.config["fileSystem"], "durability": durability}
    return replace(linked(prod), config={**prod.config, "fileSystem": file_system})


@pytest.mark.parametrize(
    ("named", "has", "more", "outcome", "text"),
    [
        ("", "", {}, Status.PASS, "no key of its own"),
        ("", "alias/aws/s3", {"KeyManager": "AWS"}, Status.PASS, "no key of its own"),
        ("", DATA_KEY, {}, Status.FAIL, "jobs would get 403"),
        ("", "alias/data", {"told": DATA_KEY}, Status.FAIL, f"encrypted with {DATA_KEY}"),
        (DATA_KEY, DATA_KEY, {}, Status.PASS, "as in fileSystem.durability.bucketKeyArn"),
        (OTHER_KEY, DATA_KEY, {}, Status.FAIL, "jobs would get 403"),
        (DATA_KEY, "", {}, Status.WARN, "no key of its own"),
    ],
)
def test_bucket_with_another_key_is_found_before_jobs_get_403(prod, named, has, more, outcome, text):
    told = ask_one(with_key(prod, named), "storage/acme-data/key", encrypted(has, **more))
    assert told.status is outcome
    assert text in told.text
    if outcome is Status.FAIL:
        assert f"fileSystem.durability.bucketKeyArn {DATA_KEY}" in told.fix


@pytest.mark.parametrize(
    ("key", "missing"), [(DATA_KEY, ""), (OTHER_KEY, f"kms:Decrypt on {OTHER_KEY}, kms:GenerateDataKey on {OTHER_KEY}")]
)
def test_boundary_without_a_bucket_or_key_is_found(prod, key, missing):
    told = ask_one(with_key(prod, key), "account/boundary", encrypted(key))
    assert told.status is (Status.FAIL if missing else Status.PASS)
    assert missing in told.text
    narrow = {"iam:GetPolicyVersion": {"PolicyVersion": {"Document": json.dumps(BOUNDS).replace("acme-data", "other")}}}
    told = ask_one(with_key(prod, key), "account/boundary", encrypted(key) | narrow)
    assert "s3:GetObject on arn:aws:s3:::acme-data/x" in told.text
    assert f"--parameter-overrides DataBuckets=acme-data ExistingKeyArns={key}, " in told.fix
    gone = ask_one(prod, "account/boundary", {"iam:GetPolicy": AwsError("NoSuchEntity")})
    assert gone.status is Status.FAIL
    assert gone.fix.endswith("CAPABILITY_NAMED_IAM makes trn-boundary")


def test_foreign_key_is_checked(prod):
    graph, id_ = with_key(prod, DATA_KEY), f"keys/{DATA_KEY}"
    assert ask_one(graph, id_, encrypted(DATA_KEY)).status is Status.PASS
    for wrong in ({"KeyState": "PendingDeletion"}, {"KeyUsage": "SIGN_VERIFY", "KeySpec": "RSA_2048"}):
        assert ask_one(graph, id_, encrypted(DATA_KEY, **wrong)).status is Status.FAIL
    gone = encrypted(DATA_KEY) | {"kms:DescribeKey": AwsError("NotFoundException")}
    assert ask_one(graph, id_, gone).text == "there is no such key"


def upgrade(prod, version, nodes="", environment="prod"):
    tags = {"Environment": environment, "ManagedBy": "pulumi"}
    cluster = {"name": CLUSTER, "version": version, "status": "ACTIVE", "tags": tags}
    group = {"nodegroupName": "trn1-base", "version": nodes or version}
    answers = {
        "eks:ListClusters": {"clusters": [CLUSTER]},
        "eks:DescribeCluster": {"cluster": cluster},
        "eks:ListNodegroups": {"nodegroups": ["trn1-base"]},
        "eks:DescribeNodegroup": {"nodegroup": group},
    }
    return ask_one(prod, "versions/upgrade", answers)


def test_row_35_upgrade_that_skips_a_version_is_refused(prod):
    told = upgrade(prod, "1.33")
    assert told.status is Status.FAIL
    assert "upgrade one minor version at a time, 1.33 to 1.34 first" in told.text
    assert told.fix == "pulumi config set --path cluster.kubernetesVersion 1.34"
    assert [upgrade(prod, version).status for version in ("1.34", "1.35", "1.36")] == ["pass", "pass", "fail"]
    old = upgrade(prod, "1.34", nodes="1.31")
    assert (old.status, "trn1-base (1.31)" in old.text) == (Status.FAIL, True)
    assert upgrade(prod, "1.33", environment="dev").text == "none yet: a new one is made", "another stack's"
