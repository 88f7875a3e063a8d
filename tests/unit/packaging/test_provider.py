"""The components as other languages get them: the schema, and the inputs as Pulumi's engine sends them."""

import json

import provider_schema
import pulumi
import pytest
from outcome import raising
from pulumi.provider.server import ComponentInitError

import components
from provider.arguments import components_with_args
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.testing import record

SCHEMA = json.loads(provider_schema.SCHEMA.read_text())
NODE_GROUP = {"name": "trn1", "instanceType": "trn1.32xlarge", "maxSize": 2.0, "desiredSize": 2.0}
STACK = {
    "region": "us-west-2",
    "owner": "ml-platform",
    "allowedAccountIds": ["111122223333"],
    "cluster": {"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}},
    "nodeGroups": [NODE_GROUP],
    "queues": [{"name": "research"}],
    "namespaces": [{"name": "vision", "queues": ["research"]}],
}


def spot(field, value):
    return {**STACK, "nodeGroups": [{**NODE_GROUP, "capacity": {"type": "spot", field: value}}]}


def construct(component, inputs):
    """Record a component with inputs from another language, where all numbers are floats."""
    return record(lambda: provider_schema.served().construct("it", f"trainium-eks:index:{component}", inputs))


def refusal(component, inputs):
    with pytest.raises((pulumi.InputPropertiesError, pulumi.InputPropertyError)) as refused:
        construct(component, inputs)
    error = refused.value
    assert getattr(error, "errors", []) == [], "the SDK cannot send an error without its list"
    return error.message if isinstance(error, pulumi.InputPropertiesError) else f"{error.property_path}: {error.reason}"


def test_provider_schema_is_current_and_covers_every_component():
    assert provider_schema.SCHEMA.read_text() == provider_schema.schema(), "run make docs"
    served = {name.rpartition(":")[2]: each for name, each in SCHEMA["resources"].items()}
    every = [getattr(components, name) for name in components.__all__]
    assert set(served) == {
        each.__name__ for each in every if isinstance(each, type) and issubclass(each, pulumi.ComponentResource)
    }
    missing = {
        f"{name}.{field.alias}"
        for name, model in components_with_args()
        for field in model.model_fields.values()
        if field.alias not in served[name]["inputProperties"]
    }
    # Instances of Pulumi's resources and of the catalogue, which stay in the process that made them.
    assert {each.partition(".")[2] for each in missing} == {"catalogue", "egress", "volcano", "waitFor"}


def test_network_is_built_from_another_language():
    graph = construct("Network", {"region": "us-west-2", "natGateways": "per-zone", "flowLogRetentionDays": 30.0})
    assert len(graph.of_type("aws:ec2/natGateway:NatGateway")) == 2
    [group] = graph.of_type("aws:cloudwatch/logGroup:LogGroup")
    assert group.inputs["retentionInDays"] == 30


def test_environment_from_another_language_has_outputs_for_trn():
    def program():
        made = provider_schema.served().construct("it", "trainium-eks:index:TrainingStack", STACK)
        pulumi.export("stackOutputs", made.state["stackOutputs"])

    graph = record(program)
    scaling = [each.inputs["scalingConfig"] for each in graph.of_type("aws:eks/nodeGroup:NodeGroup")]
    assert {"minSize": 0, "maxSize": 2, "desiredSize": 2} in scaling
    assert graph.of_type("trainium-eks:index:VolcanoStack")
    outputs = StackOutputs.parse(graph.outputs)
    assert [(each.name, each.max_size) for each in outputs.node_groups] == [("trn1", 2)]
    assert outputs.cluster_name.startswith("it-cluster")
    assert outputs.kubeconfig == "[secret]"
    with pytest.raises(ConfigModelError):
        StackOutputs.parse({"a": {"schemaVersion": 1}, "b": {"schemaVersion": 1}})


def test_problems_use_the_consumers_spelling():
    wrong = {**STACK, "nodeGroups": [{**NODE_GROUP, "minSize": 3.0}], "queues": [{"name": "Research"}]}
    said = refusal("TrainingStack", wrong)
    assert all(text in said for text in ("nodeGroups[0].minSize", "queues[0].name"))
    assert not any(text in said for text in ("_", "pulumi config set"))
    assert "nodeGroups[0].capacity" in refusal("TrainingStack", spot("id", "cr-0123456789abcdef0"))


@pytest.mark.parametrize(
    ("component", "inputs", "said"),
    [
        ("Network", {"region": "us-west-2", "zoneIDs": []}, "zoneIDs: Network has no input of this name; did you mean"),
        (
            *("TrainingStack", spot("zone", "usw2-az4")),
            "nodeGroups[0].capacity.zone: TrainingStack has no input of this name; did you mean zoneId?",
        ),
        ("Network", {"region": pulumi.Output.from_input("us-west-2")}, "region: it must be known when the program"),
        (
            "ExistingNetwork",
            {"region": "us-west-2", "vpcId": "v", "cidrBlock": "c", "privateSubnets": [pulumi.Output.from_input({})]},
            "privateSubnets[0]: it must be an object that is known",
        ),
        ("Network", {"region": "us-west-2", "natGateways": "one"}, "natGateways: Invalid value one"),
        ("FsxLustre", {"region": "us-west-2", "vpcId": "vpc-00000001"}, "subnetId: Missing required input"),
    ],
)
def test_a_wrong_input_is_refused_at_its_place(component, inputs, said):
    assert refusal(component, inputs).startswith(said)


def test_internal_error_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(components.network.Network, "_make_vpc", raising(KeyError("vpc")))
    with pytest.raises(ComponentInitError):
        construct("Network", {"region": "us-west-2"})
