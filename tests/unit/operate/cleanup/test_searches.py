"""What of a stack holds data, by answers that moto lacks, and what cannot be looked at."""

from datetime import UTC, datetime
from pathlib import Path

import botocore.exceptions
import pytest
import yaml
from aws_double import AwsDouble, AwsError
from cleanup_accounts import CLUSTER, own, state, tagged

from trainium_eks.aws.account import READS, Account
from trainium_eks.aws.tags import cluster_of
from trainium_eks.kube.api import NoSuchKindError
from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config.namespaces import MONITORING
from trainium_eks.model.finding import Status
from trainium_eks.operate.cleanup import compute, kinds, monitoring_volumes, orphans, services
from trainium_eks.operate.cleanup.left_over import Marks, Where

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
MOMENT = datetime(2026, 11, 1, tzinfo=UTC)
BACKUP = {
    "BackupId": "backup-0123456789abcdef0",
    "Lifecycle": "AVAILABLE",
    "Type": "USER_INITIATED",
    "CreationTime": MOMENT,
    "Tags": own("trn-dev-fsx"),
    "FileSystem": {"FileSystemId": FILES["FileSystemId"]},
}


GRAFANA = {
    "workspace": {
        "id": "g-1", "status": "ACTIVE", "created": MOMENT, "modified": MOMENT, "dataSources": [], "endpoint": "e",
        "grafanaVersion": "12", "authentication": {"providers": []},
    }
}  # fmt: skip


def where(answers):
    return Where(Account("us-west-2", AwsDouble(answers).session()), DEV)


@pytest.mark.parametrize(
    ("links", "changes", "lost"),
    [
        ([], {}, ""),
        ([LINK], {}, "what was not exported to its S3 bucket is lost"),
        ([], {"LustreConfiguration": {"DeploymentType": "SCRATCH_2"}}, "they are lost with it"),
    ],
)
def test_file_system_is_deleted_with_a_final_backup_where_supported(links, changes, lost):
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
    # A backup is the stack's business only while its file system is.
    [kind] = [each for each in kinds.KINDS if each.name == "backup"]
    [found] = kinds.search(where({"fsx:DescribeBackups": {"Backups": [BACKUP]}}), kind)
    held = state(("aws:fsx/lustreFileSystem:LustreFileSystem", "fs-0123456789abcdef0", {}))
    assert orphans.left_over([found], held.names) == []
    assert orphans.left_over([found], frozenset()) == [found]
    assert "kept on purpose" in found.note


QUEUE, RULE = "trn-dev-karpenter-interruptions-0a1b2c3", "trn-dev-karpenter-spot-0a1b2c3"
TAGGED = {
    f"sqs:us-west-2:123456789012:{QUEUE}": QUEUE,
    f"events:us-west-2:123456789012:rule/{RULE}": RULE,
    "aps:us-west-2:123456789012:workspace/ws-1": "trn-dev-metrics",
    "grafana:us-west-2:123456789012:/workspaces/g-1": "trn-dev-grafana",
    "sns:us-west-2:123456789012:trn-dev-new-thing": "trn-dev-new-thing",
    "s3:::trn-dev-fsx-data-bucket-0a1b2c3": "trn-dev-fsx-data",
    "ecr:us-west-2:123456789012:repository/trainium-eks-dev/training": "training",
    "kms:us-west-2:123456789012:key/k-1": "trn-dev-key",
    "kms:us-west-2:123456789012:key/k-going": "trn-dev-key",
    # Deleted, and named by this API for hours.
    "sqs:us-west-2:123456789012:trn-dev-karpenter-gone": "trn-dev-karpenter-gone",
    "ecr:us-west-2:123456789012:repository/trainium-eks-dev/gone": "gone",
    "aps:us-west-2:123456789012:workspace/ws-gone": "trn-dev-metrics",
    "grafana:us-west-2:123456789012:/workspaces/g-gone": "trn-dev-grafana",
    "s3:::trn-dev-gone": "trn-dev-gone",
    "events:us-west-2:123456789012:rule/trn-dev-karpenter-gone": "trn-dev-karpenter-gone",
    # Of another program with the same tags, and of a service whose own list tells what is gone.
    "sqs:us-west-2:123456789012:web": "web",
    "ecr:us-west-2:123456789012:repository/web": "web",
    "ec2:us-west-2:123456789012:instance/i-1": "trn-dev-cluster",
}
FOUND = {
    "queue": ["aws sqs delete-queue"],
    "event rule": ["aws events remove-targets", "aws events delete-rule"],
    "metrics workspace": ["--workspace-id ws-1"],
    "Grafana workspace": ["--workspace-id g-1"],
    "bucket": ["aws s3 rb"],
    "image repository": ["--repository-name trainium-eks-dev/training"],
    "KMS key": ["aws kms schedule-key-deletion"],
    "sns trn-dev-new-thing": [],
}
"""Kind of thing to what its commands have, one by one."""


