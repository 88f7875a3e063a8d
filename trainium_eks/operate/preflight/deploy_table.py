"""The AWS actions of each resource type: of its creation, its changes and its deletion.

The AWS provider calls these actions, and AWS' Service Authorization Reference lists some more as dependent on them. The
reference also says which resource and which tags IAM sees with each action.
"""

from collections.abc import Mapping

from trainium_eks.operate.preflight.deploy_actions import Ask, Tags, has, makes, named, reads

Asks = tuple[Ask, ...]

_EC2 = "arn:{partition}:ec2:{region}:{account}"
_EKS = "arn:{partition}:eks:{region}:{account}"
_FSX = "arn:{partition}:fsx:{region}:{account}"
_IAM = "arn:{partition}:iam::{account}"
_KMS = "arn:{partition}:kms:{region}:{account}"
_CLUSTER = f"{_EKS}:cluster/{{clusterName}}"
_ENTRY = f"{_EKS}:access-entry/{{clusterName}}/role/{{account}}/ops/0123"
_POD_IDENTITY = f"{_EKS}:podidentityassociation/{{clusterName}}/a-0123"
_BUCKET = "arn:{partition}:s3:::{bucket}"
_PROFILE = f"{_IAM}:instance-profile/{{name}}"
_REPOSITORY = "arn:{partition}:ecr:{region}:{account}:repository"
_SAGEMAKER = "arn:{partition}:sagemaker:{region}:{account}"
_TARGET = "arn:{partition}:application-autoscaling:{region}:{account}:scalable-target/0123"
_SERVICE_ROLE = f"{_IAM}:role/aws-service-role"
_BOUND = {"iam__PermissionsBoundary": "{boundary}"}
_FSX_TO_S3 = "s3.data-source.lustre.fsx.amazonaws.com"


def _ec2(kind: str, create: str, *owned: str) -> Asks:
    """Return the actions on an EC2 resource, which is created with tags and later recognised by them."""
    arn = f"{_EC2}:{kind}/{{id}}"
    return (
        *makes(arn, f"ec2:{create}"),
        *makes(arn, "ec2:CreateTags", ec2__CreateAction=create),
        *has(arn, "ec2:CreateTags", "ec2:DeleteTags", *owned),
    )


def _parent(kind: str, of: str, *actions: str) -> Asks:
    return has(f"{_EC2}:{kind}/{{parent}}", *actions, of=of)


def _passes(service: str, role: str) -> Asks:
    """Return the actions that give a role of the stack to a service."""
    return named(role, "iam:PassRole", iam__PassedToService=service) + named(role, "iam:GetRole")


def _linked(service: str) -> Asks:
    """Return the actions that make a service-linked role at the account's first use of the service."""
    role = f"{_SERVICE_ROLE}/{service}/AWSServiceRole"
    return named(role, "iam:CreateServiceLinkedRole", iam__AWSServiceName=service) + named(role, "iam:GetRole")


def _encrypts(*more: str) -> Asks:
    """Return the actions on the stack's key by which a service gets a grant for the key."""
    return has("{parent}", "kms:CreateGrant", "kms:DescribeKey", *more, of="key")


def _sagemaker(kind: str) -> tuple[str, ...]:
    """Return the actions by which a resource of SageMaker is read, tagged and deleted."""
    ends = (f"Describe{kind}", f"Delete{kind}", "ListTags", "AddTags", "DeleteTags")
    return tuple(f"sagemaker:{each}" for each in ends)


def _scaling(*actions: str) -> Asks:
    """Return the actions of Application Auto Scaling on an endpoint."""
    names = tuple(f"application-autoscaling:{each}" for each in actions)
    return (Ask(names, _TARGET, context={"application-autoscaling:service-namespace": "sagemaker"}),)


def _rule(way: str) -> Asks:
    """Return the actions on a security group and on its rule, which has separate tags."""
    return (
        *_parent(
            "security-group", "securityGroupId", f"ec2:AuthorizeSecurityGroup{way}", f"ec2:RevokeSecurityGroup{way}",
            "ec2:ModifySecurityGroupRules",
        ),
        *_ec2("security-group-rule", f"AuthorizeSecurityGroup{way}", "ec2:ModifySecurityGroupRules"),
        *reads("ec2:DescribeSecurityGroupRules"),
    )  # fmt: skip


