"""What AWS asks of the role that deploys, by resource type: the requests of a creation, a change and a deletion.

Actions are those that the AWS provider calls for a type, with the actions that AWS' service authorization reference
lists as dependent on them; the resources and condition keys are those that IAM sees with each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Request:
    """One action on one resource; an API call that touches several is several of them."""

    action: str
    resource: str = "*"
    context: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """Condition keys that AWS sends with it, values as text."""
    principal: str = ""
    """ARN, or the name of a service; only resource policies look at it."""


@dataclass(frozen=True)
class Place:
    """Where a stack is made."""

    account: str
    region: str
    partition: str
    """``aws``."""
    prefix: str
    """How its names begin: ``trn-dev``."""
    boundary: str
    """ARN of the policy that bounds its roles; empty for none."""


def needed(types: frozenset[str], policies: Sequence[str], place: Place) -> tuple[Request, ...]:
    """What a program asks of the role that deploys it, each once.

    Args:
        types: types of its resources; those that are not known here ask nothing.
        policies: ARNs of the policies of AWS that it attaches to roles.
        place: where.
    """
    found = [request for type_ in sorted(types) for request in NEEDS.get(type_, ())]
    found += [request for arn in policies for request in attaches(arn)]
    # Not what the provider asks first: STS answers it to everyone, and a simulation would deny it all the same.
    once = {str(request): request for request in found}
    return filled(once.values(), place)


def filled(requests: Iterable[Request], place: Place) -> tuple[Request, ...]:
    """Requests of one place; those of roles without a boundary do not name one."""
    values = {name: getattr(place, name) for name in Place.__dataclass_fields__}

    def put(value: str | Sequence[str]) -> str | Sequence[str]:
        return value.format(**values) if isinstance(value, str) else [each.format(**values) for each in value]

    return tuple(
        replace(
            request,
            resource=request.resource.format(**values),
            context={key: full for key, value in request.context.items() if (full := put(value))},
        )
        for request in requests
    )


def asks(resource: str, *actions: str, **context: str | Sequence[str]) -> tuple[Request, ...]:
    """The actions on one resource. Condition keys are given with ``__`` for ``:`` and ``___`` for ``/``."""
    keys = {key.replace("___", "/").replace("__", ":"): value for key, value in context.items()}
    return tuple(Request(each, resource, {"aws:PrincipalAccount": "{account}", **keys}) for each in actions)


def attaches(policy: str) -> tuple[Request, ...]:
    """A policy of AWS attached to a role of the stack."""
    return asks(ROLE, "iam:AttachRolePolicy", iam__PolicyARN=policy, iam__PermissionsBoundary=BOUNDARY)


def passes(service: str) -> tuple[Request, ...]:
    """A role of the stack given to a service, which is read first."""
    return asks(ROLE, "iam:PassRole", iam__PassedToService=service) + asks(ROLE, "iam:GetRole")


def linked(service: str) -> tuple[Request, ...]:
    """The service's own role, which the account's first use of the service makes."""
    role = f"{_SERVICE_ROLE}/{service}/AWSServiceRole"
    return asks(role, "iam:CreateServiceLinkedRole", iam__AWSServiceName=service) + asks(role, "iam:GetRole")


def encrypts() -> tuple[Request, ...]:
    """A service that is told to use the stack's key, and gets a grant for it."""
    return asks(KEY, "kms:CreateGrant", "kms:DescribeKey", aws__ResourceTag___Name="{prefix}-key")


# Words in braces are fields of a Place.
BOUNDARY = "{boundary}"
ROLE = "arn:{partition}:iam::{account}:role/{prefix}-cluster-node-0a1b2c3"
KEY = "arn:{partition}:kms:{region}:{account}:key/22222222-2222-2222-2222-222222222222"
BUCKET = "arn:{partition}:s3:::{prefix}-fsx-data-bucket-0a1b2c3"
_EKS = "arn:{partition}:eks:{region}:{account}"
_CLUSTER = "{prefix}-cluster-eks-0a1b2c3"
_AUTO_SCALING = "arn:{partition}:autoscaling:{region}:{account}"
_GROUP = "{prefix}-cluster-cpu-nodes-0a1b2c3"
_QUEUE = "arn:{partition}:sqs:{region}:{account}:{prefix}-karpenter-interruptions-0a1b2c3"
_SERVICE_ROLE = "arn:{partition}:iam::{account}:role/aws-service-role"

_TAGS = asks("*", "ec2:CreateTags", "ec2:DeleteTags")
_RULES = asks("*", "ec2:DescribeSecurityGroupRules", "ec2:ModifySecurityGroupRules") + _TAGS

