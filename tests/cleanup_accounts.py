"""Accounts after an update broke off: in moto, with what a stack `dev` left and what belongs to others."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import boto3  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]
from moto import mock_aws

from trainium_eks.operate.cleanup.state import PendingOperation, StackState, StateResource

REGION = "us-west-2"
CLUSTER = "trn-dev-cluster-eks-0a1b2c3"
OTHERS = ("trn-dev-2-cluster-eks-0a1b2c3", "payroll")
FORGOTTEN = "trn-dev-cluster-trn1-32xl-ng1-nodes-1111111"
KNOWN = "trn-dev-cluster-trn1-32xl-ng1-nodes-2222222"
NODE = "trn-dev-cluster-node-0a1b2c3"
ROLE = "arn:aws:iam::123456789012:role/x"


def tagged(**tags):
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def own(name, stack="dev"):
    return tagged(Name=name, Environment=stack, ManagedBy="pulumi")


def state(*resources):
    """A state of resources, each by type, id and outputs."""
    numbered = ((f"urn:pulumi:dev::p::{each[0]}::r{number}", each) for number, each in enumerate(resources))
    return StackState(tuple(StateResource(urn, type_, id_, outputs=held) for urn, (type_, id_, held) in numbered))


def creating(type_, inputs):
    urn = f"urn:pulumi:dev::p::a${type_}::r0"
    component, provider = "urn:pulumi:dev::p::a::component", "urn:pulumi:dev::p::pulumi:providers:aws::aws"
    return PendingOperation("creating", StateResource(urn, type_, inputs=inputs, parent=component, provider=provider))


@contextmanager
def left_in_moto():
    """A broken stack `dev`, a healthy stack `dev-2` and resources without an owner; the ids of what `dev` left."""
    with mock_aws():
        ec2 = _client("ec2")
        vpc, subnet = _network(ec2, "dev")
        _network(ec2, "dev-2")
        _clusters(subnet)
        first = _instances(ec2, subnet)
        volume = _volume(ec2, CLUSTER)
        _volume(ec2, "payroll")
        root = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=200, VolumeType="gp3")["VolumeId"]
        address = ec2.allocate_address(Domain="vpc")["AllocationId"]
        gateway = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
        ec2.create_tags(Resources=[root], Tags=own("trn-dev-cluster-trn1-32xl-ng1"))
        ec2.attach_volume(VolumeId=root, InstanceId=first, Device="/dev/sdf")
        ec2.create_tags(Resources=[address, gateway], Tags=own("trn-dev-network-nat-usw2-az1"))
        for name in (CLUSTER, *OTHERS):
            _client("logs").create_log_group(logGroupName=f"/aws/eks/{name}/cluster")
        _roles()
        for name, cluster in (("abc", CLUSTER), ("def", "payroll")):
            tags = [*_of_cluster(cluster), *tagged(**{"kubernetes.io/service-name": "training/tensorboard"})]
            _client("elbv2").create_load_balancer(Name=name, Subnets=[subnet], Type="network", Tags=tags)
        left = {"vpc": vpc, "subnet": subnet, "volume": volume, "address": address, "gateway": gateway}
        yield SimpleNamespace(**left, key=_key())


def _client(service):
    return boto3.client(service, region_name=REGION)


def _of_cluster(name):
    return [{"Key": f"kubernetes.io/cluster/{name}", "Value": "owned"}]


def _network(ec2, stack):
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=own(f"trn-{stack}-network-vpc", stack))
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    ec2.create_tags(Resources=[subnet], Tags=own(f"trn-{stack}-network-private", stack))
    return vpc, subnet


def _clusters(subnet):
    eks = _client("eks")
    for name in (CLUSTER, *OTHERS):
        eks.create_cluster(name=name, roleArn=ROLE, resourcesVpcConfig={"subnetIds": [subnet]})
    kind = {"subnets": [subnet], "nodeRole": ROLE, "instanceTypes": ["trn1.32xlarge"]}
    for name in (KNOWN, FORGOTTEN):
        eks.create_nodegroup(clusterName=CLUSTER, nodegroupName=name, **kind)


def _instances(ec2, subnet):
    """Two of the forgotten group and one of the known; returns the first."""
    made = []
    kind = {"ImageId": "ami-12c6146b", "InstanceType": "trn1.32xlarge", "SubnetId": subnet}
    for group, count in ((FORGOTTEN, 2), (KNOWN, 1)):
        tags = tagged(**{"eks:cluster-name": CLUSTER, "eks:nodegroup-name": group})
        specifications = [{"ResourceType": "instance", "Tags": tags}]
        answer = ec2.run_instances(**kind, MinCount=count, MaxCount=count, TagSpecifications=specifications)
        made += [each["InstanceId"] for each in answer["Instances"]]
    return str(made[0])


def _volume(ec2, cluster):
    claim = {"kubernetes.io/created-for/pvc/namespace": "training", "kubernetes.io/created-for/pvc/name": "scratch"}
    answer = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=100, VolumeType="gp3")
    ec2.create_tags(Resources=[answer["VolumeId"]], Tags=[*_of_cluster(cluster), *tagged(**claim)])
    return str(answer["VolumeId"])


def _roles():
    iam = _client("iam")
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    for name, stack in ((NODE, "dev"), ("trn-dev-2-cluster-node-0a1b2c3", "dev-2"), ("trn-developers", "")):
        tags = own("", stack)[1:] if stack else []
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust, Tags=tags)
    reading = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:Get*", "Resource": "*"}]}
    iam.put_role_policy(RoleName=NODE, PolicyName="extra", PolicyDocument=json.dumps(reading))
    iam.create_instance_profile(InstanceProfileName="eks-1234")
    iam.add_role_to_instance_profile(InstanceProfileName="eks-1234", RoleName=NODE)


def _key():
    kms = _client("kms")
    tags = [{"TagKey": each["Key"], "TagValue": each["Value"]} for each in own("trn-dev-key")]
    identity, other = (str(kms.create_key(Tags=each)["KeyMetadata"]["KeyId"]) for each in (tags, []))
    kms.create_alias(AliasName="alias/trn-dev-key-alias-0a1b2c3", TargetKeyId=identity)
    kms.create_alias(AliasName="alias/payroll", TargetKeyId=other)
    return identity


def session():
    """A session whose clients get an empty answer for requests unknown to moto."""
    core = botocore.session.Session()
    keys = {"ec2.DescribePlacementGroups": "PlacementGroups", "fsx.DescribeDataRepositoryAssociations": "Associations"}
    keys |= {"ec2.DescribeCapacityReservations": "CapacityReservations"}
    for event, key in keys.items():
        answer = (SimpleNamespace(status_code=200), {key: [], "ResponseMetadata": {"HTTPHeaders": {}}})
        core.register(f"before-call.{event}", lambda answer=answer, **_: answer)
    return boto3.Session("AKIATEST", "secret", botocore_session=core)
