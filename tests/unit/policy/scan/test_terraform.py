"""A recorded program becomes a Terraform plan: names, blocks, references; and what has no name is said."""

from typing import Any

import pytest
from rule_programs import Program

from policy.scan.terraform import REPEATED_BLOCKS, SERVICES, Unmapped, plan, terraform_type
from trainium_eks.plan.resource_types.registry import ROWS

# As the documentation of Terraform's AWS provider has them.
TYPES = {
    "aws:cloudwatch/logGroup:LogGroup": "aws_cloudwatch_log_group",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "aws_default_security_group",
    "aws:ec2/eip:Eip": "aws_eip",
    "aws:ec2/flowLog:FlowLog": "aws_flow_log",
    "aws:ec2/internetGateway:InternetGateway": "aws_internet_gateway",
    "aws:ec2/launchTemplate:LaunchTemplate": "aws_launch_template",
    "aws:ec2/natGateway:NatGateway": "aws_nat_gateway",
    "aws:ec2/placementGroup:PlacementGroup": "aws_placement_group",
    "aws:ec2/route:Route": "aws_route",
    "aws:ec2/routeTable:RouteTable": "aws_route_table",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "aws_route_table_association",
    "aws:ec2/securityGroup:SecurityGroup": "aws_security_group",
    "aws:ec2/subnet:Subnet": "aws_subnet",
    "aws:ec2/vpc:Vpc": "aws_vpc",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "aws_vpc_endpoint",
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": "aws_ecr_lifecycle_policy",
    "aws:ecr/repository:Repository": "aws_ecr_repository",
    "aws:ecr/repositoryPolicy:RepositoryPolicy": "aws_ecr_repository_policy",
    "aws:eks/accessEntry:AccessEntry": "aws_eks_access_entry",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "aws_eks_access_policy_association",
    "aws:eks/addon:Addon": "aws_eks_addon",
    "aws:eks/cluster:Cluster": "aws_eks_cluster",
    "aws:eks/nodeGroup:NodeGroup": "aws_eks_node_group",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": "aws_eks_pod_identity_association",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "aws_fsx_data_repository_association",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "aws_fsx_lustre_file_system",
    "aws:iam/policy:Policy": "aws_iam_policy",
    "aws:iam/role:Role": "aws_iam_role",
    "aws:iam/rolePolicy:RolePolicy": "aws_iam_role_policy",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "aws_iam_role_policy_attachment",
    "aws:kms/alias:Alias": "aws_kms_alias",
    "aws:kms/key:Key": "aws_kms_key",
    "aws:kms/keyPolicy:KeyPolicy": "aws_kms_key_policy",
    "aws:s3/bucket:Bucket": "aws_s3_bucket",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": "aws_s3_bucket_lifecycle_configuration",
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": "aws_s3_bucket_ownership_controls",
    "aws:s3/bucketPolicy:BucketPolicy": "aws_s3_bucket_policy",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "aws_s3_bucket_public_access_block",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": (
        "aws_s3_bucket_server_side_encryption_configuration"
    ),
    "aws:s3/bucketVersioning:BucketVersioning": "aws_s3_bucket_versioning",
    "aws:sagemaker/endpointConfiguration:EndpointConfiguration": "aws_sagemaker_endpoint_configuration",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "aws_vpc_security_group_egress_rule",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "aws_vpc_security_group_ingress_rule",
}
BUCKET, TEMPLATE = "aws:s3/bucket:Bucket", "aws:ec2/launchTemplate:LaunchTemplate"
ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"


def values(program: Program, address: str) -> dict[str, Any]:
    [found] = [each for each in _resources(program, "planned_values") if each["address"] == address]
    return found["values"]


def expressions(program: Program, address: str) -> dict[str, Any]:
    [found] = [each for each in _resources(program, "configuration") if each["address"] == address]
    return found["expressions"]


def _resources(program: Program, part: str) -> list[dict[str, Any]]:
    return plan(program.graph()).document[part]["root_module"]["resources"]


@pytest.mark.parametrize("token", sorted(TYPES))
def test_a_type_has_its_name_in_terraform(token: str) -> None:
    assert terraform_type(token) == TYPES[token]


def test_every_type_that_the_library_knows_is_named_above_or_of_a_known_service() -> None:
    known = {token for token in ROWS if token.startswith("aws:")}
    assert set(TYPES) <= known
    assert [token for token in known if terraform_type(token) is None] == []


def test_a_service_that_no_table_has_is_reported() -> None:
    program = Program()
    program.add("mesh", "aws:appmesh/mesh:Mesh", {"name": "mesh"})
    program.add("data", BUCKET)
    with pytest.raises(Unmapped, match="aws:appmesh/mesh:Mesh: its service is not in SERVICES"):
        plan(program.graph())