def test_one_query_finds_tagged_resources_of_any_service():
    def key(asked):
        state = {"k-going": "PendingDeletion", "k-1": "Enabled"}[asked["KeyId"]]
        return {"KeyMetadata": {"KeyId": asked["KeyId"], "KeyState": state}}

    def there(key, code, document):
        return lambda asked: AwsError(code) if str(asked[key]).rstrip("']").endswith("gone") else document

    mapped = [{"ResourceARN": f"arn:aws:{arn}", "Tags": own(TAGGED[arn])} for arn in TAGGED]
    answers = {
        "resourcegroupstaggingapi:GetResources": {"ResourceTagMappingList": mapped},
        "kms:DescribeKey": key,
        "sqs:GetQueueUrl": there(
            "QueueName",
            "AWS.SimpleQueueService.NonExistentQueue",
            {"QueueUrl": f"https://sqs.us-west-2.amazonaws.com/123456789012/{QUEUE}"},
        ),
        "events:ListTargetsByRule": there(
            "Rule", "ResourceNotFoundException", {"Targets": [{"Id": "t-1", "Arn": mapped[0]["ResourceARN"]}]}
        ),
        "ecr:DescribeRepositories": there("repositoryNames", "RepositoryNotFoundException", {}),
        "amp:DescribeWorkspace": there(
            "workspaceId",
            "ResourceNotFoundException",
            {"workspace": {"workspaceId": "ws-1", "arn": "arn", "status": {"statusCode": "ACTIVE"},
                           "createdAt": MOMENT}},
        ),
        "grafana:DescribeWorkspace": there("workspaceId", "ResourceNotFoundException", GRAFANA),
        "s3:HeadBucket": there("Bucket", "404", {}),
    }  # fmt: skip
    listed = list(services.tagged(where(answers)))
    found = {each.kind: each for each in listed}
    assert len(listed) == len(found)
    assert found.keys() == FOUND.keys()
    for kind, parts in FOUND.items():
        assert [part in line for part, line in zip(parts, found[kind].commands, strict=True)] == [True] * len(parts)
    unknown = found["sns trn-dev-new-thing"]
    assert "arn:aws:sns" in unknown.note
    assert unknown.finding(removable=False).text.startswith("price not known; ")
    # The state knows each by its ARN.
    held = state(*(("aws:x/x:X", "x", {"arn": each["ResourceARN"]}) for each in mapped))
    assert orphans.left_over(found.values(), held.names) == []