PROVIDER: tuple[Request, ...] = asks("*", "sts:GetCallerIdentity")
"""What the provider asks before all else, and what ``aws eks get-token`` signs."""

CHECKS: tuple[Request, ...] = asks(
    "*",
    *("ecr:DescribeImages", "eks:DescribeAddonVersions", "eks:DescribeClusterVersions", "eks:ListClusters"),
    *("iam:SimulatePrincipalPolicy", "pricing:GetProducts"),
    *("servicequotas:GetAWSDefaultServiceQuota", "servicequotas:GetServiceQuota"),
) + asks("arn:{partition}:ssm:{region}::parameter/aws/service/eks/optimized-ami/1.35/x", "ssm:GetParameters")
"""What ``trn check`` and ``trn prices`` ask besides; without one of these, a check says which."""

CLEANUP: tuple[Request, ...] = asks(
    "*",
    *("autoscaling:DescribeAutoScalingGroups", "elasticloadbalancing:DescribeLoadBalancers"),
    *("elasticloadbalancing:DescribeTags", "iam:ListRoles", "tag:GetResources", "fsx:DescribeBackups"),
    *("ec2:DescribeInstances", "ec2:DescribeVolumes", "fsx:DescribeDataRepositoryTasks"),
    *("fsx:CreateDataRepositoryTask", "fsx:UpdateDataRepositoryAssociation"),
)
"""What ``trn orphans`` asks besides, and what exporting a file system before a destroy takes."""

