"""Programs that ask: their look-ups, other stacks and unknown types, with and without answers of the user."""

import json
import re

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pytest

from components import read_config, read_output
from trainium_eks.plan.graph import UNKNOWN, Graph
from trainium_eks.plan.recording import lookup_answers
from trainium_eks.plan.recording.assumptions import Assumptions, AssumptionsError, load, of_stack
from trainium_eks.plan.recording.lookup_answers import Lookup, placeholder
from trainium_eks.plan.recording.program import RecordingError

NONE = Assumptions()


@pytest.mark.parametrize("token", sorted(each for each in lookup_answers._ANSWERS if "kubernetes:" not in each))
def test_placeholder_has_only_fields_of_the_sdks_result(token):
    answer = placeholder(Lookup(token, {}, "eu-west-1"))
    assert answer
    assert set(answer) <= set(lookup_answers.fields(token))


def test_known_look_ups_have_recognisable_answers(record):
    def program():
        pulumi.export("account", [aws.get_caller_identity().account_id, aws.get_caller_identity_output().account_id])
        pulumi.export("place", [aws.get_partition().partition, aws.get_region().region])
        pulumi.export("zones", aws.get_availability_zones().names)
        pulumi.export("parameter", aws.ssm.get_parameter(name="/a/b").arn)
        pulumi.export("cluster", aws.eks.get_cluster(name="c").name)
        provider = aws.Provider("p", region="eu-north-1")
        pulumi.export("there", aws.get_region_output(opts=pulumi.InvokeOptions(provider=provider)).region)

    assert record(program, assumptions=NONE).outputs == {
        "account": ["000000000000", "000000000000"],
        "place": ["aws", "us-west-2"],
        "zones": ["us-west-2-sim-1", "us-west-2-sim-2", "us-west-2-sim-3"],
        "parameter": "arn:aws:ssm:us-west-2:000000000000:parameter/a/b",
        "cluster": "c",
        "there": "eu-north-1",
    }


