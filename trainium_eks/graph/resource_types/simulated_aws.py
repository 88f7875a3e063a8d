"""What AWS would answer, made up: for each resource type, its id and computed properties."""

import base64
import uuid
from collections.abc import Mapping

from trainium_eks.graph.recording.backend import ACCOUNT, TIME, Answer, Answerer, Call
from trainium_eks.model import regions

_CERTIFICATE = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nsimulated\n-----END CERTIFICATE-----\n").decode()


def _vpc(call: Call) -> Answer:
    identity = call.sim("vpc")
    return identity, {
        "arn": call.arn("ec2", f"vpc/{identity}"),
        "ownerId": ACCOUNT,
        "mainRouteTableId": call.sim("rtb"),
        "defaultRouteTableId": call.sim("rtb"),
        "defaultSecurityGroupId": call.sim("sg"),
        "defaultNetworkAclId": call.sim("acl"),
        "dhcpOptionsId": call.sim("dopt"),
        "instanceTenancy": call.inputs.get("instanceTenancy", "default"),
    }


def _subnet(call: Call) -> Answer:
    identity = call.sim("subnet")
    # Which letter a zone id has differs between accounts, so no simulated answer may look like a real one.
    zone = call.inputs.get("availabilityZone") or f"{call.region}-sim-{call.text('availabilityZoneId')}"
    return identity, {"arn": call.arn("ec2", f"subnet/{identity}"), "ownerId": ACCOUNT, "availabilityZone": zone}


def _eip(call: Call) -> Answer:
    identity = call.sim("eipalloc")
    # 192.0.2.0/24 is set aside for documentation (RFC 5737).
    address = f"192.0.2.{int(call.digest, 16) % 254 + 1}"
    arn = call.arn("ec2", f"elastic-ip/{identity}")
    return identity, {"allocationId": identity, "publicIp": address, "arn": arn, "domain": "vpc"}


def _nat_gateway(call: Call) -> Answer:
    address = f"192.0.2.{int(call.digest, 16) % 254 + 1}"
    return call.sim("nat"), {
        "networkInterfaceId": call.sim("eni"),
        "publicIp": address,
        "associationId": "eipassoc-sim",
    }


def _vpc_endpoint(call: Call) -> Answer:
    identity = call.sim("vpce")
    gateway = call.inputs.get("vpcEndpointType", "Gateway") == "Gateway"
    service = call.text("serviceName").rsplit(".", 1)[-1]
    return identity, {
        "arn": call.arn("ec2", f"vpc-endpoint/{identity}"),
        "ownerId": ACCOUNT,
        "state": "available",
        "prefixListId": call.sim("pl") if gateway else "",
        "networkInterfaceIds": [] if gateway else [call.sim("eni")],
        "dnsEntries": [] if gateway else [{"dnsName": f"{service}.{call.region}.sim", "hostedZoneId": "ZSIM"}],
    }


def _default_security_group(call: Call) -> Answer:
    identity = call.text("vpcId").replace("vpc-", "sg-", 1) or call.sim("sg")
    return identity, {
        "arn": call.arn("ec2", f"security-group/{identity}"),
        "ownerId": ACCOUNT,
        "name": "default",
        "description": "default VPC security group",
    }


def _security_group(call: Call) -> Answer:
    identity = call.sim("sg")
    return identity, {
        "arn": call.arn("ec2", f"security-group/{identity}"),
        "ownerId": ACCOUNT,
        "name": call.name(),
        "description": call.inputs.get("description", "Managed by Pulumi"),
    }


def _security_group_rule(call: Call) -> Answer:
    identity = call.sim("sgr")
    return identity, {"arn": call.arn("ec2", f"security-group-rule/{identity}"), "securityGroupRuleId": identity}


def _launch_template(call: Call) -> Answer:
    identity = call.sim("lt")
    arn = call.arn("ec2", f"launch-template/{identity}")
    return identity, {"arn": arn, "name": call.name(), "latestVersion": 1, "defaultVersion": 1}


def _placement_group(call: Call) -> Answer:
    name = call.name()
    arn = call.arn("ec2", f"placement-group/{name}")
    return name, {"arn": arn, "name": name, "placementGroupId": call.sim("pg")}


