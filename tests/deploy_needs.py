"""Requests of the role that deploys, in the account of the tests, beside those of the library's table."""

from trainium_eks.operate.preflight.deploy_rights import AccountRegion, IamRequest

ACCOUNT = "123456789012"
STATE_BUCKET = "acme-pulumi-state"
STATE_KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/11111111-1111-1111-1111-111111111111"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/trn-boundary"
PLACE = AccountRegion(ACCOUNT, "us-west-2", "aws", BOUNDARY)
ROLE = f"arn:aws:iam::{ACCOUNT}:role/trn-dev-cluster-node-0a1b2c3"
KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/22222222-2222-2222-2222-222222222222"


def asks(resource, *actions, **context):
    """The actions on one resource. Condition keys are given with ``__`` for ``:`` and ``___`` for ``/``."""
    keys = {key.replace("___", "/").replace("__", ":"): value for key, value in context.items()}
    return tuple(IamRequest(each, resource, {"aws:PrincipalAccount": ACCOUNT, **keys}) for each in actions)


STATE: tuple[IamRequest, ...] = (
    # Where the state is (docs/deploying.md, step 3).
    *asks(f"arn:aws:cloudformation:us-west-2:{ACCOUNT}:stack/training-bootstrap/0", "cloudformation:DescribeStacks"),
    *asks(f"arn:aws:s3:::{STATE_BUCKET}", "s3:ListBucket"),
    # The lock is an object that each update writes and deletes.
    *asks(f"arn:aws:s3:::{STATE_BUCKET}/.pulumi/locks/x.json", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"),
    *asks(STATE_KEY, "kms:Encrypt", "kms:Decrypt", "kms:DescribeKey", aws__ResourceTag___Name="training-state"),
    *asks(STATE_KEY, "kms:GenerateDataKey", "kms:Decrypt", kms__ViaService="s3.us-west-2.amazonaws.com",
          aws__ResourceTag___Name="training-state"),
)  # fmt: skip
"""What Pulumi itself asks: ``login``, ``stack init --secrets-provider=awskms`` and the state of every update."""

PROVIDER: tuple[IamRequest, ...] = asks("*", "sts:GetCallerIdentity")
"""The requests of the provider before all else, and what ``aws eks get-token`` signs."""

CHECKS: tuple[IamRequest, ...] = (
    *asks(
        "*", "ecr:DescribeImages", "eks:DescribeAddonVersions", "eks:DescribeClusterVersions", "eks:ListClusters",
        "iam:SimulateCustomPolicy", "iam:SimulatePrincipalPolicy",
        "servicequotas:GetAWSDefaultServiceQuota", "servicequotas:GetServiceQuota",
    ),
    *asks(BOUNDARY, "iam:GetPolicy", "iam:GetPolicyVersion"),
    *asks(f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:ecr-pullthroughcache/x", "secretsmanager:DescribeSecret"),
    *asks("arn:aws:ssm:us-west-2::parameter/aws/service/eks/optimized-ami/1.35/x", "ssm:GetParameters"),
)  # fmt: skip
"""The requests of ``trn check``; without the right to one, a check says which."""

CLEANUP: tuple[IamRequest, ...] = (
    *asks(
        "*", "autoscaling:DescribeAutoScalingGroups", "elasticloadbalancing:DescribeLoadBalancers",
        "elasticloadbalancing:DescribeTags", "iam:ListInstanceProfiles", "iam:ListRoles", "tag:GetResources",
        "fsx:DescribeBackups", "ec2:DescribeInstances", "ec2:DescribeVolumes", "fsx:DescribeDataRepositoryTasks",
    ),
    *asks(f"arn:aws:fsx:us-west-2:{ACCOUNT}:task/*", "fsx:CreateDataRepositoryTask"),
    *asks(f"arn:aws:budgets::{ACCOUNT}:budget/*", "budgets:ViewBudget"),
)  # fmt: skip
"""The requests of ``trn orphans``, and of the export of a file system before a destroy."""