_NETWORK: Mapping[str, Asks] = {
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": (
        # The group is there with its VPC, without tags, and gets them before it loses its rules.
        *makes(f"{_EC2}:security-group/{{id}}", "ec2:CreateTags"),
        *has(
            f"{_EC2}:security-group/{{id}}", "ec2:CreateTags", "ec2:DeleteTags", "ec2:RevokeSecurityGroupIngress",
            "ec2:RevokeSecurityGroupEgress",
        ),
        *reads("ec2:DescribeSecurityGroups"),
    ),
    "aws:ec2/eip:Eip": (
        *_ec2("elastic-ip", "AllocateAddress", "ec2:DisassociateAddress", "ec2:ReleaseAddress"),
        # The interface is the NAT gateway's, which AWS made.
        *named(f"{_EC2}:network-interface/eni-0123", "ec2:DisassociateAddress"),
        *reads("ec2:DescribeAddresses", "ec2:DescribeAddressesAttribute"),
    ),
    "aws:ec2/flowLog:FlowLog": (
        *_ec2("vpc-flow-log", "CreateFlowLogs", "ec2:DeleteFlowLogs"),
        *_parent("vpc", "vpcId", "ec2:CreateFlowLogs"),
        *reads("ec2:DescribeFlowLogs", "logs:CreateLogDelivery", "logs:DeleteLogDelivery"),
        *_passes("vpc-flow-logs.amazonaws.com", "{iamRoleArn}"),
    ),
    "aws:ec2/internetGateway:InternetGateway": (
        *_ec2(
            "internet-gateway", "CreateInternetGateway", "ec2:AttachInternetGateway", "ec2:DetachInternetGateway",
            "ec2:DeleteInternetGateway",
        ),
        *_parent("vpc", "vpcId", "ec2:AttachInternetGateway", "ec2:DetachInternetGateway"),
        *reads("ec2:DescribeInternetGateways"),
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": (
        *_ec2(
            "launch-template", "CreateLaunchTemplate", "ec2:CreateLaunchTemplateVersion", "ec2:ModifyLaunchTemplate",
            "ec2:DeleteLaunchTemplate",
        ),
        *reads("ec2:DescribeLaunchTemplates", "ec2:DescribeLaunchTemplateVersions"),
    ),
    "aws:ec2/natGateway:NatGateway": (
        *_ec2("natgateway", "CreateNatGateway", "ec2:DeleteNatGateway"),
        *_parent("elastic-ip", "allocationId", "ec2:CreateNatGateway"),
        *_parent("subnet", "subnetId", "ec2:CreateNatGateway"),
        *reads("ec2:DescribeNatGateways"),
    ),
    "aws:ec2/placementGroup:PlacementGroup": (
        *_ec2("placement-group", "CreatePlacementGroup", "ec2:DeletePlacementGroup"),
        *reads("ec2:DescribePlacementGroups"),
    ),
    "aws:ec2/route:Route": (
        *_parent("route-table", "routeTableId", "ec2:CreateRoute", "ec2:ReplaceRoute", "ec2:DeleteRoute"),
        *reads("ec2:DescribeRouteTables"),
    ),
    "aws:ec2/routeTable:RouteTable": (
        *_ec2("route-table", "CreateRouteTable", "ec2:DeleteRouteTable"),
        *_parent("vpc", "vpcId", "ec2:CreateRouteTable"),
        *reads("ec2:DescribeRouteTables"),
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": tuple(
        ask
        for kind, of in (("route-table", "routeTableId"), ("subnet", "subnetId"))
        for ask in _parent(
            kind, of, "ec2:AssociateRouteTable", "ec2:ReplaceRouteTableAssociation", "ec2:DisassociateRouteTable"
        )
    ),
    "aws:ec2/securityGroup:SecurityGroup": (
        *_ec2(
            "security-group", "CreateSecurityGroup", "ec2:RevokeSecurityGroupEgress", "ec2:DeleteSecurityGroup"
        ),
        *_parent("vpc", "vpcId", "ec2:CreateSecurityGroup"),
        *reads("ec2:DescribeSecurityGroups", "ec2:DescribeNetworkInterfaces"),
    ),
    "aws:ec2/subnet:Subnet": (
        *_ec2("subnet", "CreateSubnet", "ec2:ModifySubnetAttribute", "ec2:DeleteSubnet"),
        *_parent("vpc", "vpcId", "ec2:CreateSubnet"),
        *reads("ec2:DescribeSubnets"),
    ),
    "aws:ec2/vpc:Vpc": (
        *_ec2("vpc", "CreateVpc", "ec2:ModifyVpcAttribute", "ec2:DeleteVpc"),
        *reads("ec2:DescribeVpcs", "ec2:DescribeVpcAttribute", "ec2:DescribeNetworkAcls"),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": (
        *_ec2("vpc-endpoint", "CreateVpcEndpoint", "ec2:ModifyVpcEndpoint", "ec2:DeleteVpcEndpoints"),
        *_parent("vpc", "vpcId", "ec2:CreateVpcEndpoint"),
        *_parent("route-table", "routeTableIds", "ec2:CreateVpcEndpoint", "ec2:ModifyVpcEndpoint"),
        *_parent("security-group", "securityGroupIds", "ec2:CreateVpcEndpoint", "ec2:ModifyVpcEndpoint"),
        *_parent("subnet", "subnetIds", "ec2:CreateVpcEndpoint", "ec2:ModifyVpcEndpoint"),
        # Private DNS is a hosted zone of the service's, tied to the VPC.
        *named("arn:{partition}:route53:::hostedzone/Z0123456789", "route53:AssociateVPCWithHostedZone"),
        *reads("ec2:DescribeVpcEndpoints", "ec2:DescribePrefixLists"),
    ),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _rule("Egress"),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _rule("Ingress"),
}  # fmt: skip

