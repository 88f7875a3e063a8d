"""Karpenter's objects, as the component makes them, on a real API server.

NodePool and EC2NodeClass are defined with the fields of Karpenter 1.14, not with its CEL rules, and in a group of their
own, so that they are in nobody's way on a shared control plane.
"""

from pathlib import Path

import pytest
import yaml
from manifests import definition, manifest

from components import _karpenter_objects as objects
from trainium_eks.kube.api import ApiError
from trainium_eks.local.objects.apply import Objects
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config.karpenter import KarpenterConfig, KarpenterPoolConfig

SETTING = objects.NodeSetting(
    "trn-1", "1.35", "trn-node", "arn:aws:kms:us-west-2:111122223333:key/abc", "tcp", {"Owner": "ml"}
)
TRN1 = KarpenterPoolConfig(
    name="trn1",
    instance_type="trn1.32xlarge",
    max_nodes=4,
    capacity_reservation_ids=("cr-0123456789abcdef0",),
)
P5 = KarpenterPoolConfig(name="p5", instance_type="p5.48xlarge")


PLURALS = {"NodePool": "nodepools", "EC2NodeClass": "ec2nodeclasses"}
GROUP = "checked.karpenter.test"
SCHEMAS = yaml.safe_load(Path(__file__).with_name("karpenter_schemas.yaml").read_text())


@pytest.fixture(scope="module", autouse=True)
def _definitions(api):
    makes = Objects(api, lambda _line: None)
    defined = [
        definition(kind, PLURALS[kind], GROUP, scope="Cluster", schema=schema) for kind, schema in SCHEMAS.items()
    ]
    for each in defined:
        makes.apply(each, timeout_seconds=300)
    yield
    for each in defined:
        makes.delete(api.reference(each), timeout_seconds=300)


def written(api, kind, name, spec):
    return api.apply(manifest(kind, name, api_version=f"{GROUP}/v1", spec=spec))


def test_the_api_server_takes_the_cpu_nodes(api):
    section = KarpenterConfig()
    node_class = objects.cpu_node_class(section, SETTING, "subnet-a", "sg-a")
    written(api, "EC2NodeClass", "karpenter", node_class)
    written(api, "NodePool", "karpenter", objects.cpu_node_pool(section))


@pytest.mark.parametrize("pool", [TRN1, P5], ids=lambda each: each.name)
def test_the_api_server_takes_accelerator_nodes(api, pool):
    instance = CATALOGUE.find(pool.instance_type)
    node_class = objects.accelerator_node_class(pool, instance, SETTING, "subnet-a", ["sg-a", "sg-b"])
    written(api, "EC2NodeClass", pool.name, node_class)
    written(api, "NodePool", pool.name, objects.accelerator_node_pool(pool, CATALOGUE, 20))


def test_a_misspelt_field_is_refused(api):
    spec = objects.cpu_node_pool(KarpenterConfig())
    with pytest.raises(ApiError, match="limit"):
        written(api, "NodePool", "wrong", {**spec, "limit": {"cpu": "1"}})
    node_class = objects.cpu_node_class(KarpenterConfig(), SETTING, "subnet-a", "sg-a")
    interface = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "efa"}
    wrong = {**node_class, "networkInterfaces": [interface]}
    with pytest.raises(ApiError, match="interfaceType"):
        written(api, "EC2NodeClass", "wrong", wrong)