def test_budgets_and_instance_profiles_are_found_by_their_names():
    profile = {"Path": "/", "InstanceProfileId": "AIPA0123456789012345", "CreateDate": MOMENT, "Roles": []}
    arn = "arn:aws:iam::123456789012:"
    names = ("trn-dev-karpenter-node-0a1b2c3", "trn-dev-2-karpenter-node-0a1b2c3", "payroll")
    profiles = [{**profile, "InstanceProfileName": name, "Arn": f"{arn}instance-profile/{name}"} for name in names]
    budgets = [{"BudgetName": name, "TimeUnit": "MONTHLY", "BudgetType": "COST"} for name in names]
    answers = {
        "sts:GetCallerIdentity": {"Account": "123456789012", "Arn": f"{arn}user/me"},
        "budgets:DescribeBudgets": {"Budgets": budgets},
        "iam:ListInstanceProfiles": {"InstanceProfiles": profiles},
    }
    [budget] = services.budgets(where(answers))
    deletion = f"aws budgets delete-budget --account-id 123456789012 --budget-name {names[0]}"
    assert budget.commands[0].startswith(deletion)
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
def test_unanswered_search_is_not_checked(error, reason):
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
def test_only_resources_with_the_stacks_tags_are_the_stacks(name, tags, why):
    assert DEV.why(name, tags) == why
    if f"kubernetes.io/cluster/{CLUSTER}" in tags:
        assert cluster_of(tags) == (CLUSTER if why else ""), "a subnet that a cluster only uses names none"


def test_endpoints_of_researchers_outlive_the_stack_that_has_their_role():
    role, arn = "trn-dev-sagemaker-execution-0a1b2c3", "arn:aws:sagemaker:us-west-2:123456789012:"
    roles = {"vision-reviews": role, "payroll": "payroll", "next": "trn-dev-2-sagemaker-execution-0a1b2c3"}

    def named(kind, name, **more):
        return {f"{kind}Name": name, f"{kind}Arn": f"{arn}{name}", "CreationTime": MOMENT, **more}

    def endpoint(name, **more):
        return named("Endpoint", name, EndpointStatus="InService", LastModifiedTime=MOMENT, **more)

    def described(asked):
        """An endpoint's configuration and model have its name with an ending."""
        return endpoint(asked["EndpointName"], EndpointConfigName=f"{asked['EndpointName']}-zzzzz")

    def configured(asked):
        [name] = asked.values()
        variant = {"VariantName": "all", "ModelName": name, "InstanceType": "ml.p4d.24xlarge"}
        return named("EndpointConfig", name, ProductionVariants=[{**variant, "InitialInstanceCount": 2}])

    def model(asked):
        own_role = roles[asked["ModelName"].removesuffix("-zzzzz")]
        return named("Model", asked["ModelName"], ExecutionRoleArn=f"arn:aws:iam::123456789012:role/{own_role}")

    answers = {
        "sagemaker:ListEndpoints": {"Endpoints": [endpoint(name) for name in roles]},
        "sagemaker:DescribeEndpoint": described,
        "sagemaker:DescribeEndpointConfig": configured,
        "sagemaker:DescribeModel": model,
    }
    [found] = compute.endpoints(where(answers))
    assert found.name == "vision-reviews"
    assert [" ".join(line.split()[1:5]) for line in found.commands] == [
        "sagemaker delete-endpoint --endpoint-name vision-reviews",
        "sagemaker delete-endpoint-config --endpoint-config-name vision-reviews-zzzzz",
        "sagemaker delete-model --model-name vision-reviews-zzzzz",
    ]
    price = CATALOGUE.price("p4d.24xlarge")
    assert found.hourly_usd == pytest.approx(2 * prices.SAGEMAKER_FACTOR * price.hourly_usd)
    assert orphans.left_over([found], state(("aws:iam/role:Role", role, {})).names) == []
    assert orphans.left_over([found], frozenset()) == [found]