_STORAGE: Mapping[str, Asks] = {
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": named(
        f"{_REPOSITORY}/{{repository}}", "ecr:PutLifecyclePolicy", "ecr:GetLifecyclePolicy", "ecr:DeleteLifecyclePolicy"
    ),
    "aws:ecr/repository:Repository": (
        *named(
            f"{_REPOSITORY}/{{name}}",
            "ecr:CreateRepository", "ecr:DescribeRepositories", "ecr:PutImageTagMutability",
            "ecr:PutImageScanningConfiguration", "ecr:DeleteRepository", "ecr:ListTagsForResource", "ecr:TagResource",
            "ecr:UntagResource",
        ),
        *_encrypts("kms:RetireGrant"),
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        *makes("{arn}", "fsx:CreateDataRepositoryAssociation", "fsx:TagResource"),
        *has(f"{_FSX}:file-system/{{parent}}", "fsx:CreateDataRepositoryAssociation", of="fileSystemId"),
        # Before a destroy, its files are exported.
        *has(f"{_FSX}:file-system/{{parent}}", "fsx:CreateDataRepositoryTask", of="fileSystemId"),
        *has(
            "{arn}", "fsx:UpdateDataRepositoryAssociation", "fsx:DeleteDataRepositoryAssociation", "fsx:TagResource",
            "fsx:UntagResource",
        ),
        *reads("fsx:DescribeDataRepositoryAssociations", "fsx:ListTagsForResource"),
        *_linked(_FSX_TO_S3),
        *named(
            f"{_SERVICE_ROLE}/{_FSX_TO_S3}/AWSServiceRoleForFSxS3Access_fs-0123",
            "iam:AttachRolePolicy", "iam:PutRolePolicy",
        ),
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        *makes("{arn}", "fsx:CreateFileSystem", "fsx:TagResource"),
        *has("{arn}", "fsx:UpdateFileSystem", "fsx:DeleteFileSystem", "fsx:TagResource", "fsx:UntagResource"),
        # A deletion takes the last backup.
        *makes(f"{_FSX}:backup/backup-0123", "fsx:DeleteFileSystem", "fsx:CreateBackup", "fsx:TagResource"),
        *has("{arn}", "fsx:CreateBackup"),
        *reads(
            "fsx:DescribeFileSystems", "fsx:ListTagsForResource", "ec2:GetSecurityGroupsForVpc",
            "ec2:DescribeNetworkInterfaces",
        ),
        *_linked("fsx.amazonaws.com"), *_encrypts(),
    ),
    "aws:s3/bucket:Bucket": named(
        _BUCKET,
        "s3:CreateBucket", "s3:ListBucket", "s3:DeleteBucket", "s3:GetAccelerateConfiguration", "s3:GetBucketAcl",
        "s3:GetBucketCORS", "s3:GetBucketLocation", "s3:GetBucketLogging", "s3:GetBucketObjectLockConfiguration",
        "s3:GetBucketPolicy", "s3:GetBucketRequestPayment", "s3:GetBucketTagging", "s3:GetBucketVersioning",
        "s3:GetBucketWebsite", "s3:GetEncryptionConfiguration", "s3:GetLifecycleConfiguration",
        "s3:GetReplicationConfiguration", "s3:ListTagsForResource", "s3:PutBucketTagging", "s3:TagResource",
        "s3:UntagResource",
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": named(
        _BUCKET, "s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration"
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": named(
        _BUCKET, "s3:GetBucketOwnershipControls", "s3:PutBucketOwnershipControls"
    ),
    "aws:s3/bucketPolicy:BucketPolicy": named(
        _BUCKET, "s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": named(
        _BUCKET, "s3:GetBucketPublicAccessBlock", "s3:PutBucketPublicAccessBlock"
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": named(
        _BUCKET, "s3:GetEncryptionConfiguration", "s3:PutEncryptionConfiguration"
    ),
    "aws:s3/bucketVersioning:BucketVersioning": named(_BUCKET, "s3:GetBucketVersioning", "s3:PutBucketVersioning"),
}  # fmt: skip