def test_policy_document_is_computed(record):
    denied = {
        "effect": "Deny",
        "actions": ["s3:Put*", "s3:Delete*"],
        "resources": ["arn:aws:s3:::b"],
        "principals": [{"type": "Service", "identifiers": ["ec2.amazonaws.com"]}],
        "conditions": [{"test": "Bool", "variable": "aws:SecureTransport", "values": ["false"]}],
    }

    def program():
        base = aws.iam.get_policy_document(statements=[{"sid": "A", "actions": ["s3:Get*"], "resources": ["*"]}])
        document = aws.iam.get_policy_document(source_policy_documents=[base.json], statements=[denied])
        pulumi.export("x", json.loads(document.json))

    graph = record(program, assumptions=NONE)
    assert graph.placeholders == ()
    assert graph.outputs["x"]["Statement"] == [
        {"Sid": "A", "Effect": "Allow", "Action": "s3:Get*", "Resource": "*"},
        {
            "Effect": "Deny",
            "Action": ["s3:Put*", "s3:Delete*"],
            "Resource": "arn:aws:s3:::b",
            "Principal": {"Service": "ec2.amazonaws.com"},
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    ]


def test_look_up_outside_the_table_is_refused_with_its_line(record):
    wanted = r"answers\.<stack>\.yaml beside the stack's config, or with --stub FILE:\n  lookups:\n    "
    with pytest.raises(
        RecordingError, match=wanted + r"aws:sqs/getQueue:getQueue: \{arn: \.\.\., id: .*, url: \.\.\.\}"
    ):
        record(lambda: aws.sqs.get_queue(name="q"), assumptions=NONE)
    with pytest.raises(RecordingError, match=wanted + r"acme:index:getIt: \{\.\.\.\}"):
        record(lambda: pulumi.runtime.invoke("acme:index:getIt", {}), assumptions=NONE)


def test_answer_of_a_method_is_unknown(record):
    graph = record(
        lambda: pulumi.export("x", eks.Cluster("c", fargate=True).get_kubeconfig(role_arn="r")), assumptions=NONE
    )
    assert graph.outputs["x"] == UNKNOWN
    assert graph.placeholders == ("eks:index:Cluster/getKubeconfig: its answer is unknown",)
    assert Graph.from_json(json.loads(json.dumps(graph.to_json()))) == graph


def test_users_answer_overrides_the_placeholder_and_depends_on_arguments(record):
    cases = [{"args": {"id": "subnet-1"}, "answer": {"cidrBlock": "10.1.0.0/24"}}, {"answer": {"cidrBlock": "10.2/24"}}]
    given = Assumptions(lookups={"aws:ec2/getSubnet:getSubnet": cases, "aws:sqs/getQueue:getQueue": {"url": "u"}})

    def program():
        subnets = [aws.ec2.get_subnet(id=each).cidr_block for each in ("subnet-1", "subnet-2")]
        pulumi.export("x", [aws.sqs.get_queue(name="q").url, *subnets])

    graph = record(program, assumptions=given)
    assert (graph.outputs["x"], graph.placeholders) == (["u", "10.1.0.0/24", "10.2/24"], ())


def test_resource_that_is_read_belongs_to_another_stack(record):
    def program():
        shared = aws.ec2.Vpc.get("shared", "vpc-1")
        aws.ec2.Subnet("s", vpc_id=shared.id, cidr_block=shared.cidr_block)

    graph = record(program, assumptions=NONE)
    [subnet] = graph.of_type("aws:ec2/subnet:Subnet")
    assert graph.of_type("aws:ec2/vpc:Vpc") == ()
    assert subnet.inputs == {"vpcId": "vpc-1", "cidrBlock": UNKNOWN}
    assert (subnet.dependencies, subnet.property_dependencies) == ((), {})
    assert graph.placeholders == ("aws:ec2/vpc:Vpc shared (vpc-1), read: its attributes are unknown",)
    given = Assumptions(lookups={"aws:ec2/vpc:Vpc": {"cidrBlock": "10.9.0.0/16"}})
    [subnet] = record(program, assumptions=given).of_type("aws:ec2/subnet:Subnet")
    assert subnet.inputs["cidrBlock"] == "10.9.0.0/16"


def test_outputs_of_another_stack_are_unknown_unless_given(record):
    def program():
        network = pulumi.StackReference("acme/network/prod")
        ids = network.require_output("subnetIds").apply(lambda found: [each.upper() for each in found])
        pulumi.export("ids", ids)
        pulumi.export("none", network.get_output("missing"))

    graph = record(program, assumptions=NONE)
    assert graph.outputs["ids"] == UNKNOWN
    assert graph.placeholders == ("stack acme/network/prod: its outputs are unknown",)
    given = Assumptions(stack_references={"acme/network/prod": {"subnetIds": ["a", "b"]}})
    graph = record(program, assumptions=given)
    assert (graph.outputs["ids"], graph.placeholders) == (["A", "B"], ())


OUTPUTS = {"subnets": ["a"], "password": "[secret]"}


@pytest.mark.parametrize(
    ("references", "name", "said"),
    [
        ({}, "subnets", "stackReferences:\n    acme/network/prod: outputs.json"),
        ({"acme/network/prod": {}}, "subnets", "no output 'subnets', it has none; bring it up first"),
        ({"acme/network/prod": OUTPUTS}, "subnet", "no output 'subnet', it has password, subnets"),
        ({"acme/network/prod": OUTPUTS}, "password", "is a secret"),
    ],
)
def test_missing_output_of_another_stack_stops_the_program(record, references, name, said):
    with pytest.raises((pulumi.RunError, RecordingError)) as refused:
        record(lambda: read_output("acme/network/prod", name), assumptions=Assumptions(stack_references=references))
    assert said in str(refused.value)


def test_config_key_set_by_the_program_is_recorded(record):
    cluster = {"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}}

    def program():
        pulumi.export("region", read_config(region="us-east-1", cluster=cluster).region)

    file = {"owner": "123", "allowedAccountIds": '["111122223333"]'}
    graph = record(program, project="trainium-eks", config=file, assumptions=NONE)
    given = {"cluster": cluster, "region": "us-east-1"}
    assert graph.config == {"owner": "123", "allowedAccountIds": ["111122223333"], **given}
    assert graph.outputs["region"] == "us-east-1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"owner": "you"}, "the program gives owner: remove it from Pulumi.test.yaml"),
        ({"network": {"nat": 1}}, "read_config(network): 1 problem"),
    ],
    ids=["twice", "misshapen"],
)
def test_wrong_config_value_of_the_program_is_blamed_on_it(record, given, said):
    with pytest.raises(pulumi.RunError, match=re.escape(said)):
        record(lambda: read_config(**given), project="trainium-eks", config={"owner": "me", "region": "us-west-2"})


