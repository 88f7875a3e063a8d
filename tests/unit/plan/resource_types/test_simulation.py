"""The simulation: every answer is a property of the SDK's class, and recognisable as made up."""

import importlib
import json

import pulumi_kubernetes as k8s
import pytest
from pulumi import _types

from trainium_eks.plan.backend import SimulationError
from trainium_eks.plan.graph import UNKNOWN, Resource
from trainium_eks.plan.resource_types import sdk_inputs
from trainium_eks.plan.resource_types.registry import ROWS
from trainium_eks.plan.resource_types.simulation import Simulation

AWS = sorted(token for token in ROWS if token.startswith("aws:"))


def resource(type_, inputs):
    importlib.import_module("pulumi_aws")
    urn = f"urn:pulumi:test::trainium-eks::{type_}::thing"
    return Resource(urn, type_, "thing", inputs=inputs)


@pytest.mark.parametrize("type_", AWS)
def test_every_answer_has_the_sdks_type_and_the_simulated_account(type_):
    asked = resource(type_, {})
    _, computed = Simulation("us-gov-west-1").create(asked)
    assert set(computed) <= set(_types.resource_types(sdk_inputs.resource_class(type_)))
    assert json.dumps(computed) == json.dumps(Simulation("us-gov-west-1").create(asked)[1])
    for name, value in computed.items():
        if name.endswith(("arn", "Arn")):
            _, partition, _, region, account, _ = str(value).split(":", 5)
            assert (partition, region in ("us-gov-west-1", "")) == ("aws-us-gov", True)
            assert account == "000000000000" or type_ == "aws:s3/bucket:Bucket"
    unknown = dict.fromkeys(sdk_inputs.input_types(type_) or {}, UNKNOWN)
    identity, _ = Simulation().create(resource(type_, unknown))
    assert isinstance(identity, str), "inputs may not be known yet"


def test_given_name_is_kept_and_a_missing_one_is_generated():
    def name(**inputs):
        return str(Simulation().create(resource("aws:iam/role:Role", inputs))[1]["name"])

    assert name(name="mine") == "mine"
    assert name(namePrefix="pre-").startswith("pre-sim-")
    assert name().startswith("thing-sim-")


def test_an_unknown_type_is_an_error():
    for type_ in ("aws:ivs/channel:Channel", "random:index/randomId:RandomId", "pulumi:providers:gcp"):
        assert not Simulation().simulates(type_)
        with pytest.raises(SimulationError, match=type_):
            Simulation().create(resource(type_, {}))


def test_object_in_a_text_or_object_field_is_checked_as_an_object():
    importlib.import_module("pulumi_aws")
    [fault] = sdk_inputs.faults("aws:iam/rolePolicy:RolePolicy", {"policy": {"Statment": []}})
    assert "policy.Statment" in fault
    assert sdk_inputs.faults("aws:iam/rolePolicy:RolePolicy", {"policy": '{"Statement": []}'}) == []
    # A nested type of the same name is not mistaken for the resource's inputs.
    assert "versioningConfiguration" in (sdk_inputs.input_types("aws:s3/bucketVersioning:BucketVersioning") or {})


def test_kubernetes_objects_get_name_namespace_and_uid(record):
    def program():
        k8s.core.v1.ConfigMap("typed")
        k8s.core.v1.PersistentVolume("pv", metadata={"name": "pv"})
        k8s.core.v1.ConfigMap("generated", metadata={"generate_name": "gen-", "namespace": "ns"})
        k8s.apiextensions.CustomResource("queue", api_version="scheduling.volcano.sh/v1beta1", kind="Queue")

    made = {resource.name: resource.outputs for resource in record(program).resources}
    assert made["typed"]["metadata"]["namespace"] == "default"
    assert made["typed"]["metadata"]["name"].startswith("typed-sim-")
    assert made["typed"]["id"] == f"default/{made['typed']['metadata']['name']}"
    assert made["pv"]["id"] == "pv"
    assert "namespace" not in made["pv"]["metadata"]
    assert made["generated"]["id"].startswith("ns/gen-sim-")
    assert "namespace" not in made["queue"]["metadata"]
    assert len({outputs["metadata"]["uid"] for outputs in made.values() if "metadata" in outputs}) == 4
