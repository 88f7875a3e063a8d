"""SageMaker: roles that can do little, no public network, rights for people, and the deployment of endpoints."""

from fnmatch import fnmatch

import pytest
from unit.components.parts import LEAST, recorder, statements

from components import SageMakerEndpoint, SageMakerTraining
from trainium_eks.model.sizing import bill
from trainium_eks.plan.cost import CostItem, estimate

REPOSITORY = LEAST["SageMakerTraining"]["repository_arn"]
made = recorder(SageMakerTraining, "jobs", LEAST["SageMakerTraining"])


def listed(value):
    return [value] if isinstance(value, str) else value


def may(graph, action, resource):
    def fits(statement, key, asked):
        return any(fnmatch(asked, each) for each in listed(statement[key]))

    return any(fits(each, "Action", action) and fits(each, "Resource", resource) for each in statements(graph))


def test_role_writes_under_one_prefix(record):
    graph = made(record)
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


def test_endpoint_is_priced_from_its_least_to_its_most_instances(record):
    graph = record(
        lambda: SageMakerEndpoint("trn-reviews", {**LEAST["SageMakerEndpoint"], "max_instances": 4}) and None
    )
    [line] = [each for each in estimate(graph).lines if each.what == "ml.inf2.xlarge"]
    assert line == CostItem(**vars(bill.endpoint("ml.inf2.xlarge", 1, 4)), urn="", component="")
    assert line.unit_hourly_usd == pytest.approx(0.7582 * 1.15)
