"""What the providers cannot change in place, and what holds data.

The AWS table is the ForceNew list of the Terraform AWS provider's schemas (which pulumi-aws bridges) for the types
this library uses; the Kubernetes table is that of pulumi-kubernetes' own diff. Paths are camelCase, as the inputs
are; a path covers all that is under it.
"""

from collections.abc import Mapping
from typing import Any

from trainium_eks.graph.graph import Resource

AWS: Mapping[str, tuple[str, ...]] = {
    "aws:ec2/vpc:Vpc": ("cidrBlock", "instanceTenancy", "ipv4IpamPoolId", "ipv4NetmaskLength"),
    "aws:ec2/subnet:Subnet": (
        "vpcId",
        "cidrBlock",
        "availabilityZone",
        "availabilityZoneId",
        "ipv6Native",
        "outpostArn",
    ),
    "aws:ec2/eip:Eip": ("domain", "publicIpv4Pool", "address", "networkBorderGroup"),
    "aws:ec2/natGateway:NatGateway": ("subnetId", "allocationId", "connectivityType", "privateIp", "vpcId"),
    "aws:ec2/routeTable:RouteTable": ("vpcId",),
    "aws:ec2/route:Route": (
        "routeTableId",
        "destinationCidrBlock",
        "destinationIpv6CidrBlock",
        "destinationPrefixListId",
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": ("subnetId", "gatewayId"),
    "aws:ec2/vpcEndpoint:VpcEndpoint": ("vpcId", "serviceName", "serviceRegion", "vpcEndpointType"),
    "aws:ec2/flowLog:FlowLog": (
        "vpcId",
        "subnetId",
        "eniId",
        "iamRoleArn",
        "logDestination",
        "logDestinationType",
        "logFormat",
        "maxAggregationInterval",
        "trafficType",
        "destinationOptions",
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": ("vpcId",),
    "aws:ec2/securityGroup:SecurityGroup": ("name", "namePrefix", "description", "vpcId"),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": ("securityGroupId",),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": ("securityGroupId",),
    "aws:ec2/launchTemplate:LaunchTemplate": ("name", "namePrefix"),
    "aws:ec2/placementGroup:PlacementGroup": ("name", "strategy", "partitionCount", "spreadLevel"),
    "aws:eks/cluster:Cluster": (
        "name",
        "roleArn",
        "accessConfig.bootstrapClusterCreatorAdminPermissions",
        "bootstrapSelfManagedAddons",
        "kubernetesNetworkConfig.ipFamily",
        "kubernetesNetworkConfig.serviceIpv4Cidr",
        "outpostConfig",
    ),
    "aws:eks/addon:Addon": ("clusterName", "addonName"),
    "aws:eks/nodeGroup:NodeGroup": (
        "amiType",
        "capacityType",
        "clusterName",
        "diskSize",
        "instanceTypes",
        "launchTemplate.id",
        "launchTemplate.name",
        "nodeGroupName",
        "nodeGroupNamePrefix",
        "nodeRoleArn",
        "remoteAccess",
        "subnetIds",
    ),
    "aws:eks/accessEntry:AccessEntry": ("clusterName", "principalArn", "type"),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        "clusterName",
        "principalArn",
        "policyArn",
        "accessScope",
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": ("clusterName", "namespace", "serviceAccount"),
    "aws:kms/key:Key": ("customerMasterKeySpec", "customKeyStoreId", "keyUsage", "multiRegion", "xksKeyId"),
    "aws:kms/alias:Alias": ("name", "namePrefix"),
    "aws:cloudwatch/logGroup:LogGroup": ("name", "namePrefix", "logGroupClass"),
    "aws:iam/role:Role": ("name", "namePrefix", "path"),
    "aws:iam/policy:Policy": ("name", "namePrefix", "path", "description"),
    "aws:iam/rolePolicy:RolePolicy": ("name", "namePrefix", "role"),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ("role", "policyArn"),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        "backupId",
        "copyTagsToBackups",
        "deploymentType",
        "driveCacheType",
        "efaEnabled",
        "exportPath",
        "fileSystemTypeVersion",
        "importPath",
        "importedFileChunkSize",
        "kmsKeyId",
        "securityGroupIds",
        "storageType",
        "subnetIds",
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        "dataRepositoryPath",
        "fileSystemId",
        "fileSystemPath",
    ),
    "aws:s3/bucket:Bucket": ("bucket", "bucketPrefix", "objectLockEnabled"),
    "aws:s3/bucketVersioning:BucketVersioning": ("bucket", "expectedBucketOwner"),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": ("bucket",),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": ("bucket",),
    "aws:s3/bucketPolicy:BucketPolicy": ("bucket",),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": ("bucket",),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": ("bucket",),
    "aws:ecr/repository:Repository": ("name", "encryptionConfigurations"),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": ("repository", "policy"),
    "aws:ecr/repositoryPolicy:RepositoryPolicy": ("repository",),
    "pulumi:providers:aws": ("region",),
}
"""AWS type to the paths whose change replaces the resource."""

EVERY_AWS_RESOURCE = ("region",)
"""Since version 6 of the Terraform provider each regional resource has its own region, and moving is replacing."""

_SELECTOR = ("spec.selector",)
_POD_TEMPLATE_JOB = ("spec.completions", "spec.parallelism", "spec.selector", "spec.template")

KUBERNETES: Mapping[str, tuple[str, ...]] = {
    "apps/v1:DaemonSet": _SELECTOR,
    "apps/v1:Deployment": _SELECTOR,
    "apps/v1:StatefulSet": (
        "spec.podManagementPolicy",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "batch/v1:Job": _POD_TEMPLATE_JOB,
    "core/v1:ConfigMap": ("data", "binaryData"),
    "core/v1:PersistentVolume": ("spec.csi", "spec.nfs", "spec.hostPath", "spec.local"),
    "core/v1:PersistentVolumeClaim": ("spec",),
    "core/v1:ResourceQuota": ("spec.scopes",),
    "core/v1:Secret": ("type", "stringData", "data"),
    "core/v1:Service": ("spec.clusterIP",),
    "helm.sh/v3:Release": ("name", "namespace"),
    "rbac.authorization.k8s.io/v1:ClusterRoleBinding": ("roleRef",),
    "rbac.authorization.k8s.io/v1:RoleBinding": ("roleRef",),
    "storage.k8s.io/v1:StorageClass": ("parameters", "provisioner"),
}
"""Kubernetes type (without ``kubernetes:``) to the paths whose change replaces the object."""

EVERY_KUBERNETES_OBJECT = ("metadata.name", "metadata.namespace")

CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"

ROLLS_NODES = ("launchTemplate.version", "releaseVersion", "version")
"""Paths of a node group whose change keeps the group and replaces its nodes: EKS ``UpdateNodegroupVersion``."""

STATEFUL: Mapping[str, str] = {
    "aws:fsx/lustreFileSystem:LustreFileSystem": "its files",
    "aws:s3/bucket:Bucket": "its objects",
    "aws:kms/key:Key": "the means to read what it encrypts",
    "kubernetes:core/v1:PersistentVolume": "its tie to the files",
    "kubernetes:core/v1:PersistentVolumeClaim": "its tie to the files",
    "aws:ecr/repository:Repository": "its images",
    "aws:cloudwatch/logGroup:LogGroup": "its logs",
    "aws:eks/cluster:Cluster": "everything in Kubernetes",
    NODE_GROUP: "what runs on its nodes",
    "aws:ec2/vpc:Vpc": "everything in it",
    "aws:ec2/subnet:Subnet": "everything in it",
}
"""Types that hold data, or that everything else stands on, worst first, and what goes with each.
Node groups count only while they have nodes: see :func:`is_stateful`."""


def is_stateful(resource: Resource) -> bool:
    """Whether losing the resource loses data or running work: a node group counts while it has nodes."""
    if resource.type == NODE_GROUP:
        return bool(resource.inputs.get("scalingConfig", {}).get("desiredSize"))
    return resource.type in STATEFUL


def replacing_paths(resource: Resource) -> tuple[str, ...]:
    """The paths whose change replaces this resource, those of ``replace_on_changes`` included."""
    kind = resource.type.removeprefix("kubernetes:")
    if resource.type == "pulumi:providers:kubernetes":
        # Without an identifier the provider cannot know that another kubeconfig is the same cluster.
        table: tuple[str, ...] = ("clusterIdentifier",) if "clusterIdentifier" in resource.inputs else ("kubeconfig",)
    elif kind != resource.type:
        table = KUBERNETES.get(kind, ()) + EVERY_KUBERNETES_OBJECT
    else:
        table = AWS.get(resource.type, ()) + (EVERY_AWS_RESOURCE if resource.type.startswith("aws:") else ())
    return table + resource.options.replace_on_changes


def replacing_values(resource: Resource) -> dict[str, Any]:
    """The values at the paths whose change replaces the resource, those that are set."""
    found = {}
    for path in sorted(set(replacing_paths(resource))):
        value: Any = resource.inputs
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            found[path] = value
    return found


def replaces(resource: Resource, path: str, before: object, after: object) -> bool:
    """Whether changing ``path`` from one value to the other replaces the resource.

    Args:
        resource: as it is afterwards.
        path: camelCase, with list indices: ``launchTemplate.id``, ``subnetIds[0]``.
        before: the value so far; None when there was none.
        after: the value to be; None when it is removed.
    """
    if resource.type == "aws:fsx/lustreFileSystem:LustreFileSystem" and path == "storageCapacity":
        return isinstance(before, int) and isinstance(after, int) and after < before  # FSx grows in place only
    if resource.type == "aws:eks/cluster:Cluster" and path.startswith("encryptionConfig") and after is None:
        return True  # envelope encryption cannot be taken off
    return any(covers(under, path) for under in replacing_paths(resource))


def covers(under: str, path: str) -> bool:
    """Whether ``path`` is ``under`` or inside it, or is an object that holds it and changes as a whole."""
    return path == under or path.startswith((f"{under}.", f"{under}[")) or under.startswith(f"{path}.")
