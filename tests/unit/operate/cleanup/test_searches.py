"""What of a stack holds data, by answers that moto lacks, and what cannot be looked at."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import botocore.exceptions  # type: ignore[import-untyped]
import pytest
from aws_double import AwsDouble, AwsError
from cleanup_accounts import CLUSTER, own, state

from trainium_eks.aws.account import READS, Account
from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.operate.cleanup import compute, kinds, orphans, services
from trainium_eks.operate.cleanup.left_over import Where
from trainium_eks.operate.cleanup.marks import Marks
from trainium_eks.operate.finding import Status
from trainium_eks.operate.preflight.tags import cluster_of

DEV = Marks(stack="dev")
FILES = {
    "FileSystemId": "fs-0123456789abcdef0",
    "FileSystemType": "LUSTRE",
    "Lifecycle": "AVAILABLE",
    "StorageCapacity": 1200,
    "Tags": own("trn-dev-fsx"),
    "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250},
}
LINK = {"AssociationId": "dra-0123456789abcdef0", "FileSystemId": FILES["FileSystemId"]}
BACKUP = {
    "BackupId": "backup-0123456789abcdef0",
    "Lifecycle": "AVAILABLE",
    "Type": "USER_INITIATED",
    "CreationTime": datetime(2026, 11, 1, tzinfo=UTC),
    "Tags": own("trn-dev-fsx"),
    "FileSystem": {"FileSystemId": FILES["FileSystemId"]},
}


def where(answers: Mapping[str, Any]) -> Where:
    return Where(Account("us-west-2", AwsDouble(answers).session()), DEV)


@pytest.mark.parametrize(
    ("links", "changes", "lost"),
    [
        ([], {}, ""),
        ([LINK], {}, "what was not exported to its S3 bucket is lost"),
        ([], {"LustreConfiguration": {"DeploymentType": "SCRATCH_2"}}, "they are lost with it"),
    ],
)
def test_a_file_system_is_removed_with_a_last_backup_where_fsx_takes_one(
    links: list[Any], changes: dict[str, Any], lost: str
) -> None:
    answers = {
        "fsx:DescribeFileSystems": {"FileSystems": [{**FILES, **changes}]},
        "fsx:DescribeDataRepositoryAssociations": {"Associations": links},
    }
    [found] = services.file_systems(where(answers))
    assert ("--lustre-configuration SkipFinalBackup=false" in found.commands[0]) is (not lost)
    assert found.commands[0].endswith(" --region us-west-2")
    assert lost in found.note
    if not changes:
        month = prices.lustre_monthly_usd(1200, "PERSISTENT_2", 250)
        assert found.hourly_usd == pytest.approx(month / prices.HOURS_PER_MONTH)


def test_a_backup_is_the_stacks_business_only_while_its_file_system_is() -> None:
    [kind] = [each for each in kinds.KINDS if each.name == "backup"]
    [found] = kinds.search(where({"fsx:DescribeBackups": {"Backups": [BACKUP]}}), kind)
    held = state(("aws:fsx/lustreFileSystem:LustreFileSystem", "fs-0123456789abcdef0", {}))
    assert orphans.left_over([found], held.names) == []
    assert orphans.left_over([found], frozenset()) == [found]
    assert "kept on purpose" in found.note


QUEUE, RULE = "trn-dev-karpenter-interruptions-0a1b2c3", "trn-dev-karpenter-spot-0a1b2c3"
TAGGED = {
    f"arn:aws:sqs:us-west-2:123456789012:{QUEUE}": own(QUEUE),
    f"arn:aws:events:us-west-2:123456789012:rule/{RULE}": own(RULE),
    "arn:aws:aps:us-west-2:123456789012:workspace/ws-1": own("trn-dev-metrics"),
    "arn:aws:grafana:us-west-2:123456789012:/workspaces/g-1": own("trn-dev-grafana"),
    "arn:aws:sns:us-west-2:123456789012:trn-dev-new-thing": own("trn-dev-new-thing"),
    "arn:aws:s3:::trn-dev-fsx-data-bucket-0a1b2c3": own("trn-dev-fsx-data"),
    "arn:aws:ecr:us-west-2:123456789012:repository/trainium-eks-dev/training": own("training"),
    "arn:aws:kms:us-west-2:123456789012:key/k-1": own("trn-dev-key"),
    "arn:aws:kms:us-west-2:123456789012:key/k-going": own("trn-dev-key"),
    # Of another program with the same tags, and of a service whose own list tells what is gone.
    "arn:aws:sqs:us-west-2:123456789012:web": own("web"),
    "arn:aws:ecr:us-west-2:123456789012:repository/web": own("web"),
    "arn:aws:ec2:us-west-2:123456789012:instance/i-1": own("trn-dev-cluster"),
}


def test_one_query_finds_tagged_things_of_any_service() -> None:
    answers = {
        "resourcegroupstaggingapi:GetResources": {
            "ResourceTagMappingList": [{"ResourceARN": arn, "Tags": tags} for arn, tags in TAGGED.items()]
        },
        "kms:DescribeKey": lambda asked: {
            "KeyMetadata": {
                "KeyId": asked["KeyId"],
                "KeyState": "PendingDeletion" if asked["KeyId"] == "k-going" else "Enabled",
            }
        },
        "sqs:GetQueueUrl": {"QueueUrl": f"https://sqs.us-west-2.amazonaws.com/123456789012/{QUEUE}"},
        "events:ListTargetsByRule": {"Targets": [{"Id": "t-1", "Arn": next(iter(TAGGED))}]},
    }
    listed = list(services.tagged(where(answers)))
    found = {each.kind: each for each in listed}
    assert len(listed) == len(found)
    assert set(found) == {
        *("queue", "event rule", "metrics workspace", "Grafana workspace", "sns trn-dev-new-thing"),
        *("bucket", "image repository", "KMS key"),
    }
    commands = {kind: [" ".join(line.split()[:3]) for line in each.commands] for kind, each in found.items()}
    assert commands["queue"] == ["aws sqs delete-queue"]
    assert commands["event rule"] == ["aws events remove-targets", "aws events delete-rule"]
    assert "--workspace-id ws-1" in found["metrics workspace"].commands[0]
    assert "--workspace-id g-1" in found["Grafana workspace"].commands[0]
    assert commands["bucket"] == ["aws s3 rb"]
    assert "--repository-name trainium-eks-dev/training" in found["image repository"].commands[0]
    assert commands["KMS key"] == ["aws kms schedule-key-deletion"]
    assert commands["sns trn-dev-new-thing"] == []
    assert "arn:aws:sns" in found["sns trn-dev-new-thing"].note
    assert found["sns trn-dev-new-thing"].finding(removable=False).text.startswith("price not known; ")
    # The state knows each by its ARN.
    held = state(*(("aws:x/x:X", arn, {"arn": arn}) for arn in TAGGED))
    assert orphans.left_over(found.values(), held.names) == []


def test_budgets_and_instance_profiles_are_found_by_their_names() -> None:
    profile = {"Path": "/", "InstanceProfileId": "AIPA0123456789012345", "CreateDate": BACKUP["CreationTime"]}
    names = ("trn-dev-karpenter-node-0a1b2c3", "trn-dev-2-karpenter-node-0a1b2c3", "payroll")
    answers = {
        "sts:GetCallerIdentity": {"Account": "123456789012", "Arn": "arn:aws:iam::123456789012:user/me"},
        "budgets:DescribeBudgets": {
            "Budgets": [
                {"BudgetName": name, "TimeUnit": "MONTHLY", "BudgetType": "COST"}
                for name in ("trn-dev-budget-0a1b2c3", "trn-dev-2-budget-0a1b2c3", "company")
            ]
        },
        "iam:ListInstanceProfiles": {
            "InstanceProfiles": [
                {**profile, "InstanceProfileName": name, "Arn": f"arn:aws:iam::123456789012:instance-profile/{name}",
                 "Roles": []}
                for name in names
            ]
        },
    }  # fmt: skip
    [budget] = services.budgets(where(answers))
    assert budget.commands[0].startswith("aws budgets delete-budget --account-id 123456789012 --budget-name trn-dev-b")
    [found] = services.instance_profiles(where(answers))
    assert found.name == names[0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AwsError("AccessDeniedException"), "the right elasticloadbalancing:DescribeLoadBalancers is missing"),
        (AwsError("Throttling"), "AWS throttled the question"),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="https://x"), "no network"),
        (AwsError("ExpiredToken"), "AWS does not take these credentials"),
    ],
)
def test_what_aws_does_not_answer_is_not_looked_at(error: Any, reason: str) -> None:
    double = AwsDouble({"elasticloadbalancingv2:DescribeLoadBalancers": error, "elbv2:DescribeLoadBalancers": error})
    report = orphans.look(Account("us-west-2", double.session()), DEV, state())
    reasons = {each.subject: each.text for each in report.of(Status.NOT_CHECKED)}
    assert len(reasons) == len(orphans.SEARCHES) + 1
    assert reason in reasons["load balancers"]
    assert "public addresses" in reasons
    assert reasons["file systems"] == "the right fsx:DescribeFileSystems is missing"
    assert [name for name, _ in double.asked if not name.partition(":")[2].startswith(READS)] == []


@pytest.mark.parametrize(
    ("name", "tags", "why"),
    [
        ("/aws/eks/trn-dev-cluster-eks-0a1b2c3/cluster", {}, "named trn-dev-…"),
        ("/aws/eks/trn-dev-2-cluster-eks-0a1b2c3/cluster", {}, ""),
        ("/trainium-eks/trn-dev-cluster-eks-0a1b2c3/containers", {}, "named trn-dev-…"),
        ("/trainium-eks/trn-dev-2-cluster-eks-0a1b2c3/containers", {}, ""),
        ("trn-developers", {}, ""),
        ("trn-dev-training-role-1", {"Environment": "dev", "ManagedBy": "pulumi"}, "tagged Environment=dev"),
        ("trn-dev-2-cluster-node", {"Environment": "dev-2", "ManagedBy": "pulumi"}, ""),
        ("", {"Name": "web", "Environment": "dev", "ManagedBy": "pulumi"}, ""),
        ("", {f"kubernetes.io/cluster/{CLUSTER}": "owned"}, f"of the cluster {CLUSTER}"),
        ("", {f"kubernetes.io/cluster/{CLUSTER}": "shared"}, ""),
        ("trn-dev-network-x", {"eks:cluster-name": "payroll"}, ""),
    ],
)  # fmt: skip
def test_only_what_carries_the_stacks_own_marks_is_the_stacks(name: str, tags: dict[str, str], why: str) -> None:
    assert DEV.why(name, tags) == why
    if f"kubernetes.io/cluster/{CLUSTER}" in tags:
        assert cluster_of(tags) == (CLUSTER if why else ""), "a subnet that a cluster only uses names none"


def test_endpoints_of_researchers_outlive_the_stack_that_has_their_role() -> None:
    role = "trn-dev-sagemaker-execution-0a1b2c3"
    moment = {"CreationTime": BACKUP["CreationTime"], "LastModifiedTime": BACKUP["CreationTime"]}
    arn = "arn:aws:sagemaker:us-west-2:123456789012:"
    roles = {"vision-reviews": role, "payroll": "payroll", "next": "trn-dev-2-sagemaker-execution-0a1b2c3"}

    def endpoint(name: str) -> dict[str, Any]:
        return {"EndpointName": name, "EndpointArn": f"{arn}{name}", "EndpointStatus": "InService", **moment}

    def of_all(asked: Mapping[str, Any]) -> dict[str, Any]:
        """An endpoint's configuration and model have its name with an ending."""
        [name] = asked.values()
        variant = {"ModelName": name, "InstanceType": "ml.p4d.24xlarge", "InitialInstanceCount": 2}
        return {
            "EndpointConfigName": name,
            "EndpointConfigArn": f"{arn}{name}",
            "ProductionVariants": [{"VariantName": "all", **variant}],
            "CreationTime": moment["CreationTime"],
        }

    answers = {
        "sagemaker:ListEndpoints": {"Endpoints": [endpoint(name) for name in roles]},
        "sagemaker:DescribeEndpoint": lambda asked: {
            **endpoint(asked["EndpointName"]),
            "EndpointConfigName": f"{asked['EndpointName']}-zzzzz",
        },
        "sagemaker:DescribeEndpointConfig": of_all,
        "sagemaker:DescribeModel": lambda asked: {
            "ModelName": asked["ModelName"],
            "ModelArn": f"{arn}model/{asked['ModelName']}",
            "CreationTime": moment["CreationTime"],
            "ExecutionRoleArn": f"arn:aws:iam::123456789012:role/{roles[asked['ModelName'].removesuffix('-zzzzz')]}",
        },
    }
    [found] = compute.endpoints(where(answers))
    assert found.name == "vision-reviews"
    assert [" ".join(line.split()[1:5]) for line in found.commands] == [
        "sagemaker delete-endpoint --endpoint-name vision-reviews",
        "sagemaker delete-endpoint-config --endpoint-config-name vision-reviews-zzzzz",
        "sagemaker delete-model --model-name vision-reviews-zzzzz",
    ]
    price = CATALOGUE.price("p4d.24xlarge")
    assert price is not None
    assert found.hourly_usd == pytest.approx(2 * prices.SAGEMAKER_FACTOR * price.hourly_usd)
    assert orphans.left_over([found], state(("aws:iam/role:Role", role, {})).names) == []
    assert orphans.left_over([found], frozenset()) == [found]