NEEDS: Mapping[str, tuple[Request, ...]] = {
    "aws:budgets/budget:Budget": asks(
        "arn:{partition}:budgets::{account}:budget/{prefix}-budget-1234567",
        *("budgets:ListTagsForResource", "budgets:ModifyBudget", "budgets:TagResource", "budgets:UntagResource"),
        "budgets:ViewBudget",
    ),
    "aws:autoscaling/tag:Tag": asks(
        _AUTO_SCALING + ":autoScalingGroup:0123:autoScalingGroupName/eks-" + _GROUP + "-4567",
        "autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags",
    ) + asks("*", "autoscaling:DescribeTags"),
    "aws:amp/workspace:Workspace": asks(
        "*", "aps:CreateWorkspace", "aps:DescribeWorkspace", "aps:DescribeWorkspaceConfiguration",
        "aps:DescribeLoggingConfiguration", "aps:UpdateWorkspaceAlias", "aps:DeleteWorkspace", "aps:TagResource",
        "aps:UntagResource", "aps:ListTagsForResource",
    ) + encrypts(),
    "aws:cloudwatch/eventRule:EventRule": asks(
        "arn:{partition}:events:{region}:{account}:rule/{prefix}-karpenter-spot-0a1b2c3",
        "events:PutRule", "events:DescribeRule", "events:DeleteRule", "events:TagResource", "events:UntagResource",
        "events:ListTagsForResource",
    ),
    "aws:cloudwatch/eventTarget:EventTarget": asks(
        "arn:{partition}:events:{region}:{account}:rule/{prefix}-karpenter-spot-0a1b2c3",
        "events:PutTargets", "events:ListTargetsByRule", "events:RemoveTargets",
    ),
    "aws:cloudwatch/logGroup:LogGroup": asks(
        "arn:{partition}:logs:{region}:{account}:log-group:/aws/eks/" + _CLUSTER + "/cluster",
        "logs:CreateLogGroup", "logs:PutRetentionPolicy", "logs:AssociateKmsKey", "logs:DisassociateKmsKey",
        "logs:DeleteLogGroup", "logs:ListTagsForResource", "logs:TagResource", "logs:UntagResource",
    ) + asks("*", "logs:DescribeLogGroups"),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": asks(
        "*", "ec2:DescribeSecurityGroups", "ec2:RevokeSecurityGroupIngress", "ec2:RevokeSecurityGroupEgress"
    ) + _TAGS,
    "aws:ec2/eip:Eip": asks(
        "*", "ec2:AllocateAddress", "ec2:DescribeAddresses", "ec2:DescribeAddressesAttribute",
        "ec2:DisassociateAddress", "ec2:ReleaseAddress",
    ) + _TAGS,
    "aws:ec2/flowLog:FlowLog": asks(
        "*", "ec2:CreateFlowLogs", "ec2:DescribeFlowLogs", "ec2:DeleteFlowLogs", "logs:CreateLogDelivery",
        "logs:DeleteLogDelivery",
    ) + _TAGS + passes("vpc-flow-logs.amazonaws.com"),
    "aws:ec2/internetGateway:InternetGateway": asks(
        "*", "ec2:CreateInternetGateway", "ec2:AttachInternetGateway", "ec2:DescribeInternetGateways",
        "ec2:DetachInternetGateway", "ec2:DeleteInternetGateway",
    ) + _TAGS,
    "aws:ec2/launchTemplate:LaunchTemplate": asks(
        "*", "ec2:CreateLaunchTemplate", "ec2:CreateLaunchTemplateVersion", "ec2:DescribeLaunchTemplates",
        "ec2:DescribeLaunchTemplateVersions", "ec2:ModifyLaunchTemplate", "ec2:DeleteLaunchTemplate",
    ) + _TAGS,
    "aws:ec2/natGateway:NatGateway": asks(
        "*", "ec2:CreateNatGateway", "ec2:DescribeNatGateways", "ec2:DeleteNatGateway"
    ) + _TAGS,
    "aws:ec2/placementGroup:PlacementGroup": asks(
        "*", "ec2:CreatePlacementGroup", "ec2:DescribePlacementGroups", "ec2:DeletePlacementGroup"
    ) + _TAGS,
    "aws:ec2/route:Route": asks(
        "*", "ec2:CreateRoute", "ec2:ReplaceRoute", "ec2:DescribeRouteTables", "ec2:DeleteRoute"
    ),
    "aws:ec2/routeTable:RouteTable": asks(
        "*", "ec2:CreateRouteTable", "ec2:DescribeRouteTables", "ec2:DeleteRouteTable"
    ) + _TAGS,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": asks(
        "*", "ec2:AssociateRouteTable", "ec2:ReplaceRouteTableAssociation", "ec2:DisassociateRouteTable"
    ),
    "aws:ec2/securityGroup:SecurityGroup": asks(
        "*", "ec2:CreateSecurityGroup", "ec2:DescribeSecurityGroups", "ec2:RevokeSecurityGroupEgress",
        "ec2:DescribeNetworkInterfaces", "ec2:DeleteSecurityGroup",
    ) + _TAGS,
    "aws:ec2/subnet:Subnet": asks(
        "*", "ec2:CreateSubnet", "ec2:DescribeSubnets", "ec2:ModifySubnetAttribute", "ec2:DeleteSubnet"
    ) + _TAGS,
    "aws:ec2/vpc:Vpc": asks(
        "*", "ec2:CreateVpc", "ec2:DescribeVpcs", "ec2:DescribeVpcAttribute", "ec2:DescribeNetworkAcls",
        "ec2:ModifyVpcAttribute", "ec2:DeleteVpc",
    ) + _TAGS,
    "aws:ec2/vpcEndpoint:VpcEndpoint": asks(
        "*", "ec2:CreateVpcEndpoint", "ec2:DescribeVpcEndpoints", "ec2:DescribePrefixLists", "ec2:ModifyVpcEndpoint",
        "ec2:DeleteVpcEndpoints",
    ) + _TAGS
    # Private DNS is a hosted zone of the service's, tied to the VPC.
    + asks("arn:{partition}:route53:::hostedzone/Z0123456789", "route53:AssociateVPCWithHostedZone"),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": asks(
        "arn:{partition}:ecr:{region}:{account}:repository/{prefix}/training",
        "ecr:PutLifecyclePolicy", "ecr:GetLifecyclePolicy", "ecr:DeleteLifecyclePolicy",
    ),
    "aws:ecr/repository:Repository": asks(
        "arn:{partition}:ecr:{region}:{account}:repository/{prefix}/training",
        "ecr:CreateRepository", "ecr:DescribeRepositories", "ecr:PutImageTagMutability",
        "ecr:PutImageScanningConfiguration", "ecr:DeleteRepository", "ecr:ListTagsForResource", "ecr:TagResource",
        "ecr:UntagResource",
    ) + encrypts() + asks(KEY, "kms:RetireGrant", aws__ResourceTag___Name="{prefix}-key"),
    "aws:eks/accessEntry:AccessEntry": asks(
        _EKS + ":cluster/" + _CLUSTER, "eks:CreateAccessEntry"
    ) + asks(
        _EKS + ":access-entry/" + _CLUSTER + "/role/{account}/ops/0123",
        "eks:DescribeAccessEntry", "eks:UpdateAccessEntry", "eks:DeleteAccessEntry", "eks:TagResource",
        "eks:UntagResource",
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": asks(
        _EKS + ":access-entry/" + _CLUSTER + "/role/{account}/ops/0123",
        "eks:AssociateAccessPolicy", "eks:ListAssociatedAccessPolicies", "eks:DisassociateAccessPolicy",
    ),
    "aws:eks/addon:Addon": asks(_EKS + ":cluster/" + _CLUSTER, "eks:CreateAddon") + asks(
        _EKS + ":addon/" + _CLUSTER + "/vpc-cni/0123",
        "eks:DescribeAddon", "eks:UpdateAddon", "eks:DescribeUpdate", "eks:DeleteAddon", "eks:TagResource",
        "eks:UntagResource",
    ),
    "aws:eks/cluster:Cluster": asks("*", "eks:CreateCluster") + asks(
        _EKS + ":cluster/" + _CLUSTER,
        "eks:DescribeCluster", "eks:UpdateClusterConfig", "eks:UpdateClusterVersion", "eks:DescribeUpdate",
        "eks:DeleteCluster", "eks:TagResource", "eks:UntagResource",
    ) + passes("eks.amazonaws.com") + linked("eks.amazonaws.com") + encrypts(),
    "aws:eks/nodeGroup:NodeGroup": asks(_EKS + ":cluster/" + _CLUSTER, "eks:CreateNodegroup") + asks(
        _EKS + ":nodegroup/" + _CLUSTER + "/" + _GROUP + "/0123",
        "eks:DescribeNodegroup", "eks:UpdateNodegroupConfig", "eks:UpdateNodegroupVersion", "eks:DescribeUpdate",
        "eks:DeleteNodegroup", "eks:TagResource", "eks:UntagResource",
    ) + passes("eks.amazonaws.com") + passes("ec2.amazonaws.com") + linked("eks-nodegroup.amazonaws.com")
    + linked("autoscaling.amazonaws.com") + linked("spot.amazonaws.com")
    # EKS tries the caller's launch template before it makes the group (EKS user guide, launch templates).
    + asks("*", "ec2:RunInstances", "ec2:CreateTags", "ec2:DescribeLaunchTemplateVersions", "ec2:DescribeSubnets")
    + asks(ROLE, "iam:ListAttachedRolePolicies"),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": asks(
        _EKS + ":cluster/" + _CLUSTER, "eks:CreatePodIdentityAssociation", "eks:ListPodIdentityAssociations"
    ) + asks(
        _EKS + ":podidentityassociation/" + _CLUSTER + "/a-0123",
        "eks:DescribePodIdentityAssociation", "eks:UpdatePodIdentityAssociation", "eks:DeletePodIdentityAssociation",
        "eks:TagResource", "eks:UntagResource",
    ) + passes("pods.eks.amazonaws.com"),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": asks(
        "*", "fsx:CreateDataRepositoryAssociation", "fsx:DescribeDataRepositoryAssociations",
        "fsx:UpdateDataRepositoryAssociation", "fsx:DeleteDataRepositoryAssociation", "fsx:TagResource",
        "fsx:UntagResource", "fsx:ListTagsForResource",
    ) + linked("s3.data-source.lustre.fsx.amazonaws.com") + asks(
        _SERVICE_ROLE + "/s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-0123",
        "iam:AttachRolePolicy", "iam:PutRolePolicy",
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": asks(
        # A deletion takes the last backup.
        "*", "fsx:CreateFileSystem", "fsx:DescribeFileSystems", "fsx:UpdateFileSystem", "fsx:DeleteFileSystem",
        "fsx:CreateBackup", "fsx:TagResource", "fsx:UntagResource", "fsx:ListTagsForResource",
        "ec2:GetSecurityGroupsForVpc", "ec2:DescribeNetworkInterfaces",
    ) + linked("fsx.amazonaws.com") + encrypts(),
    "aws:grafana/workspace:Workspace": asks(
        "*", "grafana:CreateWorkspace", "grafana:DescribeWorkspace", "grafana:DescribeWorkspaceAuthentication",
        "grafana:DescribeWorkspaceConfiguration", "grafana:UpdateWorkspace", "grafana:UpdateWorkspaceAuthentication",
        "grafana:DeleteWorkspace", "grafana:ListTagsForResource", "grafana:TagResource", "grafana:UntagResource",
        "sso:CreateManagedApplicationInstance", "sso:DescribeRegisteredRegions", "sso:GetManagedApplicationInstance",
    ) + passes("grafana.amazonaws.com"),
    "aws:iam/instanceProfile:InstanceProfile": asks(
        "arn:{partition}:iam::{account}:instance-profile/{prefix}-karpenter-node-0a1b2c3",
        "iam:CreateInstanceProfile", "iam:GetInstanceProfile", "iam:AddRoleToInstanceProfile",
        "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile", "iam:TagInstanceProfile",
        "iam:UntagInstanceProfile",
    ) + passes("ec2.amazonaws.com"),
    "aws:iam/role:Role": asks(
        ROLE, "iam:CreateRole", "iam:PutRolePermissionsBoundary", iam__PermissionsBoundary=BOUNDARY
    ) + asks(
        ROLE,
        "iam:GetRole", "iam:ListRolePolicies", "iam:ListAttachedRolePolicies", "iam:ListInstanceProfilesForRole",
        "iam:UpdateRole", "iam:UpdateRoleDescription", "iam:UpdateAssumeRolePolicy", "iam:DeleteRole", "iam:TagRole",
        "iam:UntagRole",
    ),
    "aws:iam/rolePolicy:RolePolicy": asks(
        ROLE, "iam:PutRolePolicy", "iam:DeleteRolePolicy", iam__PermissionsBoundary=BOUNDARY
    ) + asks(ROLE, "iam:GetRolePolicy"),
    # The policies' names come from the plans.
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": asks(
        ROLE, "iam:DetachRolePolicy", iam__PermissionsBoundary=BOUNDARY
    ) + asks(ROLE, "iam:ListAttachedRolePolicies"),
    "aws:kms/alias:Alias": asks(
        "arn:{partition}:kms:{region}:{account}:alias/{prefix}-key-alias-0a1b2c3",
        "kms:CreateAlias", "kms:UpdateAlias", "kms:DeleteAlias",
    ) + asks(
        KEY, "kms:CreateAlias", "kms:UpdateAlias", "kms:DeleteAlias", aws__ResourceTag___Name="{prefix}-key"
    ) + asks("*", "kms:ListAliases"),
    "aws:kms/key:Key": asks("*", "kms:CreateKey", "kms:TagResource", aws__RequestTag___Name="{prefix}-key") + asks(
        KEY,
        "kms:DescribeKey", "kms:GetKeyPolicy", "kms:GetKeyRotationStatus", "kms:EnableKeyRotation",
        "kms:UpdateKeyDescription", "kms:ListResourceTags", "kms:TagResource", "kms:UntagResource",
        "kms:ScheduleKeyDeletion",
        aws__ResourceTag___Name="{prefix}-key",
    ),
    "aws:kms/keyPolicy:KeyPolicy": asks(
        KEY, "kms:PutKeyPolicy", "kms:GetKeyPolicy", aws__ResourceTag___Name="{prefix}-key"
    ),
    "aws:s3/bucket:Bucket": asks(
        BUCKET,
        "s3:CreateBucket", "s3:ListBucket", "s3:DeleteBucket", "s3:GetAccelerateConfiguration", "s3:GetBucketAcl",
        "s3:GetBucketCORS", "s3:GetBucketLocation", "s3:GetBucketLogging", "s3:GetBucketObjectLockConfiguration",
        "s3:GetBucketPolicy", "s3:GetBucketRequestPayment", "s3:GetBucketTagging", "s3:GetBucketVersioning",
        "s3:GetBucketWebsite", "s3:GetEncryptionConfiguration", "s3:GetLifecycleConfiguration",
        "s3:GetReplicationConfiguration", "s3:ListTagsForResource", "s3:PutBucketTagging", "s3:TagResource",
        "s3:UntagResource",
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": asks(
        BUCKET, "s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration"
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": asks(
        BUCKET, "s3:GetBucketOwnershipControls", "s3:PutBucketOwnershipControls"
    ),
    "aws:s3/bucketPolicy:BucketPolicy": asks(
        BUCKET, "s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": asks(
        BUCKET, "s3:GetBucketPublicAccessBlock", "s3:PutBucketPublicAccessBlock"
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": asks(
        BUCKET, "s3:GetEncryptionConfiguration", "s3:PutEncryptionConfiguration"
    ),
    "aws:s3/bucketVersioning:BucketVersioning": asks(BUCKET, "s3:GetBucketVersioning", "s3:PutBucketVersioning"),
    "aws:sqs/queue:Queue": asks(
        _QUEUE,
        "sqs:CreateQueue", "sqs:GetQueueAttributes", "sqs:SetQueueAttributes", "sqs:GetQueueUrl", "sqs:DeleteQueue",
        "sqs:ListQueueTags", "sqs:TagQueue", "sqs:UntagQueue",
    ),
    "aws:sqs/queuePolicy:QueuePolicy": asks(_QUEUE, "sqs:GetQueueAttributes", "sqs:SetQueueAttributes"),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": asks(
        "*", "ec2:AuthorizeSecurityGroupEgress", "ec2:RevokeSecurityGroupEgress"
    ) + _RULES,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": asks(
        "*", "ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress"
    ) + _RULES,
}  # fmt: skip