def test_a_type_that_the_sdk_does_not_have_is_reported() -> None:
    program = Program()
    program.add("odd", "aws:s3/odd:Odd", {"name": "odd"})
    with pytest.raises(Unmapped, match="aws:s3/odd:Odd: the SDK has no such type"):
        plan(program.graph())


def test_a_list_of_objects_that_no_table_has_is_reported() -> None:
    program = Program()
    program.add("template", TEMPLATE, {"licenseSpecifications": [{"licenseConfigurationArn": "arn"}]})
    with pytest.raises(Unmapped, match=f"{TEMPLATE}: licenseSpecifications is not in REPEATED_BLOCKS"):
        plan(program.graph())


def test_objects_are_blocks_and_names_are_in_snake_case() -> None:
    program = Program()
    ebs = {"encrypted": "true", "kmsKeyId": "key"}
    inputs = {
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": ebs}],
        "metadataOptions": {"httpTokens": "required"},
    }
    program.add("template", TEMPLATE, inputs)
    assert values(program, "aws_launch_template.template") == {
        "block_device_mappings": [{"device_name": "/dev/xvda", "ebs": [{"encrypted": "true", "kms_key_id": "key"}]}],
        "metadata_options": [{"http_tokens": "required"}],
    }


def test_the_keys_of_a_map_are_the_users_own() -> None:
    program = Program()
    program.add("data", BUCKET, {"tags": {"karpenter.sh/nodePool": "a", "CostCenter": "b"}})
    assert values(program, "aws_s3_bucket.data") == {"tags": {"karpenter.sh/nodePool": "a", "CostCenter": "b"}}


def test_a_repeated_block_is_called_by_the_singular() -> None:
    program = Program()
    by_default = {"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms"}}
    program.add("encryption", ENCRYPTION, {"rules": [by_default]})
    made = values(program, "aws_s3_bucket_server_side_encryption_configuration.encryption")
    assert made == {"rule": [{"apply_server_side_encryption_by_default": [{"sse_algorithm": "aws:kms"}]}]}


def test_what_another_resource_answers_is_a_reference_at_any_depth() -> None:
    program = Program()
    key = program.add("key", "aws:kms/key:Key", outputs={"id": "1234", "arn": "arn:key"})
    data = program.add("data", BUCKET, outputs={"id": "data-1"})
    program.add(
        "encryption",
        ENCRYPTION,
        {"bucket": "data-1", "rules": [{"applyServerSideEncryptionByDefault": {"kmsMasterKeyId": "arn:key"}}]},
        property_dependencies={"bucket": (data.urn,), "rules": (key.urn,)},
    )
    address = "aws_s3_bucket_server_side_encryption_configuration.encryption"
    assert values(program, address) == {"rule": [{"apply_server_side_encryption_by_default": [{}]}]}
    assert expressions(program, address) == {
        "bucket": {"references": ["aws_s3_bucket.data.id"]},
        "rule": [
            {
                "apply_server_side_encryption_by_default": [
                    {"kms_master_key_id": {"references": ["aws_kms_key.key.arn"]}}
                ]
            }
        ],
    }


def test_in_a_list_the_known_values_stay() -> None:
    program = Program()
    group = program.add("group", "aws:ec2/securityGroup:SecurityGroup", outputs={"id": "sg-1"})
    program.add(
        "template",
        TEMPLATE,
        {"vpcSecurityGroupIds": ["sg-1", "sg-of-another-stack"]},
        property_dependencies={"vpcSecurityGroupIds": (group.urn,)},
    )
    assert values(program, "aws_launch_template.template") == {"vpc_security_group_ids": [None, "sg-of-another-stack"]}
    assert expressions(program, "aws_launch_template.template") == {
        "vpc_security_group_ids": {"references": ["aws_security_group.group.id"]}
    }


def test_two_names_that_terraform_cannot_tell_apart_are_two_resources() -> None:
    program = Program()
    program.add("role/a", "aws:iam/role:Role", {"description": "one"})
    program.add("role:a", "aws:iam/role:Role", {"description": "two"})
    made = plan(program.graph())
    assert {address: each.name for address, each in made.resources.items()} == {
        "aws_iam_role.role_a": "role/a",
        "aws_iam_role.role_a_2": "role:a",
    }


def test_components_and_providers_are_no_resources() -> None:
    program = Program()
    program.add("part", "trainium-eks:index:DataBucket", custom=False)
    program.add("aws", "pulumi:providers:aws", {"region": "us-west-2"})
    assert plan(program.graph()).resources == {}


def test_the_tables_are_in_order() -> None:
    assert list(SERVICES) == sorted(SERVICES)
    assert list(REPEATED_BLOCKS) == sorted(REPEATED_BLOCKS)