OWNED = [{"Key": "eks:cluster-name", "Value": CLUSTER}]
GROUP = {
    "MinSize": 0,
    "MaxSize": 1,
    "DesiredCapacity": 1,
    "DefaultCooldown": 0,
    "AvailabilityZones": [],
    "HealthCheckType": "EC2",
    "CreatedTime": BACKUP["CreationTime"],
    "Tags": OWNED,
}


@pytest.mark.parametrize(
    ("kind", "listed", "left", "command"),
    [
        (
            kinds.SCALING_GROUP,
            [{**GROUP, "AutoScalingGroupName": "a"}, {**GROUP, "AutoScalingGroupName": "b", "Status": "Delete"}],
            "a",
            "autoscaling delete-auto-scaling-group --force-delete --auto-scaling-group-name a",
        ),
        (
            # In a VPC that the stack only uses an interface has its tags alone.
            "network interface",
            [
                {"NetworkInterfaceId": "eni-1", "Status": "available", "TagSet": OWNED},
                {"NetworkInterfaceId": "eni-2", "Status": "in-use", "TagSet": OWNED},
                {"NetworkInterfaceId": "eni-3", "Status": "available", "TagSet": OWNED, "RequesterManaged": True},
            ],
            "eni-1",
            "ec2 delete-network-interface --network-interface-id eni-1",
        ),
        (
            "NAT gateway",
            [{"NatGatewayId": each, "State": state, "Tags": own("trn-dev-network")} for each, state in
             (("nat-1", "available"), ("nat-2", "deleted"))],
            "nat-1 (trn-dev-network)",
            "ec2 delete-nat-gateway --nat-gateway-id nat-1",
        ),
        (
            "VPC endpoint",
            [{"VpcEndpointId": each, "State": state, "Tags": own("trn-dev-network")} for each, state in
             (("vpce-1", "available"), ("vpce-2", "deleted"))],
            "vpce-1 (trn-dev-network)",
            "ec2 delete-vpc-endpoints --vpc-endpoint-ids vpce-1",
        ),
        (
            "internet gateway",
            [{"InternetGatewayId": "igw-1", "Attachments": [{"VpcId": "vpc-1"}], "Tags": own("trn-dev-network")}],
            "igw-1 (trn-dev-network)",
            "ec2 detach-internet-gateway --internet-gateway-id igw-1 --vpc-id vpc-1",
        ),
        (
            "route table",
            [{"RouteTableId": each, "Associations": [{"Main": main}], "Tags": own("trn-dev-network")} for each, main in
             (("rtb-1", False), ("rtb-2", True))],
            "rtb-1 (trn-dev-network)",
            "ec2 delete-route-table --route-table-id rtb-1",
        ),
        (
            "placement group",
            [{"GroupName": each, "State": state} for each, state in
             (("trn-dev-cluster-a", "available"), ("trn-dev-cluster-b", "deleted"))],
            "trn-dev-cluster-a",
            "ec2 delete-placement-group --group-name trn-dev-cluster-a",
        ),
        (
            "security group",
            [{"GroupId": "sg-1", "GroupName": f"eks-cluster-sg-{CLUSTER}-1", "Tags": OWNED}],
            f"sg-1 (eks-cluster-sg-{CLUSTER}-1)",
            "ec2 delete-security-group --group-id sg-1",
        ),
        (
            "launch template",
            [{"LaunchTemplateId": "lt-1", "LaunchTemplateName": each} for each in ("trn-dev-cluster-a", "web")],
            "lt-1 (trn-dev-cluster-a)",
            "ec2 delete-launch-template --launch-template-id lt-1",
        ),
    ],
)  # fmt: skip
def test_of_each_kind_what_is_still_there_is_found_with_its_command(
    kind: kinds.ResourceKind | str, listed: list[Any], left: str, command: str
) -> None:
    [row] = [each for each in (*kinds.KINDS, kinds.SCALING_GROUP) if kind in (each, each.name)]
    operation = "".join(word.title() for word in row.operation.split("_"))
    [found] = kinds.search(where({f"{row.service}:{operation}": {row.key: listed}}), row)
    assert found.name == left
    assert found.commands[0] == f"aws {command} --region us-west-2"
    # A cluster removes its own group; other kinds stay behind.
    assert found.goes_with == {"security group": (CLUSTER,), "Auto Scaling group": ("",)}.get(row.name, ())