def test_stacks_answers_are_stored_next_to_its_config(tmp_path):
    (tmp_path / "answers.prod.yaml").write_text(
        "lookups:\n  a:b:c: {id: 1}\nstackReferences: {o/p/s: {x: [1, 2]}, acme/network/prod: network.json}"
    )
    (tmp_path / "network.json").write_text('{"subnets": ["a"]}')
    references = {"o/p/s": {"x": [1, 2]}, "acme/network/prod": {"subnets": ["a"]}}
    assert of_stack(tmp_path, "prod") == Assumptions({"a:b:c": {"id": 1}}, references)
    assert of_stack(tmp_path, "dev") is None


def test_unknown_types_are_echoed_and_named(record):
    def program():
        queue = aws.ivs.Channel("q", name="jobs", tags={"a": "b"})
        pulumi.export("name", queue.name)
        pulumi.export("arn", queue.arn.apply(lambda arn: arn.split(":")[-1]))
        aws.ivs.Channel("dead", name=queue.arn)

    graph = record(program, assumptions=NONE)
    assert [found.inputs.get("name") for found in graph.of_type("aws:ivs/channel:Channel")] == [UNKNOWN, "jobs"]
    assert graph.outputs == {"name": "jobs", "arn": UNKNOWN}
    assert graph.unjudged == ("aws:ivs/channel:Channel",)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "must be a mapping with lookups and stackReferences"),
        ("lookup: {}", "there is no 'lookup'"),
        ("lookups: [1]", "lookups must be a mapping"),
        ("lookups: {a: 1}", "lookups.a must be an object, or a list"),
        ("lookups: {a: [{args: {}}]}", "lookups.a must be an object, or a list"),
        ("stackReferences: {s: 1}", "stackReferences.s must be a mapping of outputs"),
        ("a: {", "is not valid YAML"),
    ],
)
def test_malformed_answer_file_is_refused(tmp_path, text, fault):
    file = tmp_path / "stub.yaml"
    file.write_text(text)
    with pytest.raises(AssumptionsError, match=re.escape(fault)):
        load(file)
    with pytest.raises(AssumptionsError, match="No such file"):
        load(tmp_path / "missing.yaml")
    file.write_text("")
    assert load(file) == NONE


@pytest.mark.parametrize(
    ("outputs", "fault"),
    [
        (None, "write it with: pulumi stack output --json --stack acme/network/prod"),
        ("{", "is not valid JSON"),
        ("[]", "must be a mapping of outputs, or the name of a JSON file"),
        ('{"vpcId": "[unknown]"}', "values that a plan does not know"),
    ],
)
def test_answer_file_with_unusable_outputs_is_refused(tmp_path, outputs, fault):
    (tmp_path / "answers.prod.yaml").write_text("stackReferences: {acme/network/prod: network.json}")
    if outputs is not None:
        (tmp_path / "network.json").write_text(outputs)
    with pytest.raises(AssumptionsError, match=re.escape(fault)):
        of_stack(tmp_path, "prod")
