"""The simulation: every answer is one that the SDK's class has, and recognisable as made up."""

import importlib
import json
from collections.abc import Callable

import pulumi_kubernetes as k8s
import pytest
from pulumi import _types

from trainium_eks.plan.backend import Registration, SimulationError
from trainium_eks.plan.graph import UNKNOWN, Graph, Options
from trainium_eks.plan.resource_types import sdk_inputs
from trainium_eks.plan.resource_types.registry import ROWS
from trainium_eks.plan.resource_types.simulation import Simulation

Record = Callable[..., Graph]

AWS = sorted(token for token in ROWS if token.startswith("aws:"))


def registration(type_: str, inputs: dict[str, object], name: str = "thing") -> Registration:
    urn = f"urn:pulumi:test::trainium-eks::{type_}::{name}"
    return Registration(
        urn=urn,
        type=type_,
        name=name,
        parent="",
        inputs=inputs,
        provider="",
        dependencies=(),
        options=Options(),
        dry_run=False,
    )


def load(type_: str) -> type:
    importlib.import_module("pulumi_aws")
    found = sdk_inputs.resource_class(type_)
    assert found is not None, f"{type_} is not in pulumi_aws"
    return found


@pytest.mark.parametrize("type_", AWS)
def test_every_computed_property_is_an_output_of_the_sdks_class(type_: str) -> None:
    outputs = set(_types.resource_types(load(type_)))
    _, computed = Simulation().create(registration(type_, {}))
    assert set(computed) <= outputs
    assert json.dumps(computed) == json.dumps(Simulation().create(registration(type_, {}))[1])


@pytest.mark.parametrize("type_", AWS)
def test_every_answer_survives_inputs_that_are_not_known_yet(type_: str) -> None:
    load(type_)
    unknown = dict.fromkeys(sdk_inputs.input_types(type_) or {}, UNKNOWN)
    identity, _ = Simulation().create(registration(type_, unknown))
    assert isinstance(identity, str)


@pytest.mark.parametrize("type_", AWS)
def test_arns_are_of_the_simulated_account_and_partition(type_: str) -> None:
    load(type_)
    _, computed = Simulation("us-gov-west-1").create(registration(type_, {}))
    for name, value in computed.items():
        if name.endswith(("arn", "Arn")):
            _, partition, _, region, account, _ = str(value).split(":", 5)
            assert partition == "aws-us-gov"
            assert region in ("us-gov-west-1", "")
            assert account == "000000000000" or type_ == "aws:s3/bucket:Bucket"


def test_a_given_name_is_kept_and_a_missing_one_is_made_from_the_logical_name() -> None:
    load("aws:iam/role:Role")
    role = "aws:iam/role:Role"
    assert Simulation().create(registration(role, {"name": "mine"}))[1]["name"] == "mine"
    assert str(Simulation().create(registration(role, {"namePrefix": "pre-"}))[1]["name"]).startswith("pre-sim-")
    assert str(Simulation().create(registration(role, {}))[1]["name"]).startswith("thing-sim-")


def test_an_unknown_type_is_an_error() -> None:
    assert not Simulation().simulates("aws:ivs/channel:Channel")
    assert not Simulation().simulates("random:index/randomId:RandomId")
    assert not Simulation().simulates("pulumi:providers:gcp")
    with pytest.raises(SimulationError, match="random:index/randomId:RandomId"):
        Simulation().create(registration("random:index/randomId:RandomId", {}))


def test_an_object_given_where_the_sdk_takes_text_or_an_object_is_checked_as_an_object() -> None:
    load("aws:iam/rolePolicy:RolePolicy")
    faults = sdk_inputs.faults("aws:iam/rolePolicy:RolePolicy", {"policy": {"Statment": []}})
    assert len(faults) == 1
    assert "policy.Statment" in faults[0]
    assert sdk_inputs.faults("aws:iam/rolePolicy:RolePolicy", {"policy": '{"Statement": []}'}) == []


def test_a_nested_type_of_the_same_name_is_not_taken_for_the_resources_inputs() -> None:
    load("aws:s3/bucketVersioning:BucketVersioning")
    assert "versioningConfiguration" in (sdk_inputs.input_types("aws:s3/bucketVersioning:BucketVersioning") or {})


def test_kubernetes_objects_get_name_namespace_and_uid(record: Record) -> None:
    def program() -> None:
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