_CLUSTERS: Mapping[str, Asks] = {
    "aws:autoscaling/tag:Tag": (
        *named(
            "arn:{partition}:autoscaling:{region}:{account}:autoScalingGroup:0123:autoScalingGroupName/"
            "{autoscalingGroupName}",
            "autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags",
        ),
        *reads("autoscaling:DescribeTags"),
    ),
    "aws:eks/accessEntry:AccessEntry": (
        *named(_CLUSTER, "eks:CreateAccessEntry"),
        *named(
            _ENTRY, "eks:DescribeAccessEntry", "eks:UpdateAccessEntry", "eks:DeleteAccessEntry", "eks:TagResource",
            "eks:UntagResource",
        ),
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": named(
        _ENTRY, "eks:AssociateAccessPolicy", "eks:ListAssociatedAccessPolicies", "eks:DisassociateAccessPolicy"
    ),
    "aws:eks/addon:Addon": (
        *named(_CLUSTER, "eks:CreateAddon"),
        *named(
            "{arn}", "eks:DescribeAddon", "eks:UpdateAddon", "eks:DescribeUpdate", "eks:DeleteAddon", "eks:TagResource",
            "eks:UntagResource",
        ),
    ),
    "aws:eks/cluster:Cluster": (
        # EKS shows IAM no resource with it.
        *reads("eks:CreateCluster"),
        *named(
            "{arn}", "eks:DescribeCluster", "eks:UpdateClusterConfig", "eks:UpdateClusterVersion", "eks:DescribeUpdate",
            "eks:DeleteCluster", "eks:TagResource", "eks:UntagResource",
        ),
        *_passes("eks.amazonaws.com", "{roleArn}"), *_linked("eks.amazonaws.com"), *_encrypts(),
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        *named(_CLUSTER, "eks:CreateNodegroup"),
        *named(
            "{arn}", "eks:DescribeNodegroup", "eks:UpdateNodegroupConfig", "eks:UpdateNodegroupVersion",
            "eks:DescribeUpdate", "eks:DeleteNodegroup", "eks:TagResource", "eks:UntagResource",
        ),
        *_passes("eks.amazonaws.com", "{nodeRoleArn}"), *_passes("ec2.amazonaws.com", "{nodeRoleArn}"),
        *_linked("eks-nodegroup.amazonaws.com"), *_linked("autoscaling.amazonaws.com"),
        *_linked("spot.amazonaws.com"),
        # EKS tries the caller's launch template before it makes the group (EKS user guide, launch templates).
        *reads("ec2:RunInstances", "ec2:DescribeLaunchTemplateVersions", "ec2:DescribeSubnets"),
        *makes(f"{_EC2}:instance/i-0123", "ec2:CreateTags", ec2__CreateAction="RunInstances"),
        *named("{nodeRoleArn}", "iam:ListAttachedRolePolicies"),
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        *named(_CLUSTER, "eks:CreatePodIdentityAssociation", "eks:ListPodIdentityAssociations"),
        *named(
            _POD_IDENTITY, "eks:DescribePodIdentityAssociation", "eks:UpdatePodIdentityAssociation",
            "eks:DeletePodIdentityAssociation", "eks:TagResource", "eks:UntagResource",
        ),
        *_passes("pods.eks.amazonaws.com", "{roleArn}"),
    ),
}  # fmt: skip

