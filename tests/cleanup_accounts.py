"""Accounts after an update broke off: in moto, with what a stack `dev` left and what belongs to others."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]

from trainium_eks.operate.cleanup.state import PendingOperation, StackState, StateResource

REGION = "us-west-2"
CLUSTER = "trn-dev-cluster-eks-0a1b2c3"
FORGOTTEN = "trn-dev-cluster-trn1-32xl-ng1-nodes-1111111"
KNOWN = "trn-dev-cluster-trn1-32xl-ng1-nodes-2222222"
ROLE = "arn:aws:iam::123456789012:role/x"


def client(service: str) -> Any:
    return boto3.client(service, region_name=REGION)


def tagged(**tags: str) -> list[dict[str, str]]:
    return [{"Key": key.replace("__", ":"), "Value": value} for key, value in tags.items()]


def own(name: str, stack: str = "dev") -> list[dict[str, str]]:
    return tagged(Name=name, Environment=stack, ManagedBy="pulumi")


def state(*resources: tuple[str, str, Mapping[str, Any]], pending: int = 0) -> StackState:
    """A state of resources, each by type, id and outputs."""
    held = [
        {"urn": f"urn:pulumi:dev::p::{type_}::r{number}", "type": type_, "id": id_, "outputs": outputs}
        for number, (type_, id_, outputs) in enumerate(resources)
    ]
    open_ = [{"type": "creating", "resource": {"urn": f"urn:x::{each}", "type": "t"}} for each in range(pending)]
    document = {"version": 3, "deployment": {"resources": held, "pending_operations": open_}}
    return StackState.parse(json.dumps(document), "the test")


def creating(type_: str, inputs: Mapping[str, Any], number: int = 0) -> PendingOperation:
    """The operation of an interrupted creation."""
    urn = f"urn:pulumi:dev::p::a${type_}::r{number}"
    component, provider = "urn:pulumi:dev::p::a::component", "urn:pulumi:dev::p::pulumi:providers:aws::aws"
    return PendingOperation("creating", StateResource(urn, type_, inputs=inputs, parent=component, provider=provider))


@dataclass(frozen=True)
class Left:
    """Ids of what a stack left."""

    vpc: str
    subnet: str
    instances: tuple[str, ...]
    volume: str
    root_volume: str
    address: str
    gateway: str
    key: str


def fill() -> Left:
    """Makes a broken stack `dev`, a healthy stack `dev-2` and things of nobody."""
    ec2 = client("ec2")
    vpc, subnet = _network(ec2, "dev")
    _network(ec2, "dev-2")
    _clusters(subnet)
    instances = _instances(ec2, subnet)
    volume = _volume(ec2, f"kubernetes.io/cluster/{CLUSTER}")
    _volume(ec2, "kubernetes.io/cluster/payroll")
    root = _root_volume(ec2, instances[0])
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    ec2.create_tags(Resources=[address], Tags=own("trn-dev-network-nat-usw2-az1"))
    gateway = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
    ec2.create_tags(Resources=[gateway], Tags=own("trn-dev-network-nat-usw2-az1"))
    _logs()
    _roles()
    _balancers(subnet)
    return Left(vpc, subnet, instances, volume, root, address, gateway, _key())


def _network(ec2: Any, stack: str) -> tuple[str, str]:
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=own(f"trn-{stack}-network-vpc", stack))
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    ec2.create_tags(Resources=[subnet], Tags=own(f"trn-{stack}-network-private", stack))
    return vpc, subnet


def _clusters(subnet: str) -> None:
    eks = client("eks")
    for name in (CLUSTER, "trn-dev-2-cluster-eks-0a1b2c3", "payroll"):
        eks.create_cluster(name=name, roleArn=ROLE, resourcesVpcConfig={"subnetIds": [subnet]})
    for name in (KNOWN, FORGOTTEN):
        eks.create_nodegroup(
            clusterName=CLUSTER, nodegroupName=name, subnets=[subnet], nodeRole=ROLE, instanceTypes=["trn1.32xlarge"]
        )


def _instances(ec2: Any, subnet: str) -> tuple[str, ...]:
    """Two of the forgotten group and one of the known."""
    made = []
    for group in (FORGOTTEN, FORGOTTEN, KNOWN):
        tags = tagged(eks__cluster_name=CLUSTER, eks__nodegroup_name=group)
        tags = [{**each, "Key": each["Key"].replace("_", "-")} for each in tags]
        answer = ec2.run_instances(
            ImageId="ami-12c6146b",
            InstanceType="trn1.32xlarge",
            MinCount=1,
            MaxCount=1,
            SubnetId=subnet,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        made.append(answer["Instances"][0]["InstanceId"])
    return tuple(made)


def _volume(ec2: Any, cluster_tag: str) -> str:
    tags = [
        {"Key": cluster_tag, "Value": "owned"},
        {"Key": "kubernetes.io/created-for/pvc/namespace", "Value": "training"},
        {"Key": "kubernetes.io/created-for/pvc/name", "Value": "scratch"},
    ]
    answer = ec2.create_volume(
        AvailabilityZone=f"{REGION}a",
        Size=100,
        VolumeType="gp3",
        TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
    )
    return str(answer["VolumeId"])


def _root_volume(ec2: Any, instance: str) -> str:
    volume = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=200, VolumeType="gp3")["VolumeId"]
    ec2.create_tags(Resources=[volume], Tags=own("trn-dev-cluster-trn1-32xl-ng1"))
    ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device="/dev/sdf")
    return str(volume)


def _logs() -> None:
    logs = client("logs")
    for name in (f"/aws/eks/{CLUSTER}/cluster", "/aws/eks/trn-dev-2-cluster-eks-0a1b2c3/cluster", "/aws/eks/payroll/x"):
        logs.create_log_group(logGroupName=name)


def _roles() -> None:
    iam = client("iam")
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    for name, tags in (
        ("trn-dev-cluster-node-0a1b2c3", own("", "dev")[1:]),
        ("trn-dev-2-cluster-node-0a1b2c3", own("", "dev-2")[1:]),
        ("trn-developers", []),
    ):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust, Tags=tags)
    node = "trn-dev-cluster-node-0a1b2c3"
    reading = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:Get*", "Resource": "*"}]}
    iam.put_role_policy(RoleName=node, PolicyName="extra", PolicyDocument=json.dumps(reading))
    iam.create_instance_profile(InstanceProfileName="eks-1234")
    iam.add_role_to_instance_profile(InstanceProfileName="eks-1234", RoleName=node)


def _balancers(subnet: str) -> None:
    elb = client("elbv2")
    for name, cluster in (("abc", CLUSTER), ("def", "payroll")):
        tags = [
            {"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned"},
            {"Key": "kubernetes.io/service-name", "Value": "training/tensorboard"},
        ]
        elb.create_load_balancer(Name=name, Subnets=[subnet], Type="network", Tags=tags)


def _key() -> str:
    kms = client("kms")
    tags = [{"TagKey": each["Key"], "TagValue": each["Value"]} for each in own("trn-dev-key")]
    identity = str(kms.create_key(Tags=tags)["KeyMetadata"]["KeyId"])
    kms.create_alias(AliasName="alias/trn-dev-key-alias-0a1b2c3", TargetKeyId=identity)
    other = kms.create_key()["KeyMetadata"]["KeyId"]
    kms.create_alias(AliasName="alias/payroll", TargetKeyId=other)
    return identity


def session() -> Any:
    """A session whose clients get an empty answer where moto has none."""
    core = botocore.session.Session()
    for event, key in (
        ("ec2.DescribePlacementGroups", "PlacementGroups"),
        ("fsx.DescribeDataRepositoryAssociations", "Associations"),
    ):
        answer = (_Response(200), {key: [], "ResponseMetadata": {"HTTPHeaders": {}}})
        core.register(f"before-call.{event}", lambda answer=answer, **_: answer)
    return boto3.Session("AKIATEST", "secret", botocore_session=core)


@dataclass(frozen=True)
class _Response:
    status_code: int
