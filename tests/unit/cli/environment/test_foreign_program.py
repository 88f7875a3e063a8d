"""`trn plan` of a Pulumi program that knows nothing of this library."""

import importlib
import json

import pytest
from outcome import ends
from small_project import Project, Run

from trainium_eks.cli.shared import plan_page, plan_report
from trainium_eks.plan.graph import UNKNOWN, Graph, Resource
from trainium_eks.plan.resource_types import registry, sdk_inputs

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


def test_answers_reach_the_program_and_the_earlier_one_too(trn: Run, foreign: Project) -> None:
    foreign.git("init", "-q")
    foreign.commit()
    answers = foreign.path / "stub.yaml"
    answers.write_text("stackReferences: {acme/network/prod: {vpcId: vpc-1}}\n")
    shown = trn("plan", "-C", foreign.path, "--json", "--stub", answers, "--against", "HEAD")
    plan = json.loads(shown.stdout)
    assert plan["unjudged"] == ["aws:sns/topic:Topic"]
    assert plan["placeholders"] == ["aws:index/getCallerIdentity:getCallerIdentity"]
    [vpc] = [each["inputs"]["vpcId"] for each in plan["resources"] if each["name"] == "s"]
    assert (vpc, plan["against"]["items"]) == ("vpc-1", [])
    answers.write_text("lookup: {}\n")
    refused = "there is no 'lookup'; it takes lookups and stackReferences"
    ends(2, trn("plan", "-C", foreign.path, "--stub", answers), refused)


THING = """\
import pulumi

class Thing(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("acme:index:Thing", name, {"out": None}, None, remote=True)

Thing("net")
"""


def test_a_program_of_what_is_not_simulated_is_not_called_sound(trn: Run, foreign: Project) -> None:
    foreign.write("__main__.py", THING)
    shown = trn("plan", "-C", foreign.path, "--no-color")
    last = "! dev: no failed rule, no wrong edge in what is known; not simulated: acme:index:Thing."
    assert (shown.exit_code, shown.stdout.strip().splitlines()[-1]) == (0, last)


@pytest.mark.slow
def test_every_type_may_have_inputs_that_nobody_knows() -> None:
    importlib.import_module("pulumi_aws")
    importlib.import_module("pulumi_kubernetes")
    types = {token: sdk_inputs.input_types(token) or () for token in registry.ROWS}
    before, after = (
        Graph("p", "dev", tuple(Resource(f"urn::{t}", t, "r", inputs=dict.fromkeys(types[t], to)) for t in types), {})
        for to in ("", UNKNOWN)
    )
    made = plan_report.make(after)
    for plan in (made, plan_report.against(made, "it", before)):
        assert plan_page.page(plan)
        assert plan_report.text(plan)
