"""Karpenter's objects, as the component makes them, against the fields of Karpenter 1.14, without its CEL rules."""

from pathlib import Path

import jsonschema
import pytest
import yaml
from kubernetes_schemas import _closed

from components import _karpenter_objects as objects
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config.karpenter import KarpenterConfig, KarpenterPoolConfig

SETTING = objects.NodeSetting(
    "trn-1", "1.35", "trn-node", "arn:aws:kms:us-west-2:111122223333:key/abc", "tcp", {"Owner": "ml"}
)
RESERVED = ("cr-0123456789abcdef0",)
POOLS = [
    KarpenterPoolConfig(name="trn1", instance_type="trn1.32xlarge", max_nodes=4, capacity_reservation_ids=RESERVED),
    KarpenterPoolConfig(name="p5", instance_type="p5.48xlarge"),
]
CPU = KarpenterConfig()
SCHEMAS = yaml.safe_load(Path(__file__).with_name("karpenter_schemas.yaml").read_text())


def faults(kind, spec):
    """As the API server finds them: an unknown field is one."""
    validator = jsonschema.Draft202012Validator(_closed(SCHEMAS[kind]))
    return " ".join(each.message for each in validator.iter_errors({"spec": spec}))


def test_cpu_pool_has_no_unknown_field_and_a_misspelt_one_is_refused():
    node_class = objects.cpu_node_class(CPU, SETTING, "subnet-a", "sg-a")
    node_pool = objects.cpu_node_pool(CPU)
    assert faults("EC2NodeClass", node_class) + faults("NodePool", node_pool) == ""
    assert "'limit' was unexpected" in faults("NodePool", {**node_pool, "limit": {"cpu": "1"}})
    interface = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "efa"}
    assert "'efa' is not one of" in faults("EC2NodeClass", {**node_class, "networkInterfaces": [interface]})


@pytest.mark.parametrize("pool", POOLS, ids=lambda each: each.name)
def test_accelerator_pool_has_no_unknown_field(pool):
    instance = CATALOGUE.find(pool.instance_type)
    node_class = objects.accelerator_node_class(pool, instance, SETTING, "subnet-a", ["sg-a", "sg-b"])
    assert faults("EC2NodeClass", node_class) == ""
    assert faults("NodePool", objects.accelerator_node_pool(pool, CATALOGUE, 20)) == ""
