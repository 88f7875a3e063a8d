"""`trn plan` of a Pulumi program that knows nothing of this library."""

import importlib
import json
from typing import Any

import pytest
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
    assert "Not simulated, so shown without parts, price, time and rules: aws:sns/topic:Topic." in shown
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


PLAIN = """\
import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s
from components import AcceleratorNodeGroup, VolcanoStack

class Thing(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("acme:index:Thing", name, {"out": None}, None, remote=True)

net = Thing("net").out
cluster = eks.Cluster("plain", vpc_id=net, encryption_config_key_arn="arn:aws:kms:us-west-2:000000000000:key/k")
AcceleratorNodeGroup("pool", dict(
    name="trn1", instance_type="trn1.32xlarge", max_size=2, region="us-west-2", kubernetes_version="1.35", vpc_id=net,
    cluster_name=cluster.eks_cluster.name, cluster_security_group_id=cluster.cluster_security_group_id,
    subnet_id=net.apply(lambda found: found.ids[0]), tags={"Owner": "a"},
))
inside = pulumi.ResourceOptions(providers=[k8s.Provider("in", kubeconfig=cluster.kubeconfig_json)])
VolcanoStack("v", {"queues": [{"name": "q"}], "pool": {"aws.amazon.com/neuron": 32}, "rests_at_zero": True}, inside)
"""


def test_a_component_of_another_package_is_shown_without_parts_and_said(trn: Run, project: Project) -> None:
    project.write("__main__.py", PLAIN)
    project.write("Pulumi.dev.yaml", "config: {}\n")
    plan = planned(trn, project)
    alone = [urn.rsplit("::", 1)[1] for urn in plan["notSimulated"]]
    assert (alone, plan["unjudged"]) == (["net", "plain"], ["acme:index:Thing", "eks:index:Cluster"])
    # The components beside it are whole.
    inputs = {each["name"]: each["inputs"] for each in plan["resources"]}
    assert inputs["pool-nodes"]["clusterName"] == inputs["pool-nodes"]["subnetIds"][0] == UNKNOWN
    assert "v-q" in inputs
    assert plan["cost"]["unknown"] == plan["unjudged"]
    # A rule that reads the component's own inputs is judged, one about its parts is not.
    status = {each["id"]: each["status"] for each in plan["rules"]}
    assert [status[rule] for rule in ("R02", "R04", "R19", "R56")] == ["fail", "pass", "unseen", "unseen"]
    shown = trn("plan", "-C", str(project.path), "--no-color").stdout
    assert "No price is known for acme:index:Thing and eks:index:Cluster" in shown
    assert "Not simulated, and not in this time: acme:index:Thing and eks:index:Cluster." in shown


def test_a_program_of_what_is_not_simulated_is_not_called_sound(trn: Run, project: Project) -> None:
    project.write("__main__.py", PLAIN[: PLAIN.index("cluster =")])
    shown = trn("plan", "-C", str(project.path), "--no-color")
    last = "! dev: no failed rule, no wrong edge in what is known; not simulated: acme:index:Thing."
    assert (shown.exit_code, shown.stdout.strip().splitlines()[-1]) == (0, last)


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