def _eks_cluster(call: Call) -> Answer:
    name, unique = call.name(), f"SIM{call.digest.upper()}"
    suffix = regions.dns_suffix(call.region)
    vpc_config = {
        **call.mapping("vpcConfig"),
        "clusterSecurityGroupId": call.sim("sg"),
        "vpcId": f"vpc-sim-{call.digest}",
    }
    return name, {
        "arn": call.arn("eks", f"cluster/{name}"),
        "name": name,
        "endpoint": f"https://{unique}.gr7.{call.region}.eks.{suffix}",
        "certificateAuthority": {"data": _CERTIFICATE},
        "identities": [{"oidcs": [{"issuer": f"https://oidc.eks.{call.region}.{suffix}/id/{unique}"}]}],
        "vpcConfig": vpc_config,
        "platformVersion": "eks.sim",
        "status": "ACTIVE",
        "createdAt": TIME,
    }


def _addon(call: Call) -> Answer:
    cluster, addon = call.text("clusterName"), call.text("addonName")
    arn = call.arn("eks", f"addon/{cluster}/{addon}/sim-{call.digest}")
    return f"{cluster}:{addon}", {"arn": arn, "createdAt": TIME, "modifiedAt": TIME}


def _node_group(call: Call) -> Answer:
    cluster, name = call.text("clusterName"), call.name("nodeGroupName")
    return f"{cluster}:{name}", {
        "arn": call.arn("eks", f"nodegroup/{cluster}/{name}/sim-{call.digest}"),
        "nodeGroupName": name,
        "status": "ACTIVE",
        "resources": [{"autoscalingGroups": [{"name": f"eks-{name}-sim-{call.digest}"}]}],
    }


def _access_entry(call: Call) -> Answer:
    cluster, principal = call.text("clusterName"), call.text("principalArn")
    return f"{cluster}:{principal}", {
        "accessEntryArn": call.arn("eks", f"access-entry/{cluster}/sim/{call.digest}"),
        "type": call.inputs.get("type", "STANDARD"),
        "userName": call.inputs.get("userName", principal),
        "createdAt": TIME,
        "modifiedAt": TIME,
    }


def _access_policy_association(call: Call) -> Answer:
    identity = "#".join(call.text(field) for field in ("clusterName", "principalArn", "policyArn"))
    return identity, {"associatedAt": TIME, "modifiedAt": TIME}


def _pod_identity_association(call: Call) -> Answer:
    identity = call.sim("a")
    arn = call.arn("eks", f"podidentityassociation/{call.text('clusterName')}/{identity}")
    return identity, {"associationId": identity, "associationArn": arn}


def _kms_key(call: Call) -> Answer:
    identity = f"sim-{uuid.uuid5(uuid.NAMESPACE_URL, call.registration.urn)}"
    return identity, {"keyId": identity, "arn": call.arn("kms", f"key/{identity}")}


def _kms_alias(call: Call) -> Answer:
    name = call.inputs.get("name") or f"alias/{call.name()}"
    return name, {
        "name": name,
        "arn": call.arn("kms", name),
        "targetKeyArn": call.arn("kms", f"key/{call.text('targetKeyId').rsplit('/', 1)[-1]}"),
    }


def _log_group(call: Call) -> Answer:
    name = call.name()
    return name, {"name": name, "arn": call.arn("logs", f"log-group:{name}")}


def _role(call: Call) -> Answer:
    name, path = call.name(), call.inputs.get("path") or "/"
    return name, {
        "name": name,
        "arn": call.arn("iam", f"role{path}{name}", region=""),
        "uniqueId": f"AROASIM{call.digest.upper()}",
        "createDate": TIME,
    }


def _policy(call: Call) -> Answer:
    name, path = call.name(), call.inputs.get("path") or "/"
    arn = call.arn("iam", f"policy{path}{name}", region="")
    return arn, {"name": name, "arn": arn, "policyId": f"ANPASIM{call.digest.upper()}", "attachmentCount": 0}


def _role_policy(call: Call) -> Answer:
    name = call.name()
    return f"{call.text('role')}:{name}", {"name": name}


def _role_policy_attachment(call: Call) -> Answer:
    return f"{call.text('role')}/{call.text('policyArn')}", {}