_IDENTITY: Mapping[str, Asks] = {
    "aws:iam/instanceProfile:InstanceProfile": (
        *named(
            _PROFILE,
            "iam:CreateInstanceProfile", "iam:GetInstanceProfile", "iam:AddRoleToInstanceProfile",
            "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile", "iam:TagInstanceProfile",
            "iam:UntagInstanceProfile",
        ),
        *_passes("ec2.amazonaws.com", f"{_IAM}:role/{{role}}"),
    ),
    "aws:iam/role:Role": (
        *named("{arn}", "iam:CreateRole", "iam:PutRolePermissionsBoundary", **_BOUND),
        *named(
            "{arn}",
            "iam:GetRole", "iam:ListRolePolicies", "iam:ListAttachedRolePolicies", "iam:ListInstanceProfilesForRole",
            "iam:UpdateRole", "iam:UpdateRoleDescription", "iam:UpdateAssumeRolePolicy", "iam:DeleteRole",
            "iam:TagRole", "iam:UntagRole",
        ),
    ),
    "aws:iam/rolePolicy:RolePolicy": (
        *named(f"{_IAM}:role/{{role}}", "iam:PutRolePolicy", "iam:DeleteRolePolicy", **_BOUND),
        *named(f"{_IAM}:role/{{role}}", "iam:GetRolePolicy"),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": (
        *named(f"{_IAM}:role/{{role}}", "iam:AttachRolePolicy", iam__PolicyARN="{policyArn}", **_BOUND),
        *named(f"{_IAM}:role/{{role}}", "iam:DetachRolePolicy", **_BOUND),
        *named(f"{_IAM}:role/{{role}}", "iam:ListAttachedRolePolicies"),
    ),
    "aws:kms/alias:Alias": (
        *named(f"{_KMS}:{{name}}", "kms:CreateAlias", "kms:UpdateAlias", "kms:DeleteAlias"),
        *has(f"{_KMS}:key/{{parent}}", "kms:CreateAlias", "kms:UpdateAlias", "kms:DeleteAlias", of="targetKeyId"),
        *reads("kms:ListAliases"),
    ),
    "aws:kms/key:Key": (
        Ask(("kms:CreateKey", "kms:TagResource"), "*", Tags.REQUEST),
        *has(
            "{arn}",
            "kms:DescribeKey", "kms:GetKeyPolicy", "kms:GetKeyRotationStatus", "kms:EnableKeyRotation",
            "kms:UpdateKeyDescription", "kms:ListResourceTags", "kms:TagResource", "kms:UntagResource",
            "kms:ScheduleKeyDeletion",
        ),
    ),
    "aws:kms/keyPolicy:KeyPolicy": has(
        f"{_KMS}:key/{{parent}}", "kms:PutKeyPolicy", "kms:GetKeyPolicy", of="keyId"
    ),
}  # fmt: skip

