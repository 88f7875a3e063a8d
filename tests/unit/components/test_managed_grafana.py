import json
from collections.abc import Callable
from typing import Any

import pytest

from components._args import ArgumentError
from components.managed_grafana import ManagedGrafana, ManagedGrafanaArgs, validate
from components.training_stack import TrainingStack
from trainium_eks.plan.graph import Graph, Resource

WORKSPACE = "aws:grafana/workspace:Workspace"
ARN = "arn:aws:aps:us-west-2:111122223333:workspace/ws-0a1b"

Record = Callable[..., Graph]


def built(record: Record, **more: Any) -> Graph:
    return record(lambda: ManagedGrafana("grafana", {"workspace_arn": ARN, **more}))


def one(graph: Graph, type_: str) -> Resource:
    [found] = graph.of_type(type_)
    return found


@pytest.mark.parametrize("authentication", ["AWS_SSO", "SAML"])
def test_whoever_comes_is_asked_who_he_is(record: Record, authentication: str) -> None:
    inputs = one(built(record, authentication=authentication), WORKSPACE).inputs
    assert inputs["authenticationProviders"] == [authentication]


def test_it_takes_a_role_that_reads_one_workspace(record: Record) -> None:
    """AWS' own choice of permissions reads every workspace of the account."""
    graph = built(record)
    assert one(graph, WORKSPACE).inputs["permissionType"] == "CUSTOMER_MANAGED"
    [statement] = json.loads(one(graph, "aws:iam/rolePolicy:RolePolicy").inputs["policy"])["Statement"]
    assert statement["Resource"] == ARN
    assert "aps:QueryMetrics" in statement["Action"]
    assert not any("Write" in action or "Create" in action for action in statement["Action"])
    trust = json.loads(one(graph, "aws:iam/role:Role").inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Service": "grafana.amazonaws.com"}


def test_a_stack_has_one_when_it_is_asked_for(record: Record) -> None:
    config = {
        "region": "us-west-2",
        "owner": "ml-platform",
        "allowed_account_ids": ("111122223333",),
        "cluster": {"endpoint": {"public_access_cidrs": ("203.0.113.0/24",)}},
        "observability": {"metrics": {"managed_prometheus": True}, "grafana": {"managed": {}}},
    }
    graph = record(lambda: TrainingStack("trn-dev", config))
    policies = [json.loads(each.inputs["policy"]) for each in graph.of_type("aws:iam/rolePolicy:RolePolicy")]
    workspace = one(graph, "aws:amp/workspace:Workspace").outputs["arn"]
    readers = [each for each in policies if "aps:QueryMetrics" in str(each)]
    assert [each["Statement"][0]["Resource"] for each in readers] == [workspace, workspace]
    assert one(graph, WORKSPACE)


def test_a_boundary_that_is_none_is_refused(record: Record) -> None:
    args = {"workspace_arn": ARN, "permissions_boundary": "x"}
    assert [each.path for each in validate(ManagedGrafanaArgs(**args))] == ["permissions_boundary"]
    with pytest.raises(ArgumentError):
        built(record, permissions_boundary="x")