def _lustre_file_system(call: Call) -> Answer:
    identity = call.sim("fs")
    return identity, {
        "arn": call.arn("fsx", f"file-system/{identity}"),
        "dnsName": f"{identity}.fsx.{call.region}.{regions.dns_suffix(call.region)}",
        "mountName": f"sim{call.digest[:5]}",
        "networkInterfaceIds": [call.sim("eni")],
        "ownerId": ACCOUNT,
        "vpcId": f"vpc-sim-{call.digest}",
    }


def _data_repository_association(call: Call) -> Answer:
    identity = call.sim("dra")
    arn = call.arn("fsx", f"association/{call.text('fileSystemId')}/{identity}")
    return identity, {"arn": arn, "associationId": identity}


def _bucket(call: Call) -> Answer:
    name, suffix = call.name("bucket"), regions.dns_suffix(call.region)
    return name, {
        "bucket": name,
        "arn": call.arn("s3", name, region="", account=""),
        "bucketDomainName": f"{name}.s3.{suffix}",
        "bucketRegionalDomainName": f"{name}.s3.{call.region}.{suffix}",
        "bucketRegion": call.region,
        "hostedZoneId": "ZSIM",
    }


def _bucket_part(call: Call) -> Answer:
    return call.text("bucket"), {}


def _repository(call: Call) -> Answer:
    name = call.name()
    host = f"{ACCOUNT}.dkr.ecr.{call.region}.{regions.dns_suffix(call.region)}"
    arn = call.arn("ecr", f"repository/{name}")
    return name, {"name": name, "arn": arn, "registryId": ACCOUNT, "repositoryUrl": f"{host}/{name}"}


def _repository_part(call: Call) -> Answer:
    return call.text("repository"), {"registryId": ACCOUNT}


def _plain(prefix: str, service_path: str = "") -> Answerer:
    """A resource with an id, and an ARN and owner when ``service_path`` (``internet-gateway``) is given."""

    def answer(call: Call) -> Answer:
        identity = call.sim(prefix)
        return identity, {"arn": call.arn("ec2", f"{service_path}/{identity}")} if service_path else {}

    return answer


AWS: Mapping[str, Answerer] = {
    "aws:cloudwatch/logGroup:LogGroup": _log_group,
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _default_security_group,
    "aws:ec2/eip:Eip": _eip,
    "aws:ec2/flowLog:FlowLog": _plain("fl", "vpc-flow-log"),
    "aws:ec2/internetGateway:InternetGateway": _plain("igw", "internet-gateway"),
    "aws:ec2/launchTemplate:LaunchTemplate": _launch_template,
    "aws:ec2/natGateway:NatGateway": _nat_gateway,
    "aws:ec2/placementGroup:PlacementGroup": _placement_group,
    "aws:ec2/route:Route": _plain("r"),
    "aws:ec2/routeTable:RouteTable": _plain("rtb", "route-table"),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _plain("rtbassoc"),
    "aws:ec2/securityGroup:SecurityGroup": _security_group,
    "aws:ec2/subnet:Subnet": _subnet,
    "aws:ec2/vpc:Vpc": _vpc,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _vpc_endpoint,
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": _repository_part,
    "aws:ecr/repository:Repository": _repository,
    "aws:ecr/repositoryPolicy:RepositoryPolicy": _repository_part,
    "aws:eks/accessEntry:AccessEntry": _access_entry,
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _access_policy_association,
    "aws:eks/addon:Addon": _addon,
    "aws:eks/cluster:Cluster": _eks_cluster,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": _pod_identity_association,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": _data_repository_association,
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre_file_system,
    "aws:iam/policy:Policy": _policy,
    "aws:iam/role:Role": _role,
    "aws:iam/rolePolicy:RolePolicy": _role_policy,
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _role_policy_attachment,
    "aws:kms/alias:Alias": _kms_alias,
    "aws:kms/key:Key": _kms_key,
    "aws:kms/keyPolicy:KeyPolicy": lambda call: (call.text("keyId"), {}),
    "aws:s3/bucket:Bucket": _bucket,
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _bucket_part,
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _bucket_part,
    "aws:s3/bucketPolicy:BucketPolicy": _bucket_part,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _bucket_part,
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _bucket_part,
    "aws:s3/bucketVersioning:BucketVersioning": _bucket_part,
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _security_group_rule,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _security_group_rule,
}
"""Resource type to what AWS would answer. A component that uses a new type adds its row here."""