def test_compute_is_priced_while_it_runs_and_unlocked_before_removal():
    def started(identity, state, **labels):
        tags = tagged(**{"eks:cluster-name": CLUSTER, **labels})
        return {"InstanceId": identity, "InstanceType": "trn1.32xlarge", "State": {"Name": state}, "Tags": tags}

    group, pool = {"eks:nodegroup-name": "trn"}, {"karpenter.sh/nodepool": "default"}
    of_group = [started(f"i-{state}", state, **group) for state in ("pending", "running", "stopped")]
    described = {"clusterName": CLUSTER, "nodegroupName": "trn", "instanceTypes": ["trn2.48xlarge"]}
    reservations = [{"Instances": [*of_group, started("i-3", "running", **pool), started("i-4", "stopped")]}]
    answers = {
        "eks:ListClusters": {"clusters": [CLUSTER, "payroll"]},
        "eks:ListNodegroups": {"nodegroups": ["trn"]},
        "eks:DescribeNodegroup": {"nodegroup": described},
        "eks:DescribeCluster": {"cluster": {"status": "DELETING", "deletionProtection": True}},
        "autoscaling:DescribeAutoScalingGroups": {"AutoScalingGroups": []},
        "ec2:DescribeInstances": {"Reservations": reservations},
    }
    found = compute.search(where(answers))
    price, cluster = CATALOGUE.price("trn1.32xlarge").hourly_usd, prices.EKS_CLUSTER_HOURLY
    lost = orphans.left_over(found, frozenset())
    prices_of = {each.name: each.hourly_usd for each in lost}
    assert prices_of == {"trn": 2 * price, CLUSTER: cluster, "i-3": price, "i-4": 0.0}
    assert lost[0].note.startswith("2 instances of trn1.32xlarge")
    assert not lost[1].live
    assert [line.split()[2] for line in lost[1].commands] == ["update-cluster-config", "delete-cluster"]
    assert [each.name for each in orphans.left_over(found, {CLUSTER})] == ["trn", "i-4"]


LISTED = yaml.safe_load((Path(__file__).parent / "kinds.yaml").read_text())


@pytest.mark.parametrize("kind", [each for each in LISTED if each != "parts"])
def test_leftover_of_each_kind_is_found_with_its_delete_command(kind):
    listed, left, command = LISTED[kind]
    [row] = [each for each in (*kinds.KINDS, kinds.SCALING_GROUP) if each.name == kind]
    operation = "".join(word.title() for word in row.operation.split("_"))
    [found] = kinds.search(where({f"{row.service}:{operation}": {row.key: listed}}), row)
    assert found.name == left
    assert found.commands[0] == f"aws {command} --region us-west-2"
    # A cluster removes its own group; other kinds stay behind.
    assert found.goes_with == {"security group": (CLUSTER,), "Auto Scaling group": ("",)}.get(row.name, ())


def test_monitoring_claims_are_deleted_before_their_driver():
    def volume(name, namespace, policy="Delete"):
        claim = {"namespace": namespace, "name": f"claim-of-{name}"}
        return {"metadata": {"name": name}, "spec": {"claimRef": claim, "persistentVolumeReclaimPolicy": policy}}

    kept = [
        volume("kept", MONITORING, "Retain"),
        volume("team", "training"),
        {"metadata": {"name": "free"}, "spec": {}},
    ]

    class Api:
        def __init__(self, slow):
            self.deleted, self.volumes, self.slow = [], [volume("prometheus", MONITORING)], slow

        def list(self, version, kind, **_):
            if kind == "Alertmanager":
                raise NoSuchKindError(version, kind)
            return [*self.volumes, *kept] if kind == "PersistentVolume" else [{"metadata": {"name": kind.lower()}}]

        def delete(self, reference):
            assert reference.namespace == MONITORING
            self.deleted.append(f"{reference.kind}/{reference.name}")
            if reference.kind == "PersistentVolumeClaim" and not self.slow:
                self.volumes = []

    slept, quick, slow = [], Api(slow=False), Api(slow=True)
    assert monitoring_volumes.delete_claims(quick, slept.append) == []
    pods = ["Prometheus/prometheus", "Deployment/deployment"]
    assert (quick.deleted, slept) == ([*pods, "PersistentVolumeClaim/claim-of-prometheus"], [])
    assert monitoring_volumes.delete_claims(slow, slept.append) == ["prometheus"]
    assert sum(slept) == monitoring_volumes.SECONDS
    assert monitoring_volumes.delete_claims(quick, slept.append) == [], "nothing is asked for twice"
    assert len(quick.deleted) == 3