_OPERATIONS: Mapping[str, Asks] = {
    "aws:amp/workspace:Workspace": (
        Ask(("aps:CreateWorkspace",), "*", Tags.REQUEST),
        *makes("{arn}", "aps:TagResource"),
        *has(
            "{arn}", "aps:DescribeWorkspace", "aps:DescribeWorkspaceConfiguration", "aps:DescribeLoggingConfiguration",
            "aps:UpdateWorkspaceAlias", "aps:DeleteWorkspace", "aps:TagResource", "aps:UntagResource",
            "aps:ListTagsForResource",
        ),
        *_encrypts(),
    ),
    "aws:appautoscaling/policy:Policy": (
        *_scaling("PutScalingPolicy", "DeleteScalingPolicy"),
        *reads("application-autoscaling:DescribeScalingPolicies"),
    ),
    "aws:appautoscaling/target:Target": (
        *_scaling("RegisterScalableTarget", "DeregisterScalableTarget"),
        *named(
            _TARGET, "application-autoscaling:ListTagsForResource", "application-autoscaling:TagResource",
            "application-autoscaling:UntagResource",
        ),
        *reads("application-autoscaling:DescribeScalableTargets"),
        *named(
            f"{_SAGEMAKER}:{{resourceId}}",
            "sagemaker:DescribeEndpoint", "sagemaker:UpdateEndpointWeightsAndCapacities",
        ),
        *_linked("sagemaker.application-autoscaling.amazonaws.com"),
    ),
    "aws:budgets/budget:Budget": named(
        "{arn}", "budgets:ListTagsForResource", "budgets:ModifyBudget", "budgets:TagResource", "budgets:UntagResource",
        "budgets:ViewBudget",
    ),
    "aws:cloudwatch/eventRule:EventRule": named(
        "{arn}", "events:PutRule", "events:DescribeRule", "events:DeleteRule", "events:TagResource",
        "events:UntagResource", "events:ListTagsForResource",
    ),
    "aws:cloudwatch/eventTarget:EventTarget": named(
        "arn:{partition}:events:{region}:{account}:rule/{rule}",
        "events:PutTargets", "events:ListTargetsByRule", "events:RemoveTargets",
    ),
    "aws:cloudwatch/logGroup:LogGroup": (
        *named(
            "{arn}",
            "logs:CreateLogGroup", "logs:PutRetentionPolicy", "logs:AssociateKmsKey", "logs:DisassociateKmsKey",
            "logs:DeleteLogGroup", "logs:ListTagsForResource", "logs:TagResource", "logs:UntagResource",
        ),
        *reads("logs:DescribeLogGroups"),
    ),
    "aws:cloudwatch/metricAlarm:MetricAlarm": named(
        "{arn}",
        "cloudwatch:PutMetricAlarm", "cloudwatch:DescribeAlarms", "cloudwatch:DeleteAlarms",
        "cloudwatch:ListTagsForResource", "cloudwatch:TagResource", "cloudwatch:UntagResource",
    ),
    "aws:grafana/workspace:Workspace": (
        Ask(("grafana:CreateWorkspace",), "*", Tags.REQUEST),
        *makes("{arn}", "grafana:TagResource"),
        *has(
            "{arn}", "grafana:DescribeWorkspace", "grafana:DescribeWorkspaceAuthentication",
            "grafana:DescribeWorkspaceConfiguration", "grafana:UpdateWorkspace",
            "grafana:UpdateWorkspaceAuthentication", "grafana:DeleteWorkspace", "grafana:ListTagsForResource",
            "grafana:TagResource", "grafana:UntagResource",
        ),
        # A workspace is an application of IAM Identity Center, which is the organisation's.
        *reads(
            "organizations:DescribeOrganization", "sso:CreateManagedApplicationInstance",
            "sso:DeleteManagedApplicationInstance", "sso:DescribeRegisteredRegions",
            "sso:GetManagedApplicationInstance", "sso:GetSharedSsoConfiguration",
        ),
        *_passes("grafana.amazonaws.com", "{roleArn}"), *_linked("grafana.amazonaws.com"),
    ),
    "aws:sagemaker/endpoint:Endpoint": (
        *named(
            f"{_SAGEMAKER}:endpoint-config/{{endpointConfigName}}",
            "sagemaker:CreateEndpoint", "sagemaker:UpdateEndpoint",
        ),
        *named("{arn}", "sagemaker:CreateEndpoint", "sagemaker:UpdateEndpoint", *_sagemaker("Endpoint")),
    ),
    "aws:sagemaker/endpointConfiguration:EndpointConfiguration": (
        *named("{arn}", "sagemaker:CreateEndpointConfig", *_sagemaker("EndpointConfig")),
        *_encrypts(),
    ),
    "aws:sagemaker/model:Model": (
        *named("{arn}", "sagemaker:CreateModel", *_sagemaker("Model")),
        *_passes("sagemaker.amazonaws.com", "{executionRoleArn}"),
    ),
    "aws:sqs/queue:Queue": named(
        "{arn}",
        "sqs:CreateQueue", "sqs:GetQueueAttributes", "sqs:SetQueueAttributes", "sqs:GetQueueUrl", "sqs:DeleteQueue",
        "sqs:ListQueueTags", "sqs:TagQueue", "sqs:UntagQueue",
    ),
    "aws:sqs/queuePolicy:QueuePolicy": has(
        "arn:{partition}:sqs:{region}:{account}:{end}",
        "sqs:GetQueueAttributes", "sqs:SetQueueAttributes", of="queueUrl",
    ),
}  # fmt: skip

NEEDS: Mapping[str, Asks] = {**_NETWORK, **_STORAGE, **_CLUSTERS, **_IDENTITY, **_OPERATIONS}
"""Resource type to its actions; a type of another service has no action known here."""
