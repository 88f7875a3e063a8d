"""`trn plan` of a Pulumi program that knows nothing of this library."""

import json
from typing import Any

import pytest
from small_project import Project, Run

PROGRAM = """\
import pulumi
import pulumi_aws as aws

account = aws.get_caller_identity().account_id
network = pulumi.StackReference("acme/network/prod")
queue = aws.sns.Topic("jobs", tags={"account": account})
aws.ec2.Subnet("s", vpc_id=network.get_output("vpcId"), cidr_block="10.0.0.0/18")
pulumi.export("queue", queue.arn)
"""


@pytest.fixture
def foreign(project: Project) -> Project:
    project.write("__main__.py", PROGRAM)
    project.write("Pulumi.dev.yaml", "config: {}\n")
    return project


def planned(trn: Run, project: Project, *arguments: str) -> Any:
    shown = trn("plan", "-C", str(project.path), "--json", *arguments)
    assert shown.exit_code in (0, 1), shown.stderr
    return json.loads(shown.stdout)


def test_placeholders_and_unknown_types_are_named(trn: Run, foreign: Project) -> None:
    plan = planned(trn, foreign)
    assert plan["unjudged"] == ["aws:sns/topic:Topic"]
    assert plan["placeholders"] == [
        "aws:index/getCallerIdentity:getCallerIdentity",
        "stack acme/network/prod: its outputs are unknown",
    ]
    shown = trn("plan", "-C", str(foreign.path), "--no-color").stdout
    assert "Unknown types, shown without price, time and rules: aws:sns/topic:Topic." in shown
    assert "stack acme/network/prod: its outputs are unknown" in shown
    assert "site-packages" not in shown


def test_a_stub_file_answers(trn: Run, foreign: Project) -> None:
    foreign.write(
        "stub.yaml",
        "lookups: {'aws:index/getCallerIdentity:getCallerIdentity': {accountId: '012345678901'}}\n"
        "stackReferences: {acme/network/prod: {vpcId: vpc-1}}\n",
    )
    plan = planned(trn, foreign, "--stub", str(foreign.path / "stub.yaml"))
    assert plan["placeholders"] == []
    inputs = {resource["name"]: resource["inputs"] for resource in plan["resources"]}
    assert inputs["jobs"]["tags"] == {"account": "012345678901"}
    assert inputs["s"]["vpcId"] == "vpc-1"


def test_a_stub_file_that_cannot_be_used_is_wrong_usage(trn: Run, foreign: Project) -> None:
    foreign.write("stub.yaml", "lookup: {}\n")
    shown = trn("plan", "-C", str(foreign.path), "--stub", str(foreign.path / "stub.yaml"))
    assert shown.exit_code == 2
    assert "there is no 'lookup'; it takes lookups and stackReferences" in shown.stderr


def test_answers_reach_the_earlier_program_too(trn: Run, foreign: Project) -> None:
    foreign.git("init", "-q")
    foreign.commit()
    foreign.write("stub.yaml", "stackReferences: {acme/network/prod: {vpcId: vpc-1}}\n")
    plan = planned(trn, foreign, "--stub", str(foreign.path / "stub.yaml"), "--against", "HEAD")
    assert plan["against"]["items"] == []
