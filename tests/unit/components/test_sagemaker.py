"""SageMaker: roles that can do little, no public network, rights for people, and the deployment of endpoints."""

import json
from fnmatch import fnmatch

import pytest
from unit.components.parts import IAM_ROLE, LEAST, one, recorder, statements

from components import SageMakerEndpoint, SageMakerTraining
from trainium_eks.model.sizing import bill
from trainium_eks.plan.cost import estimate

KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
NETWORK = {
    "region": "us-west-2",
    "vpc_id": "vpc-00000001",
    "subnet_ids": ["subnet-00000001", "subnet-00000002"],
    "kms_key_arn": KEY,
}
REPOSITORY = LEAST["SageMakerTraining"]["repository_arn"]
WIRING = {**LEAST["SageMakerTraining"], **NETWORK, "file_system_security_group_id": "sg-f5654060"}
made = recorder(SageMakerTraining, "jobs", WIRING)


def listed(value):
    return [value] if isinstance(value, str) else value


def may(graph, action, resource):
    def fits(statement, key, asked):
        return any(fnmatch(asked, each) for each in listed(statement[key]))

    return any(fits(each, "Action", action) and fits(each, "Resource", resource) for each in statements(graph))


def rights(graph):
    """Return the statements of people's policy by their actions of SageMaker and IAM."""
    policy = json.loads(one(graph, "SageMakerTraining").outputs["researcher_policy"])["Statement"]
    return {action: each for each in policy for action in listed(each["Action"])}


def test_role_writes_under_one_prefix_and_people_submit_only_isolated_jobs(record):
    graph = made(record)
    trust = json.loads(one(graph, IAM_ROLE).inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    s3, logs = "arn:aws:s3:::", "arn:aws:logs:us-west-2:000000000000:log-group:"
    assert may(graph, "s3:GetObject", f"{s3}acme-data/reviews/train.parquet")
    assert may(graph, "s3:PutObject", f"{s3}acme-data/sagemaker/training/bert/model.tar.gz")
    assert not may(graph, "s3:PutObject", f"{s3}acme-data/reviews/train.parquet")
    assert not may(graph, "s3:GetObject", f"{s3}payroll/salaries.csv")
    assert not may(graph, "logs:PutLogEvents", f"{logs}/aws/eks/trn-dev")
    assert not may(graph, "ecr:BatchGetImage", REPOSITORY.replace("trn-dev/training", "payroll"))
    assert not any("*" in action for statement in statements(graph) for action in listed(statement["Action"]))
    # Everything is allowed only for actions that know no resource.
    wide = [each for each in statements(graph) if each["Resource"] == "*" and "Condition" not in each]
    everywhere = {action for each in wide for action in listed(each["Action"])}
    assert {action.split(":")[0] for action in everywhere} == {"ec2", "ecr", "fsx"}
    assert {action for action in everywhere if action.startswith("ecr:")} == {"ecr:GetAuthorizationToken"}
    # Another key of the bucket is the role's, too, but not for volumes.
    other = KEY.replace("/k", "/other")
    found = [each for each in statements(made(record, bucket_key_arn=other)) if "kms:" in str(each["Action"])]
    assert [each["Resource"] for each in found] == [KEY, KEY, other]
    assert found[1]["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    assert found[2]["Condition"] == {"StringEquals": {"kms:ViaService": "s3.us-west-2.amazonaws.com"}}
    # People may submit isolated jobs in the private subnets with this role alone.
    creates = rights(graph)["sagemaker:CreateTrainingJob"]["Condition"]
    assert creates["Bool"] == {"sagemaker:NetworkIsolation": "true"}
    assert creates["ForAllValues:StringEquals"]["sagemaker:VpcSubnets"] == ["subnet-00000001", "subnet-00000002"]
    assert creates["Null"] == {"sagemaker:VpcSecurityGroupIds": "false", "sagemaker:VpcSubnets": "false"}
    assert rights(graph)["iam:PassRole"]["Resource"] == one(graph, IAM_ROLE).outputs["arn"]
    assert not any("Endpoint" in action for action in rights(graph))


def test_endpoint_is_priced_from_its_least_to_its_most_instances(record):
    graph = record(
        lambda: SageMakerEndpoint("trn-reviews", {**LEAST["SageMakerEndpoint"], "max_instances": 4}) and None
    )
    [line] = [each for each in estimate(graph).items if each.what == "ml.inf2.xlarge"]
    assert line.line == bill.endpoint("ml.inf2.xlarge", 1, 4)
    assert line.line.unit_hourly_usd == pytest.approx(0.7582 * 1.15)
